// Starts the page: settings, two people, and the system where there is a local stack.

import { Api, connection } from "./api.js";
import { button, h } from "./dom.js";
import { Person } from "./person.js";
import { fill } from "./sample.js";
import { System } from "./system.js";

const find = (id) => document.getElementById(id);
const [panels, switcher, dialog, drawer] = [find("panels"), find("switcher"), find("settings"), find("open-system")];
const form = dialog.querySelector("form");
const KEY = "tidemark";
let page, system, state = "";

const settings = () => ({ base: "", live: "", first: "1", second: "2", ...JSON.parse(sessionStorage.getItem(KEY) ?? "{}") });
const save = (values) => sessionStorage.setItem(KEY, JSON.stringify({ ...settings(), ...values }));

/** Adds a panel and its button in the switcher, which narrow windows show. Returns the button's writer. */
function add(root) {
  const choose = () => {
    for (const panel of panels.children) panel.classList.toggle("current", panel === root);
    for (const other of switcher.children) other.ariaPressed = String(other === chooser);
    system?.seen();
  };
  const chooser = button("", choose, { "aria-pressed": "false" });
  panels.append(root);
  switcher.append(chooser);
  if (panels.children.length === 1) choose();
  return (name, count) => chooser.replaceChildren(h("span", { dir: "auto" }, name), ...(count ? [" ", h("span", { class: "count" }, String(count))] : []));
}

/** Takes the users of an address such as `#people=7,8`. Returns whether there are any. */
function users() {
  const [, first, second] = /^#people=(\d+),(\d+)$/.exec(location.hash) ?? [];
  if (!first) return false;
  save({ first, second });
  history.replaceState(null, "", location.pathname);
  return true;
}

/** Shows the screens of an address such as `#1=feed&2=authors/7`. */
function route() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  for (const person of page.people) person.enter(wanted.get(person.key) ?? "feed");
}

/** A person went to another screen. */
function went() {
  const hash = page.people.map(({ key, route }) => `${key}=${route}`).join("&");
  if (`#${hash}` !== location.hash) history.pushState(null, "", `#${hash}`);
}

/** Names or counts have changed. */
function changed() {
  page.people.forEach((person) => person.write(person.name, person.total));
  const total = page.people.reduce((sum, person) => sum + (person.refused ? 0 : person.total), 0);
  document.title = total ? `(${total}) Tidemark` : "Tidemark";
  find("skip").textContent = `Skip to ${page.people.at(-1).name}`;
  for (const { screens, id } of page.people) if (id) screens.feed.newcomer();
  told();
}

function told() {
  const text = { ok: "Connected", degraded: "Connected, without Redis", down: "Not reachable" };
  const refused = page.people.some((person) => person.refused) && state !== "down";
  Object.assign(find("connection"), { textContent: refused ? "Token refused" : text[state] ?? "", className: refused ? "down" : state });
}

function start() {
  for (const person of page?.people ?? []) person.stop();
  system?.stop();
  system = null;
  panels.replaceChildren();
  switcher.replaceChildren();
  panels.classList.remove("with-system");
  drawer.hidden = true;
  const { base, live, first, second } = settings();
  page = { people: [], sample: null, went, changed, settings: openSettings };
  page.people = [first, second].map((token, index) => {
    const person = new Person({ base, live, token, key: String(index + 1), page });
    person.write = add(person.root);
    return person;
  });
  changed();
  route();
  run(page, new Api(base, null));
}

/** Shows the system if there is a local stack, which also knows its users by their ids. */
async function run(mine, api) {
  if (!(await System.exists(api)) || mine !== page) return;
  page.sample = () => fill(api, page.people);
  system = new System(api);
  add(system.root)("System");
  drawer.hidden = false;
  slide(innerWidth >= 1200);
  changed();
  await system.watch();
}

function slide(open) {
  panels.classList.toggle("with-system", open);
  drawer.ariaPressed = String(open);
  system.seen();
}

function openSettings() {
  for (const [name, value] of Object.entries(settings())) form.elements.namedItem(name).value = value;
  dialog.showModal();
}

connection.addEventListener("change", ({ detail }) => {
  state = detail;
  told();
});
drawer.addEventListener("click", () => slide(drawer.ariaPressed !== "true"));
find("skip").addEventListener("click", (event) => {
  event.preventDefault();
  const { root, part } = page.people.at(-1);
  if (!root.checkVisibility()) switcher.children[page.people.length - 1].click();
  part.name.focus();
});
find("open-settings").addEventListener("click", openSettings);
find("cancel-settings").addEventListener("click", () => dialog.close());
form.addEventListener("submit", () => {
  save(Object.fromEntries(new FormData(form)));
  start();
});
addEventListener("popstate", () => (users() ? start() : route()));
users();
start();
