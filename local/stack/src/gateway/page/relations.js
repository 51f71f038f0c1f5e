// What a person can do about another: buttons, and rows of people.

import { avatar, button, confirmed, h, menu, show } from "./dom.js";

/** A button that changes relations. `done` is said when the action has succeeded; an action that returns false did nothing. */
export function act(person, text, label, done, action, properties = {}) {
  return button(text, () => person.run(async () => {
    if ((await action()) !== false) await person.changed(done);
  }), { "aria-label": label, ...properties });
}

/** The button of a relation's state: follow, withdraw a request, or unfollow. */
export function follow(person, id, { following, requested }) {
  const name = person.named(id), path = `/v1/following/${id}`;
  if (following) return act(person, "Unfollow", `Unfollow ${name}`, `You no longer follow ${name}.`, () => person.api.delete(path));
  if (requested) return act(person, "Withdraw", `Withdraw the request to ${name}`, "The request is withdrawn.", () => person.api.delete(path));
  return button("Follow", () => person.run(async () => {
    const done = await person.api.put(path);
    await person.changed(done.requested ? `You have asked to follow ${name}.` : `You follow ${name}.`);
  }), { "aria-label": `Follow ${name}`, class: "primary" });
}

export function mute(person, id) {
  const name = person.named(id);
  return act(person, "Mute", `Mute ${name}`, `${name} is muted. The tab People can undo it.`, () => person.api.put(`/v1/mutes/${id}`));
}

export function block(person, id) {
  const name = person.named(id);
  return act(person, "Block…", `Block ${name}`, `${name} is blocked. The tab People can undo it.`, async () => {
    const meaning = "The follows between you end, and neither can follow the other or react to a post.";
    if (!(await confirmed(`Block ${name}?`, meaning, "Block"))) return false;
    await person.api.put(`/v1/blocks/${id}`);
  });
}

/** A name that leads to its user. */
export const name = (person, id) => person.link(`authors/${id}`, { class: "name", dir: "auto" }, person.named(id));

/** The picture of a user. The name beside it leads there too. */
export const face = (person, id) => person.link(`authors/${id}`, { class: "face", "aria-hidden": "true", tabindex: "-1" },
  avatar(person.named(id), person.profiles[id]?.picture));

/** A user in a list, with a hint and buttons. */
export function row(person, id, hint, ...buttons) {
  return h("li", {}, face(person, id), h("span", { class: "grow" }, name(person, id), hint && h("span", { class: "hint" }, hint)), ...buttons);
}

/** Shows entries with their `relation` as rows. */
export function entries(person, list, items) {
  const known = items.map((item) => ({ ...item, card: person.profiles[item.user] }));
  show(list, known, (item) => item.user, ({ user, card, relation }) => {
    const hint = [card?.handle ? `@${card.handle}` : `id ${user}`, relation.followed_by && "follows you", relation.muted && "muted"];
    const own = user === person.id;
    return row(person, user, hint.filter(Boolean).join(" · "), !own && follow(person, user, relation),
      !own && menu(`More about ${person.named(user)}`, mute(person, user), block(person, user)));
  });
}
