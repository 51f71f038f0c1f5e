// Starts the page: settings, two people, and the system where there is a local stack.

import { Api, connection } from "./api.js";
import { button, h } from "./dom.js";
import { Person } from "./person.js";
import { System } from "./system.js";

const find = (id) => document.getElementById(id);
const [panels, switcher, dialog] = [find("panels"), find("switcher"), find("settings")];
const form = dialog.querySelector("form");
const KEY = "tidemark";
let running = [];

const settings = () => ({ base: "", live: "", first: "1", second: "2", ...JSON.parse(sessionStorage.getItem(KEY) ?? "{}") });

/** Adds a panel and its button in the switcher, which narrow windows show. Returns the button's writer. */
function add(root, text) {
  const choose = () => {
    for (const panel of panels.children) panel.classList.toggle("current", panel === root);
    for (const other of switcher.children) other.ariaPressed = String(other === chooser);
  };
  const chooser = button(text, choose, { "aria-pressed": "false" });
  panels.append(root);
  switcher.append(chooser);
  if (panels.children.length === 1) choose();
  return (name, count) => {
    const counted = count ? [" ", h("span", { class: "count" }, String(count))] : [];
    chooser.replaceChildren(h("span", {}, name), ...counted);
  };
}

async function start() {
  for (const part of running) part.stop();
  panels.replaceChildren();
  switcher.replaceChildren();
  const { base, live, first, second } = settings();
  running = [first, second].map((token, index) => {
    let write = () => {};
    const person = new Person(base, live, token, (name, count) => write(name, count));
    write = add(person.root, `Person ${index + 1}`);
    return person;
  });
  const mine = running, api = new Api(base, null);
  const local = await System.exists(api);
  if (mine !== running) return;
  panels.classList.toggle("with-system", local);
  if (!local) return;
  const system = new System(api);
  running.push(system);
  add(system.root, "System");
  await system.watch();
}

connection.addEventListener("change", ({ detail }) => {
  const text = { ok: "Connected", degraded: "Connected, without Redis", down: "Not reachable" };
  Object.assign(find("connection"), { textContent: text[detail], className: detail });
});
find("open-settings").addEventListener("click", () => {
  for (const [name, value] of Object.entries(settings())) form.elements.namedItem(name).value = value;
  dialog.showModal();
});
find("cancel-settings").addEventListener("click", () => dialog.close());
form.addEventListener("submit", () => {
  sessionStorage.setItem(KEY, JSON.stringify(Object.fromEntries(new FormData(form))));
  start();
});
start();
