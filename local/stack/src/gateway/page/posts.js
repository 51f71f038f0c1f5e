// What a person publishes: new posts, their delivery, edits, deletions, and the profile.

import { wait } from "./api.js";
import { ago, button, h, plural, show, submit } from "./dom.js";

const MOST_DELIVERIES = 3;
const FIRST_PAUSE = 0.2;
const LONGEST_PAUSE = 2;

const words = {
  pending: "waits to be delivered",
  running: "is being delivered",
  done: "is delivered",
  cancelled: "was deleted before it was delivered",
};

export function posts(person) {
  const { part, api } = person;
  const { publish, profile } = part;
  let key = null, edited = null, deliveries = [], stopped = false;

  const field = (form, name) => form.elements.namedItem(name);
  const compose = (post) => {
    [edited, key] = [post, null];
    field(publish, "title").value = post?.title ?? "";
    field(publish, "body").value = post?.body ?? "";
    publish.querySelector(".primary").textContent = post ? "Save" : "Publish";
    part.cancelEdit.hidden = !post;
  };

  const draw = () => show(part.deliveries, deliveries, (one) => one.id, (one) => {
    const count = one.mode === "pull" ? "Followers read it on demand." : `${one.delivered} of ${plural(one.followers, "follower")}`;
    const value = one.state === "done" ? 1 : one.followers ? one.delivered / one.followers : null;
    return h("li", { class: "delivery" },
      h("p", { role: "status" }, `“${one.title}” ${words[one.state] ?? one.state}. `, h("span", { class: "hint" }, count)),
      h("progress", { max: 1, value, "aria-label": `Delivery of ${one.title}` }));
  });

  /** Follows a delivery to its end, with longer pauses the longer it takes. */
  async function follow({ id, title, delivery }) {
    deliveries = [{ id, title, ...delivery }, ...deliveries].slice(0, MOST_DELIVERIES);
    draw();
    for (let pause = FIRST_PAUSE; !stopped; pause = Math.min(LONGEST_PAUSE, pause * 1.3)) {
      await wait(pause);
      const known = deliveries.find((one) => one.id === id);
      if (!known || ["done", "cancelled"].includes(known.state)) return;
      const now = await api.get(`/v1/posts/${id}/delivery`).catch((problem) => (problem.status === 404 ? { state: "cancelled" } : {}));
      deliveries = deliveries.map((one) => (one.id === id ? { ...one, ...now } : one));
      draw();
    }
  }

  async function own() {
    const page = await api.get(`/v1/authors/${person.id}/posts?include=body&limit=50`);
    show(part.own, page.items, (post) => post.id, (post) => h("li", {},
      h("span", { class: "grow" }, post.title, " ", h("span", { class: "hint" }, `${plural(post.likes, "like")}, `, ago(post.created_at))),
      button("Edit", () => {
        compose(post);
        person.root.querySelector("[role=tab]").click();
        field(publish, "title").focus();
      }, { "aria-label": `Edit ${post.title}` }),
      button("Delete", () => person.run(async () => {
        await api.delete(`/v1/posts/${post.id}`);
        await own();
        person.message.say(`“${post.title}” is deleted.`);
      }), { "aria-label": `Delete ${post.title}` })));
  }

  submit(publish, () => person.run(async () => {
    const post = { title: field(publish, "title").value, body: field(publish, "body").value || null };
    if (edited) {
      await api.put(`/v1/posts/${edited.id}`, { ...post, data: edited.data });
      person.message.say(`“${post.title}” is saved.`);
    } else {
      // The key stays until there is a response, so that a repetition cannot publish twice.
      key ??= crypto.getRandomValues(new Uint32Array(4)).join("-");
      const published = await api.post("/v1/posts", post, { "Idempotency-Key": key });
      person.message.clear();
      person.run(() => follow(published));
    }
    compose(null);
    await own();
  }));
  publish.addEventListener("input", () => (key = null));
  part.cancelEdit.addEventListener("click", () => compose(null));

  submit(profile, () => person.run(async () => {
    const values = Object.fromEntries([...new FormData(profile)].map(([name, value]) => [name, value.trim() || null]));
    await api.put("/v1/me/profile", { ...values, data: person.profile?.data });
    await person.changed("The profile is saved.");
  }));

  return {
    stop: () => (stopped = true),
    refresh: async () => {
      for (const [name, value] of Object.entries(person.profile ?? {})) {
        const input = field(profile, name);
        if (input && !profile.contains(document.activeElement)) input.value = value ?? "";
      }
      await own();
    },
  };
}
