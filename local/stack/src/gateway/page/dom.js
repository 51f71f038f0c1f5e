// Small helpers for the document. Nothing here knows the API.

/** Creates an element. `on…` is a listener, everything else an attribute; null and false leave it out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Copies a template. Returns its root, and its parts by their `data-is`. */
export function copy(template) {
  const root = document.getElementById(template).content.cloneNode(true).firstElementChild;
  const parts = [...root.querySelectorAll("[data-is]")].map((element) => [element.dataset.is, element]);
  return { root, part: Object.fromEntries(parts) };
}

const CONTROLS = "a[href], button, input, select, summary, textarea";
const controls = (element) => [...element.querySelectorAll(CONTROLS)];
const versions = new WeakMap();

/** Shows items as children of a list. An unchanged item keeps its element; a changed one keeps the focus. */
export function show(list, items, key, render) {
  const old = new Map([...list.children].map((child) => [child.dataset.key, child]));
  const focused = list.contains(document.activeElement);
  let place = list.firstElementChild;
  for (const item of items) {
    const version = JSON.stringify(item);
    let element = old.get(key(item));
    old.delete(key(item));
    if (!element || versions.get(element) !== version) {
      const fresh = render(item);
      fresh.dataset.key = key(item);
      versions.set(fresh, version);
      if (element) {
        const index = controls(element).indexOf(document.activeElement);
        if (place === element) place = fresh;
        element.replaceWith(fresh);
        if (index >= 0) controls(fresh)[index]?.focus();
      }
      element = fresh;
    }
    if (place === element) place = place.nextElementSibling;
    else list.insertBefore(element, place);
  }
  for (const gone of old.values()) gone.remove();
  if (focused && !list.contains(document.activeElement)) list.focus();
}

/**
 * Makes a list short for the Tab key, which goes through the controls of one item. The arrow keys go to the others.
 * Returns what to call after items were shown.
 */
export function rove(list) {
  let key = null;
  const current = () => [...list.children].find((item) => item.dataset.key === key) ?? list.firstElementChild;
  const mark = () => {
    const stop = current();
    for (const item of list.children) {
      for (const control of controls(item)) control.tabIndex = item === stop && !control.ariaHidden ? 0 : -1;
    }
  };
  list.addEventListener("focusin", ({ target }) => {
    const item = [...list.children].find((child) => child.contains(target));
    if (!item || item.dataset.key === key) return;
    ({ key } = item.dataset);
    mark();
  });
  list.addEventListener("keydown", (event) => {
    const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
    if (!next || event.target.matches("input, select, textarea")) return;
    const item = current()?.[next];
    if (!item) return;
    event.preventDefault();
    (item.querySelector(".title") ?? controls(item)[0])?.focus();
  });
  return mark;
}

/** A button whose action cannot run twice at a time. It keeps the focus meanwhile. */
export function button(text, action, properties = {}, ...more) {
  return h("button", { type: "button", ...properties, onclick: once(action) }, text, ...more);
}

/** A listener that ignores events while the action of an earlier one runs, and those of a disabled element. */
export function once(action) {
  return async (event) => {
    event.preventDefault();
    const target = event.currentTarget;
    if (target.ariaBusy === "true" || target.ariaDisabled === "true") return;
    target.ariaBusy = "true";
    try {
      await action(target);
    } finally {
      target.ariaBusy = null;
    }
  };
}

export const submit = (form, action) => form.addEventListener("submit", once(action));

/** A button that opens a menu below it. Another click, or Escape, closes it. */
export function menu(label, ...choices) {
  return h("details", { class: "menu" }, h("summary", { "aria-label": label, title: label }, "⋯"), h("p", {}, ...choices));
}

function closeMenus(except) {
  for (const open of document.querySelectorAll("details.menu[open]")) if (!open.contains(except)) open.open = false;
}
addEventListener("click", ({ target }) => closeMenus(target.closest("summary")));
addEventListener("keydown", ({ key, target }) => {
  if (key !== "Escape") return;
  target.closest("details.menu[open]")?.querySelector("summary").focus();
  closeMenus(null);
});

