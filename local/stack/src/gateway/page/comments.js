// The comments under an opened post: a page at a time, the oldest first, with a form and a button for one's own.

import { ago, button, h, show, submit, titled } from "./dom.js";
import { name } from "./relations.js";

const PAGE = 20;
const number = (comment) => Number(comment.id.split("-").at(-1));

export class Comments {
  constructor(person) {
    Object.assign(this, { person, api: person.api, of: new Map() });
  }

  /** What is known of a post's comments. */
  state(post) {
    if (!this.of.has(post)) this.of.set(post, { element: null, items: [], cursor: null, key: null, loading: null });
    return this.of.get(post);
  }

  /** The element under a post. It stays the same while the post is drawn again, so that a text that is being written stays. */
  under(item, counted) {
    const state = this.state(item.id);
    if (state.element) return state.element;
    const list = h("ol", { class: "plain comments", tabindex: "-1", "aria-label": `Comments on ${titled(item)}` });
    const text = h("textarea", { name: "text", rows: "2", maxlength: "2000", required: true, dir: "auto" });
    const form = h("form", { class: "comment" }, h("label", {}, h("span", {}, "Comment"), " ", text), h("button", {}, "Send"));
    const more = button("More comments", () => this.person.run(() => this.load(item.id)), { class: "quiet", hidden: true });
    const element = h("div", { class: "discussion" }, list, more, form);
    Object.assign(state, { element, list, more, counted, author: item.author });
    text.addEventListener("input", () => (state.key = null));
    submit(form, () => this.person.run(() => this.send(item.id, text)));
    if (state.loading) this.draw(item.id);
    else this.person.run(() => this.load(item.id));
    return element;
  }

  /** Reads the next page. */
  load(post) {
    const state = this.state(post);
    return (state.loading = (async () => {
      const cursor = state.cursor ? `&cursor=${encodeURIComponent(state.cursor)}` : "";
      const page = await this.api.get(`/v1/posts/${post}/comments?order=oldest&limit=${PAGE}${cursor}`);
      this.person.learn(page.profiles);
      const seen = new Set(state.items.map((comment) => comment.id));
      state.items.push(...page.items.filter((comment) => !seen.has(comment.id)));
      state.cursor = page.next_cursor;
      this.draw(post);
    })());
  }

  async send(post, text) {
    const state = this.state(post);
    // The key stays until there is a response, so that a repetition cannot comment twice.
    state.key ??= crypto.getRandomValues(new Uint32Array(4)).join("-");
    const comment = await this.api.post(`/v1/posts/${post}/comments`, { text: text.value }, { "Idempotency-Key": state.key });
    state.key = null;
    text.value = "";
    // Behind comments that are not loaded yet, the page has it too.
    if (!state.items.some((other) => other.id === comment.id)) state.items.push(comment);
    this.draw(post);
    state.counted(1);
  }

  async withdraw(post, comment) {
    const state = this.state(post);
    await this.api.delete(`/v1/posts/${post}/comments/${number(comment)}`);
    state.items = state.items.filter((other) => other.id !== comment.id);
    this.draw(post);
    state.counted(-1);
  }

  draw(post) {
    const { person } = this;
    const { element, list, more, items, cursor, author } = this.state(post);
    if (!element) return;
    more.hidden = !cursor;
    const shown = items.toSorted((a, b) => number(a) - number(b)).map((one) => ({ ...one, name: person.named(one.author) }));
    show(list, shown, (comment) => comment.id, (comment) => h("li", { class: "row" },
      h("span", { class: "grow" }, name(person, comment.author), " ", ago(comment.created_at), h("span", { class: "text", dir: "auto" }, comment.text)),
      [comment.author, author].includes(person.id) &&
        button("Delete", () => person.run(() => this.withdraw(post, comment)), { class: "quiet", "aria-label": `Delete the comment by ${comment.name}` })));
  }
}
