// Notices of a platform: unread for everyone until read or expired.

import { ago, button, h, show, submit } from "./dom.js";
import { watch } from "./poll.js";

const EVERY = 3000;

export class Notices {
  constructor(person) {
    const { part } = person;
    Object.assign(this, { person, part, api: person.api, items: [], opened: new Set() });
    part.platform.addEventListener("change", () => part.platform.checkValidity() && this.watch());
    part.readNotices.addEventListener("click", () => person.run(() => this.markAll()));
    submit(part.notify, () => person.run(() => this.publish(part.notify.elements.namedItem("title"))));
    this.watch();
  }

  stop() {
    this.polling.stop();
  }

  /** Watches the chosen platform. The person's live connection reports failures. */
  watch() {
    this.polling?.stop();
    const counted = ({ unread }) => {
      this.person.count("Notices", unread);
      this.person.run(() => this.refresh());
    };
    this.polling = watch(this.api, `/v1/notices/unread?platform=${this.part.platform.value}`, EVERY, counted);
  }

  async refresh() {
    this.items = (await this.api.get(`/v1/notices?platform=${this.part.platform.value}&include=body&limit=50`)).items;
    this.draw();
  }

  draw() {
    const shown = this.items.map((item) => ({ ...item, open: this.opened.has(item.id) }));
    show(this.part.notices, shown, (item) => item.id, (item) => this.notice(item));
  }

  notice(item) {
    const { open } = item;
    const mark = item.read ? "Mark unread" : "Mark read";
    const title = { class: "title", "aria-expanded": String(open) };
    return h("li", { class: item.read ? "read" : "" },
      h("span", { class: "grow" }, button(item.title, () => this.person.run(() => this.open(item)), title), " ",
        ago(item.created_at), " ", !item.read && h("span", { class: "new" }, "unread"),
        open && h("p", { class: "text" }, item.body ?? "This notice has no text.")),
      button(mark, () => this.person.run(() => this.mark(item, !item.read)), { "aria-label": `${mark}: ${item.title}` }));
  }

  /** Opens or closes a notice. An opened one is read. */
  async open(item) {
    if (!this.opened.delete(item.id)) this.opened.add(item.id);
    this.draw();
    if (this.opened.has(item.id) && !item.read) await this.mark(item, true);
  }

  async mark(item, read) {
    const done = await this.api[read ? "put" : "delete"](`/v1/notices/${item.id}/read`);
    this.items = this.items.map((other) => (other.id === item.id ? { ...other, read: done.read } : other));
    this.person.count("Notices", done.unread);
    this.draw();
  }

  async markAll() {
    const through = Math.max(0, ...this.items.map((item) => Number(item.id.split("-")[1])));
    if (!through) return;
    await this.api.post("/v1/notices/reads", { platform: Number(this.part.platform.value), through });
    this.polling.poke();
    await this.refresh();
  }

  async publish(input) {
    // The local stack grants a scope that the token names. A signed token has its scopes already.
    const token = /^\d+$/.test(this.api.token) ? `${this.api.token} notices:write` : this.api.token;
    const body = { platforms: [Number(this.part.platform.value)], title: input.value };
    await this.api.call("POST", "/v1/notices", { body, token });
    input.value = "";
    this.person.message.say("The notice is published.");
    this.polling.poke();
    await this.refresh();
  }
}
