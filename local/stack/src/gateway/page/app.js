// Starts the page: settings, one person or two, and the system where there is a local stack.

import { Api, connection } from "./api.js";
import { button, h } from "./dom.js";
import { Person } from "./person.js";
import { fill } from "./sample.js";
import { System } from "./system.js";

const find = (id) => document.getElementById(id);
const [panels, switcher, dialog, toggle] = [find("panels"), find("switcher"), find("settings"), find("beside")];
const form = dialog.querySelector("form");
const KEY = "tidemark";
const BOTH = "#1=feed&2=feed";
let page, system, state = "";

const settings = () => ({ base: "", live: "", first: "1", second: "2", ...JSON.parse(sessionStorage.getItem(KEY) ?? "{}") });
const save = (values) => sessionStorage.setItem(KEY, JSON.stringify({ ...settings(), ...values }));

/** Adds a person, and a button in the switcher, which narrow windows show for two. */
function add(key) {
  const { base, live, first, second } = settings();
  const person = new Person({ base, live, token: key === "1" ? first : second, key, page });
  person.chooser = button("", () => choose(person), { "aria-pressed": "false" });
  page.people.push(person);
  panels.append(person.root);
  switcher.append(person.chooser);
}

/** Shows a person where there is no room for two. */
function choose(person) {
  for (const other of page.people) {
    other.root.classList.toggle("current", other === person);
    other.chooser.ariaPressed = String(other === person);
  }
}

/** Shows the second person too, or no longer. */
function compare(both) {
  if (both === (page.people.length === 2)) return;
  if (both) add("2");
  else {
    const second = page.people.pop();
    second.stop();
    second.root.remove();
    second.chooser.remove();
    choose(page.people[0]);
  }
  toggle.ariaPressed = String(both);
  panels.classList.toggle("beside", both);
  switcher.hidden = !both;
  changed();
}

/** Takes the users of an address such as `#people=7,8`. Returns whether there are any. */
function users() {
  const [, first, second] = /^#people=(\d+),(\d+)$/.exec(location.hash) ?? [];
  if (!first) return false;
  save({ first, second });
  history.replaceState(null, "", BOTH);
  return true;
}

/** Shows the screens of an address such as `#1=feed&2=authors/7`. Without the second person, there is one. */
function route() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  compare(wanted.has("2"));
  for (const person of page.people) person.enter(wanted.get(person.key) ?? "feed");
}

/** A person went to another screen. */
function went() {
  const hash = page.people.map(({ key, route }) => `${key}=${route}`).join("&");
  if (`#${hash}` !== location.hash) history.pushState(null, "", `#${hash}`);
}

/** Names or counts have changed. */
function changed() {
  for (const { chooser, name, total } of page.people) {
    chooser.replaceChildren(h("span", { dir: "auto" }, name), ...(total ? [" ", h("span", { class: "count" }, String(total))] : []));
  }
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
  page = { people: [], sample: null, went, changed, settings: openSettings };
  add("1");
  choose(page.people[0]);
  changed();
  route();
  run(page, new Api(settings().base, null));
}

/** Shows the system if there is a local stack, which also knows its users by their ids. */
async function run(mine, api) {
  if (!(await System.exists(api)) || mine !== page) return;
  page.sample = async () => {
    beside(true);
    await page.people[1].identifying;
    await fill(api, page.people);
  };
  system = new System(api);
  find("open-settings").before(system.opener);
  switcher.before(system.root);
  changed();
  await system.watch();
}

/** Shows both people or one, as a step of the browser's history. */
function beside(both) {
  if (both === (page.people.length === 2)) return;
  history.pushState(null, "", `#1=${page.people[0].route}${both ? "&2=feed" : ""}`);
  route();
}

function openSettings() {
  for (const [name, value] of Object.entries(settings())) form.elements.namedItem(name).value = value;
  dialog.showModal();
}

connection.addEventListener("change", ({ detail }) => {
  state = detail;
  told();
});
toggle.addEventListener("click", () => beside(page.people.length === 1));
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
