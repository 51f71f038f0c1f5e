// Notices of a platform: unread for everyone until read or expired.

import { ago, button, h, show, submit } from "./dom.js";
import { watch } from "./live.js";

const EVERY = 3000;

export function notices(person) {
  const { part, api } = person;
  let live = null, items = [], bodies = {};
  const platform = () => part.platform.value;

  async function refresh() {
    ({ items } = await api.get(`/v1/notices?platform=${platform()}&limit=50`));
    draw();
  }

  function draw() {
    const shown = items.map((item) => ({ ...item, body: bodies[item.id] }));
    show(part.notices, shown, (item) => item.id, (item) => h("li", { class: item.read ? "read" : "" },
      h("span", { class: "grow" },
        button(item.title, () => person.run(() => open(item)), { class: "title", "aria-expanded": String(item.body !== undefined) }), " ",
        ago(item.created_at), !item.read && h("span", { class: "new" }, "unread"),
        item.body !== undefined && h("p", { class: "text" }, item.body ?? "This notice has no text.")),
      button(item.read ? "Mark unread" : "Mark read", () => person.run(() => mark(item, !item.read)), { class: "quiet", "aria-label": `Mark ${item.read ? "unread" : "read"}: ${item.title}` })));
    if (!items.length) part.notices.replaceChildren(h("li", { class: "hint" }, "No notices on this platform."));
  }

  async function open(item) {
    if (item.id in bodies) delete bodies[item.id];
    else bodies[item.id] = (await api.get(`/v1/notices/${item.id}`)).body;
    draw();
    if (item.id in bodies && !item.read) await mark(item, true);
  }

  async function mark(item, read) {
    const done = await api[read ? "put" : "delete"](`/v1/notices/${item.id}/read`);
    items = items.map((other) => (other.id === item.id ? { ...other, read: done.read } : other));
    person.count("Notices", done.unread);
    draw();
  }

  /** Watches the chosen platform. The person's own watch reports failures. */
  function start() {
    live?.stop();
    const counted = ({ unread }) => (person.count("Notices", unread), person.run(refresh));
    live = watch(api, `/v1/notices/unread?platform=${platform()}`, EVERY, counted, () => {});
  }

  part.platform.addEventListener("change", () => part.platform.checkValidity() && start());
  part.readNotices.addEventListener("click", () => person.run(async () => {
    const newest = Math.max(0, ...items.map((item) => Number(item.id.split("-")[1])));
    if (newest) await api.post("/v1/notices/reads", { platform: Number(platform()), through: newest });
    live.poke();
    await refresh();
  }));
  submit(part.notify, (form) => person.run(async () => {
    const input = form.elements.namedItem("title");
    // The local stack grants a scope that the token names. A signed token has its scopes already.
    const token = /^\d+$/.test(api.token) ? `${api.token} notices:write` : api.token;
    const body = { platforms: [Number(platform())], title: input.value };
    await api.call("POST", "/v1/notices", { body, token });
    input.value = "";
    person.message.say("The notice is published.");
    live.poke();
    await refresh();
  }));

  start();
  return { refresh, stop: () => live.stop() };
}