/** Asks before something that is hard to take back. Returns whether the answer is yes. */
export function confirmed(question, explanation, verb) {
  const dialog = document.getElementById("confirm");
  const [title, text, yes] = ["h2", "p", "button.primary"].map((selector) => dialog.querySelector(selector));
  [title.textContent, text.textContent, yes.textContent] = [question, explanation, verb];
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((done) => dialog.addEventListener("close", () => done(dialog.returnValue === "yes"), { once: true }));
}

/** Loads more whenever `element` comes into view. The returned function says whether there is more, and shows a text. */
export function endless(element, load) {
  const observer = new IntersectionObserver(([entry]) => entry.isIntersecting && load());
  return (more, text) => {
    element.textContent = more ? "Loading more…" : text;
    // Observed anew, it loads the next page if it is still in view.
    observer.unobserve(element);
    if (more) observer.observe(element);
  };
}

const ICONS = {
  like: "M12 20s-7.4-4.7-9.1-8.7C1.5 7.9 3.4 5 6.5 5c2.2 0 3.8 1.4 5.5 3.5C13.7 6.4 15.3 5 17.5 5c3.1 0 5 2.9 3.6 6.3C19.4 15.3 12 20 12 20z",
  favorite: "M12 3.5l2.6 5.4 5.9.8-4.3 4.1 1 5.9-5.2-2.8-5.2 2.8 1-5.9-4.3-4.1 5.9-.8z",
  repost: "M4 13v-3a4 4 0 0 1 4-4h9m-3-3 3 3-3 3M20 11v3a4 4 0 0 1-4 4H7m3-3-3 3 3 3",
  comments: "M4 5h16v11h-9l-5 4v-4H4z",
};

/** Creates an element of a picture. */
export function svg(tag, properties, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const icon = (name) => svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }));

/** A picture, or the initials of the name where there is none. The colour depends on the name. */
export function avatar(name, picture) {
  const words = name.split(/\s+/).filter(Boolean);
  const initials = h("span", { class: "avatar", "aria-hidden": "true" }, words.slice(0, 2).map((word) => [...word][0]).join(""));
  initials.style.setProperty("--hue", [...name].reduce((sum, letter) => (sum * 37 + letter.codePointAt(0) * 71) % 360, 0));
  if (!picture) return initials;
  const image = h("img", { class: "avatar", alt: "", src: picture, referrerpolicy: "no-referrer" });
  image.addEventListener("error", () => image.replaceWith(initials));
  return image;
}

export const plural = (count, noun) => `${count} ${noun}${count === 1 ? "" : "s"}`;

/** The title of a post, or of the original that a repost stands for. */
export const titled = (post) => post.title ?? post.of.title ?? "This post is unavailable.";

/** A time as a reader says it. */
export function ago(time) {
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  const [minutes, hours] = [Math.floor(seconds / 60), Math.floor(seconds / 3600)];
  const recent = minutes < 1 ? "now" : hours < 1 ? `${minutes} min` : `${hours} h`;
  const text = hours < 24 ? recent : new Date(time).toLocaleDateString();
  return h("time", { datetime: time, title: new Date(time).toLocaleString() }, text);
}

/** A live region: problems interrupt, news does not. Each replaces the message before. */
export function messages(place) {
  const news = h("div", { role: "status" }), alarm = h("div", { role: "alert" });
  place.append(news, alarm);
  const put = (region, ...content) => {
    news.replaceChildren();
    alarm.replaceChildren();
    if (content.length) region.append(h("p", { dir: "auto" }, ...content), button("Dismiss", () => put(news)));
  };
  return {
    say: (text) => put(news, text),
    problem: (error) => put(alarm, h("strong", {}, error.title ?? "The page failed"), " ", error.detail ?? error.message),
    clear: () => put(news),
    forget: () => news.replaceChildren(),
  };
}
