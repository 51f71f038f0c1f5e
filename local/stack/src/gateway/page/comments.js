// The comments under an opened post: a page at a time, the oldest first, with a form and a button for one's own.

import { ago, button, h, show, submit } from "./dom.js";

const PAGE = 20;

export class Comments {
  constructor(person) {
    Object.assign(this, { person, of: new Map() });
  }

  /** The element under a post. It stays the same while the post is drawn again, so that a text that is being written stays. */
  under(item, counted) {
    const known = this.of.get(item.id);
    if (known) return known.element;
    const list = h("ol", { class: "plain comments", tabindex: "-1", "aria-label": `Comments on ${item.title}` });
    const text = h("textarea", { name: "text", rows: "2", maxlength: "2000", required: true });
    const form = h("form", { class: "comment" }, h("label", {}, h("span", {}, "Comment"), " ", text), h("button", {}, "Send"));
    const more = button("More comments", () => this.person.run(() => this.load(item)), { class: "quiet", hidden: true });
    const element = h("div", { class: "discussion" }, list, more, form);
    this.of.set(item.id, { element, list, more, items: [], cursor: null, key: null, counted });
    text.addEventListener("input", () => (this.of.get(item.id).key = null));
    submit(form, () => this.person.run(() => this.send(item, text)));
    this.person.run(() => this.load(item));
    return element;
  }

  async load(item) {
    const state = this.of.get(item.id);
    const cursor = state.cursor ? `&cursor=${encodeURIComponent(state.cursor)}` : "";
    const page = await this.person.api.get(`/v1/posts/${item.id}/comments?order=oldest&limit=${PAGE}${cursor}`);
    this.person.learn(page.profiles);
    const seen = new Set(state.items.map((comment) => comment.id));
    state.items.push(...page.items.filter((comment) => !seen.has(comment.id)));
    state.cursor = page.next_cursor;
    this.draw(item);
  }

  async send(item, text) {
    const state = this.of.get(item.id);
    // The key stays until there is a response, so that a repetition cannot comment twice.
    state.key ??= crypto.getRandomValues(new Uint32Array(4)).join("-");
    const path = `/v1/posts/${item.id}/comments`;
    const comment = await this.person.api.post(path, { text: text.value }, { "Idempotency-Key": state.key });
    state.key = null;
    text.value = "";
    // Behind comments that are not loaded yet, the page has it too.
    if (!state.items.some((other) => other.id === comment.id)) state.items.push(comment);
    this.draw(item);
    state.counted(1);
  }

  async withdraw(item, comment) {
    const state = this.of.get(item.id);
    await this.person.api.delete(`/v1/posts/${item.id}/comments/${comment.id.split("-").at(-1)}`);
    state.items = state.items.filter((other) => other.id !== comment.id);
    this.draw(item);
    state.counted(-1);
  }

  draw(item) {
    const { person } = this;
    const { list, more, items, cursor } = this.of.get(item.id);
    more.hidden = !cursor;
    const number = (comment) => Number(comment.id.split("-").at(-1));
    const shown = items.toSorted((a, b) => number(a) - number(b)).map((one) => ({ ...one, name: person.named(one.author) }));
    show(list, shown, (comment) => comment.id, (comment) => h("li", { class: "row" },
      h("span", { class: "grow" }, h("strong", {}, comment.name), " ", ago(comment.created_at), h("br"), comment.text),
      [comment.author, item.author].includes(person.id) &&
        button("Delete", () => person.run(() => this.withdraw(item, comment)), { "aria-label": `Delete the comment by ${comment.name}` })));
  }
}
