// New posts, quotes and edits.

import { Delivery } from "./delivery.js";
import { submit, titled } from "./dom.js";

const field = (form, name) => form.elements.namedItem(name);

export class Composer {
  constructor(person) {
    const { part, api } = person;
    Object.assign(this, { person, part, api, key: null, edited: null, quoted: null, delivery: new Delivery(person) });
    submit(part.publish, () => person.run(() => this.publish()));
    part.publish.addEventListener("input", () => (this.key = null));
    // The Tab key passes it closed. It stays open when it loses the focus: what is below must not move under a click.
    for (const event of ["click", "input"]) field(part.publish, "title").addEventListener(event, () => part.publish.classList.add("open"));
    part.cancelEdit.addEventListener("click", () => this.fill(null));
  }

  /** Empties the form, or puts a post into it for an edit. */
  fill(post, verb = "Publish") {
    const form = this.part.publish;
    Object.assign(this, { edited: post, quoted: null, key: null });
    field(form, "title").value = post?.title ?? "";
    field(form, "body").value = post?.body ?? "";
    form.querySelector(".primary").textContent = verb;
    this.part.cancelEdit.hidden = verb === "Publish";
    if (form.contains(document.activeElement)) this.part.posts.focus({ preventScroll: true });
    form.classList.remove("open");
  }

  /** The form edits a post. */
  compose(post) {
    this.fill(post, "Save");
    this.open();
  }

  /** The form publishes a quote of a post. */
  quote(post) {
    this.fill(null, "Quote");
    this.quoted = post;
    this.open();
    this.person.say(`The next post quotes “${titled(post)}”.`);
  }

  open() {
    this.person.go("feed");
    this.part.publish.classList.add("open");
    field(this.part.publish, "title").focus();
  }

  async publish() {
    const { api, person, edited, quoted } = this;
    const post = Object.fromEntries(["title", "body"].map((name) => [name, field(this.part.publish, name).value || null]));
    if (edited) {
      await api.put(`/v1/posts/${edited.id}`, { ...post, data: edited.data });
      person.say(`“${post.title}” is saved.`);
    } else {
      // The key stays until there is a response, so that a repetition cannot publish twice.
      this.key ??= crypto.getRandomValues(new Uint32Array(4)).join("-");
      const of = quoted ? { of: quoted.id } : {}, sent = performance.now();
      const published = await api.post("/v1/posts", { ...post, ...of }, { "Idempotency-Key": this.key });
      person.say("");
      person.run(() => this.delivery.begin(published, sent));
    }
    this.fill(null);
    await person.refresh();
  }
}
