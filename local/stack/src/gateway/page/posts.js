// The tools of an author: new posts, their delivery, edits, deletions, and the profile.

import { wait } from "./api.js";
import { ago, button, h, plural, show, submit, titled } from "./dom.js";

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

export class Posts {
  constructor(person) {
    const { part, api } = person;
    Object.assign(this, { person, part, api, key: null, edited: null, quoted: null, deliveries: [], stopped: false });
    submit(part.publish, () => person.run(() => this.publish()));
    part.publish.addEventListener("input", () => (this.key = null));
    part.cancelEdit.addEventListener("click", () => this.compose(null));
    submit(part.profile, () => person.run(async () => {
      const values = [...new FormData(part.profile)].map(([name, value]) => [name, value.trim() || null]);
      await api.put("/v1/me/profile", { ...Object.fromEntries(values), data: person.profile?.data });
      await person.changed("The profile is saved.");
    }));
    part.private.addEventListener("change", async () => {
      const wanted = part.private.checked;
      part.private.disabled = true;
      const done = await person.run(() => api.put("/v1/me/privacy", { private: wanted }));
      part.private.disabled = false;
      part.private.checked = done ? wanted : !wanted;
      if (done) await person.changed(wanted ? "Only followers whom you accept see your posts." : "Everybody sees your posts.");
    });
  }

  stop() {
    this.stopped = true;
  }

  async refresh() {
    const form = this.part.profile;
    for (const [name, value] of Object.entries(this.person.profile ?? {})) {
      const input = field(form, name);
      if (input && !form.contains(document.activeElement)) input.value = value ?? "";
    }
    await this.own();
  }

  /** Puts a post into the form for an edit; null empties the form. */
  compose(post) {
    const form = this.part.publish;
    Object.assign(this, { edited: post, quoted: null, key: null });
    field(form, "title").value = post?.title ?? "";
    field(form, "body").value = post?.body ?? "";
    form.querySelector(".primary").textContent = post ? "Save" : "Publish";
    this.part.cancelEdit.hidden = !post;
  }

  /** The form publishes a quote of a post. */
  quote(post) {
    this.compose(null);
    this.quoted = post;
    this.part.publish.querySelector(".primary").textContent = "Quote";
    this.part.cancelEdit.hidden = false;
    field(this.part.publish, "title").focus();
    this.person.message.say(`The next post quotes “${titled(post)}”.`);
  }

  async publish() {
    const { api, person, edited, quoted } = this;
    const post = Object.fromEntries(["title", "body"].map((name) => [name, field(this.part.publish, name).value || null]));
    if (edited) {
      await api.put(`/v1/posts/${edited.id}`, { ...post, data: edited.data });
      person.message.say(`“${post.title}” is saved.`);
    } else {
      // The key stays until there is a response, so that a repetition cannot publish twice.
      this.key ??= crypto.getRandomValues(new Uint32Array(4)).join("-");
      const of = quoted ? { of: quoted.id } : {};
      const published = await api.post("/v1/posts", { ...post, ...of }, { "Idempotency-Key": this.key });
      person.message.clear();
      person.run(() => this.follow(published));
    }
    this.compose(null);
    await Promise.all([this.own(), person.tell("arrived")]);
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

  /** Shows the newest posts of the person. */
  async own() {
    const { items } = await this.api.get(`/v1/authors/${this.person.id}/posts?include=body&limit=50`);
    const about = (post) => h("span", { class: "hint" }, `${plural(post.likes, "like")}, `, ago(post.created_at));
    show(this.part.own, items, (post) => post.id, (post) => h("li", {},
      h("span", { class: "grow" }, post.title ?? `Repost of “${titled(post)}”`, " ", about(post)),
      post.title !== null && button("Edit", () => {
        this.compose(post);
        this.person.root.querySelector("[role=tab]").click();
        field(this.part.publish, "title").focus();
      }, { "aria-label": `Edit ${post.title}` }),
      button("Delete", () => this.person.run(async () => {
        await this.api.delete(`/v1/posts/${post.id}`);
        await Promise.all([this.own(), this.person.tell("refresh")]);
        this.person.message.say(`“${titled(post)}” is deleted.`);
      }), { "aria-label": `Delete ${titled(post)}` })));
  }
}
