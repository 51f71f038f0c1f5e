// New posts, quotes and edits, and how a post reaches its followers.

import { wait } from "./api.js";
import { h, plural, show, submit, titled } from "./dom.js";

const MOST_DELIVERIES = 3;
const FIRST_PAUSE = 0.2;
const LONGEST_PAUSE = 2;

const STATES = {
  pending: "waits to be delivered",
  running: "is being delivered",
  done: "is delivered",
  cancelled: "was deleted before it was delivered",
};

const field = (form, name) => form.elements.namedItem(name);

export class Composer {
  constructor(person) {
    const { part, api } = person;
    Object.assign(this, { person, part, api, key: null, edited: null, quoted: null, deliveries: [], stopped: false });
    submit(part.publish, () => person.run(() => this.publish()));
    part.publish.addEventListener("input", () => (this.key = null));
    // It stays open when it loses the focus: what is below must not move under a click.
    part.publish.addEventListener("focusin", () => part.publish.classList.add("open"));
    part.cancelEdit.addEventListener("click", () => this.fill(null));
  }

  stop() {
    this.stopped = true;
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
      const of = quoted ? { of: quoted.id } : {};
      const published = await api.post("/v1/posts", { ...post, ...of }, { "Idempotency-Key": this.key });
      person.say("");
      person.run(() => this.follow(published));
    }
    this.fill(null);
    await person.refresh();
  }

  /** Follows a delivery to its end, with longer pauses the longer it takes. */
  async follow({ id, title, delivery }) {
    this.deliveries = [{ id, title, ...delivery }, ...this.deliveries].slice(0, MOST_DELIVERIES);
    this.draw();
    for (let pause = FIRST_PAUSE; !this.stopped; pause = Math.min(LONGEST_PAUSE, pause * 1.3)) {
      await wait(pause);
      const known = this.deliveries.find((one) => one.id === id);
      if (!known || ["done", "cancelled"].includes(known.state)) return;
      const gone = (problem) => (problem.status === 404 ? { state: "cancelled" } : {});
      const now = await this.api.get(`/v1/posts/${id}/delivery`).catch(gone);
      this.deliveries = this.deliveries.map((one) => (one.id === id ? { ...one, ...now } : one));
      this.draw();
    }
  }

  draw() {
    show(this.part.deliveries, this.deliveries, (one) => one.id, ({ title, mode, state, delivered, followers }) => {
      const count = mode === "pull" ? "Followers read it on demand." : `${delivered} of ${plural(followers, "follower")}`;
      const value = state === "done" ? 1 : followers ? delivered / followers : null;
      return h("li", { class: "delivery" },
        h("p", { role: "status" }, `“${title}” ${STATES[state] ?? state}. `, h("span", { class: "hint" }, count)),
        h("progress", { max: 1, value, "aria-label": `Delivery of ${title}` }));
    });
  }
}
