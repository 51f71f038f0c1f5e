// Whom a person follows, mutes and blocks, and the lists of followed authors.

import { button, h, show, submit } from "./dom.js";

const HIDDEN = [
  { path: "mutes", word: "Muted", undo: "Unmute" },
  { path: "blocks", word: "Blocked", undo: "Unblock" },
];

export class People {
  constructor(person) {
    const { part, api } = person;
    Object.assign(this, { person, part, api });
    submit(part.follow, () => person.run(() => this.follow(part.follow.elements.namedItem("who"))));
    // Nobody tells the person of a new request.
    part.follow.closest("[data-tab]").addEventListener("shown", () => person.id && person.run(() => this.requests()));
    submit(part.makeList, () => person.run(async () => {
      const input = part.makeList.elements.namedItem("name"), name = input.value;
      await api.post("/v1/lists", { name });
      input.value = "";
      await person.changed(`The list ${name} is created.`);
    }));
  }

  async follow(input) {
    const { api, person } = this;
    const who = input.value.trim().replace(/^@/, "");
    const id = /^\d+$/.test(who) ? who : (await api.get(`/v1/handles/${encodeURIComponent(who)}`)).id;
    const { requested } = await api.put(`/v1/following/${id}`);
    const { profile } = await api.get(`/v1/users/${id}`);
    if (profile) person.learn({ [id]: profile });
    input.value = "";
    await person.changed(requested ? `You have asked to follow ${person.named(id)}.` : `You follow ${person.named(id)}.`);
  }

  async refresh() {
    const page = await this.api.all(`/v1/users/${this.person.id}/following`);
    this.person.learn(page.profiles);
    const following = page.items.map((item) => ({ id: item.user, name: this.person.named(item.user) }));
    show(this.part.following, following, (user) => user.id, ({ id, name }) => h("li", {},
      h("span", { class: "grow" }, name, " ", h("span", { class: "hint" }, `id ${id}`)),
      this.act("Unfollow", `Unfollow ${name}`, `You no longer follow ${name}.`, () => this.api.delete(`/v1/following/${id}`)),
      this.act("Mute", `Mute ${name}`, `${name} is muted.`, () => this.api.put(`/v1/mutes/${id}`)),
      this.act("Block", `Block ${name}`, `${name} is blocked.`, () => this.api.put(`/v1/blocks/${id}`))));
    await Promise.all([this.lists(following), this.hidden(), this.requests()]);
  }

  /** Shows the requests to follow the person, and those of the person. */
  async requests() {
    const directions = ["received", "sent"];
    const pages = await Promise.all(directions.map((direction) => this.api.get(`/v1/follow-requests?direction=${direction}&limit=100`)));
    for (const page of pages) this.person.learn(page.profiles);
    const requests = pages.flatMap((page, index) =>
      page.items.map(({ user }) => ({ direction: directions[index], user, name: this.person.named(user) })));
    this.part.requestsTitle.hidden = requests.length === 0;
    show(this.part.requests, requests, ({ direction, user }) => direction + user, ({ direction, user, name }) => {
      const path = `/v1/follow-requests/${user}`;
      const hint = h("span", { class: "hint" }, direction === "sent" ? "asked by you" : "asks to follow you");
      const answers = direction === "sent"
        ? [this.act("Withdraw", `Withdraw the request to ${name}`, "The request is withdrawn.", () => this.api.delete(`/v1/following/${user}`))]
        : [this.act("Accept", `Accept ${name}`, `${name} follows you.`, () => this.api.put(path)),
          this.act("Reject", `Reject ${name}`, `The request of ${name} is rejected.`, () => this.api.delete(path))];
      return h("li", {}, h("span", { class: "grow" }, name, " ", hint), ...answers);
    });
  }

  async lists(following) {
    const { items } = await this.api.all("/v1/lists");
    const members = await Promise.all(items.map((list) => this.api.all(`/v1/lists/${list.id}/authors`)));
    const lists = items.map((list, index) => {
      const inside = new Set(members[index].items.map((one) => one.user));
      const pick = (member) => following.filter(({ id }) => inside.has(id) === member);
      return { ...list, authors: pick(true), others: pick(false) };
    });
    show(this.part.lists, lists, (list) => list.id, (list) => this.list(list));
    this.choice(lists);
  }

  list({ id, name, authors, others }) {
    const path = (author) => `/v1/lists/${id}/authors/${author}`;
    const options = others.map((other) => h("option", { value: other.id }, other.name));
    const choice = h("select", { "aria-label": `Author to add to ${name}` }, ...options);
    const members = authors.map((author) => h("li", {}, h("span", { class: "grow" }, author.name),
      this.act("Remove", `Remove ${author.name} from ${name}`, `${author.name} is no longer in ${name}.`,
        () => this.api.delete(path(author.id)))));
    return h("li", { class: "box" },
      h("p", { class: "row" }, h("strong", { class: "grow" }, name),
        this.act("Delete list", `Delete list ${name}`, `The list ${name} is deleted.`, () => this.api.delete(`/v1/lists/${id}`))),
      h("ul", { class: "plain rows" }, ...members),
      others.length > 0 && h("p", { class: "row" }, choice,
        this.act("Add", `Add to ${name}`, `The list ${name} has one more author.`, () => this.api.put(path(choice.value)))));
  }

  /** Offers the lists as feeds. The feed of a list that is gone becomes everyone's. */
  choice(lists) {
    const { list: select } = this.part;
    const chosen = select.value;
    select.replaceChildren(...[{ id: "", name: "Everyone" }, ...lists].map(({ id, name }) => h("option", { value: id }, name)));
    select.value = chosen;
    if (select.value === chosen) return;
    select.value = "";
    select.dispatchEvent(new Event("change"));
  }

  async hidden() {
    const pages = await Promise.all(HIDDEN.map(({ path }) => this.api.all(`/v1/${path}`)));
    for (const page of pages) this.person.learn(page.profiles);
    const users = pages.flatMap((page, index) =>
      page.items.map(({ user }) => ({ ...HIDDEN[index], user, name: this.person.named(user) })));
    show(this.part.hidden, users, ({ path, user }) => path + user, ({ path, word, undo, user, name }) => h("li", {},
      h("span", { class: "grow" }, name, " ", h("span", { class: "hint" }, word)),
      this.act(undo, `${undo} ${name}`, `${name} is no longer ${word.toLowerCase()}.`,
        () => this.api.delete(`/v1/${path}/${user}`))));
  }

  /** A button that changes relations. `done` is said when the action has succeeded. */
  act(text, label, done, action) {
    return button(text, () => this.person.run(async () => {
      await action();
      await this.person.changed(done);
    }), { "aria-label": label });
  }
}
