// Whom a person follows, mutes and blocks, and the lists of followed authors.

import { button, h, show, submit } from "./dom.js";

export function people(person) {
  const { part, api } = person;
  const act = (text, label, done, action) =>
    button(text, () => person.run(async () => (await action(), person.changed(done))), { "aria-label": label });

  async function lists(following) {
    const { items } = await api.all("/v1/lists");
    const members = await Promise.all(items.map((list) => api.all(`/v1/lists/${list.id}/authors`)));
    const all = items.map((list, index) => ({ ...list, authors: members[index].items.map((one) => one.user), following }));
    show(part.lists, all, (list) => list.id, one);
    const chosen = part.list.value;
    part.list.replaceChildren(...[{ id: "", name: "Everyone" }, ...all].map((list) => h("option", { value: list.id }, list.name)));
    part.list.value = chosen;
    if (part.list.value === chosen) return;
    part.list.value = "";
    part.list.dispatchEvent(new Event("change"));
  }

  function one(list) {
    const path = (author) => `/v1/lists/${list.id}/authors/${author}`;
    const others = list.following.filter((author) => !list.authors.includes(author));
    const choice = h("select", { "aria-label": `Author to add to ${list.name}` }, ...others.map((id) => h("option", { value: id }, person.named(id))));
    return h("li", { class: "box" },
      h("p", { class: "row" }, h("strong", { class: "grow" }, list.name),
        act("Delete list", `Delete list ${list.name}`, `The list ${list.name} is deleted.`, () => api.delete(`/v1/lists/${list.id}`))),
      h("ul", { class: "plain rows" }, ...list.authors.map((author) => h("li", {}, h("span", { class: "grow" }, person.named(author)),
        act("Remove", `Remove ${person.named(author)} from ${list.name}`, `${person.named(author)} is no longer in ${list.name}.`, () => api.delete(path(author)))))),
      others.length > 0 && h("p", { class: "row" }, choice,
        button("Add", () => person.run(async () => {
          await api.put(path(choice.value));
          await person.changed(`${person.named(choice.value)} is in ${list.name}.`);
        }), { "aria-label": `Add to ${list.name}` })));
  }

  async function hidden() {
    const kinds = [["mutes", "Muted", "Unmute"], ["blocks", "Blocked", "Unblock"]];
    const pages = await Promise.all(kinds.map(([kind]) => api.all(`/v1/${kind}`)));
    const all = pages.flatMap((page, index) => {
      person.learn(page.profiles);
      return page.items.map((item) => ({ kind: kinds[index], user: item.user, name: person.named(item.user) }));
    });
    show(part.hidden, all, ({ kind, user }) => kind[0] + user, ({ kind: [path, word, undo], user, name }) =>
      h("li", {}, h("span", { class: "grow" }, name, " ", h("span", { class: "hint" }, word)),
        act(undo, `${undo} ${name}`, `${name} is no longer ${word.toLowerCase()}.`, () => api.delete(`/v1/${path}/${user}`))));
  }

  async function refresh() {
    const page = await api.all(`/v1/users/${person.id}/following`);
    person.learn(page.profiles);
    const following = page.items.map((item) => item.user);
    const shown = following.map((id) => ({ id, name: person.named(id) }));
    show(part.following, shown, (user) => user.id, ({ id, name }) => h("li", {}, h("span", { class: "grow" }, name, " ", h("span", { class: "hint" }, `id ${id}`)),
      act("Unfollow", `Unfollow ${name}`, `You no longer follow ${name}.`, () => api.delete(`/v1/following/${id}`)),
      act("Mute", `Mute ${name}`, `${name} is muted.`, () => api.put(`/v1/mutes/${id}`)),
      act("Block", `Block ${name}`, `${name} is blocked.`, () => api.put(`/v1/blocks/${id}`))));
    await Promise.all([lists(following), hidden()]);
  }

  submit(part.follow, (form) => person.run(async () => {
    const input = form.elements.namedItem("who"), who = input.value.trim().replace(/^@/, "");
    const id = /^\d+$/.test(who) ? who : (await api.get(`/v1/handles/${encodeURIComponent(who)}`)).id;
    await api.put(`/v1/following/${id}`);
    const { profile } = await api.get(`/v1/users/${id}`);
    if (profile) person.learn({ [id]: profile });
    input.value = "";
    await person.changed(`You follow ${person.named(id)}.`);
  }));
  submit(part.makeList, (form) => person.run(async () => {
    const input = form.elements.namedItem("name"), name = input.value;
    await api.post("/v1/lists", { name });
    input.value = "";
    await person.changed(`The list ${name} is created.`);
  }));

  return { refresh };
}
