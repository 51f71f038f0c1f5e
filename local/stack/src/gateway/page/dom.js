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

const versions = new WeakMap();
const focusable = (element) => [...element.querySelectorAll("button, select, input")];

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
        const index = focusable(element).indexOf(document.activeElement);
        if (place === element) place = fresh;
        element.replaceWith(fresh);
        if (index >= 0) focusable(fresh)[index]?.focus();
      }
      element = fresh;
    }
    if (place === element) place = place.nextElementSibling;
    else list.insertBefore(element, place);
  }
  for (const gone of old.values()) gone.remove();
  if (focused && !list.contains(document.activeElement)) list.focus();
}

/** A button whose action cannot run twice at a time. It keeps the focus meanwhile. */
export function button(text, action, properties = {}, ...more) {
  return h("button", { type: "button", ...properties, onclick: once(action) }, text, ...more);
}

/** A listener that ignores events while the action of an earlier one runs. */
export function once(action) {
  return async (event) => {
    event.preventDefault();
    const target = event.currentTarget;
    if (target.ariaBusy === "true") return;
    target.ariaBusy = "true";
    try {
      await action(target);
    } finally {
      target.ariaBusy = null;
    }
  };
}

export const submit = (form, action) => form.addEventListener("submit", once(action));

/** A picture, or the initials of the name where there is none. */
export function avatar(name, picture) {
  const words = name.split(/\s+/).filter(Boolean);
  const initials = h("span", { class: "avatar", "aria-hidden": "true" }, words.slice(0, 2).map((word) => [...word][0]).join(""));
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
    if (content.length) region.append(h("p", {}, ...content), button("Dismiss", () => put(news)));
  };
  return {
    say: (text) => put(news, text),
    problem: (error) => put(alarm, h("strong", {}, error.title ?? "The page failed"), " ", error.detail ?? error.message),
    clear: () => put(news),
  };
}
