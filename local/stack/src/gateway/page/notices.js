// The screen Notices of a platform: unread for everyone until read or expired.

import { ago, button, h, once, show, submit } from "./dom.js";

/** Tells the people of this page that there is news. Elsewhere it arrives with the next ping, within a minute. */
const news = new EventTarget();

export class Notices {
  constructor(person) {
    const { part } = person;
    Object.assign(this, { person, part, api: person.api, items: [], opened: new Set() });
    part.platform.addEventListener("change", () => part.platform.checkValidity() && person.run(() => this.choose()));
    part.readNotices.addEventListener("click", once(() => person.run(() => this.markAll())));
    submit(part.notify, () => person.run(() => this.publish(part.notify.elements.namedItem("title"))));
    this.ask = () => person.live.ping();
    news.addEventListener("notice", this.ask);
  }

  stop() {
    news.removeEventListener("notice", this.ask);
  }

  get platform() {
    return Number(this.part.platform.value);
  }

  async choose() {
    this.person.live.name(this.platform);
    this.items = [];
    await this.refresh();
  }

  shown() {
    return this.refresh();
  }

  async refresh() {
    const { platform } = this;
    const { items, next_cursor: more } = await this.api.get(`/v1/notices?platform=${platform}&include=body&limit=50`);
    if (platform !== this.platform) return;
    this.items = items;
    this.draw();
    if (!more) this.counted(items.filter((item) => !item.read).length);
  }

  /** Shows the number of unread notices on the tab. */
  counted(unread) {
    this.person.count("notices", unread);
  }

  /** A live message has a new number. */
  async told({ platform, unread }) {
    if (platform !== this.platform) return;
    this.counted(unread);
    if (this.person.shows("notices")) await this.refresh();
  }

  draw() {
    const shown = this.items.map((item) => ({ ...item, open: this.opened.has(item.id) }));
    show(this.part.notices, shown, (item) => item.id, (item) => this.notice(item));
    this.part.readNotices.ariaDisabled = String(this.items.every((item) => item.read));
  }

  notice(item) {
    const { open } = item;
    const mark = item.read ? "Mark unread" : "Mark read";
    const title = { class: "title", dir: "auto", "aria-expanded": String(open) };
    return h("li", { class: item.read ? "read" : "" },
      h("span", { class: "grow" }, button(item.title, () => this.person.run(() => this.open(item)), title), " ",
        ago(item.created_at), " ", !item.read && h("span", { class: "new" }, "unread"),
        open && h("p", { class: "text", dir: "auto" }, item.body ?? "This notice has no text.")),
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
    this.counted(done.unread);
    this.draw();
  }

  /** Marks up to the newest notice that the page shows. */
  async markAll() {
    const through = Math.max(...this.items.map((item) => item.seq));
    const { unread } = await this.api.post("/v1/notices/reads", { platform: this.platform, through });
    await this.refresh();
    this.counted(unread);
  }

  async publish(input) {
    // The local stack grants a scope that the token names. A signed token has its scopes already.
    const token = /^\d+$/.test(this.api.token) ? `${this.api.token} notices:write` : this.api.token;
    const body = { platforms: [this.platform], title: input.value };
    await this.api.call("POST", "/v1/notices", { body, token });
    input.value = "";
    this.person.say("The notice is published.");
    news.dispatchEvent(new Event("notice"));
    await this.refresh();
  }
}
