// The screen People: whom a person follows, follow requests, lists of followed authors, and the muted and blocked.

import { Problem } from "./api.js";
import { h, show, submit } from "./dom.js";
import { act, entries, row } from "./relations.js";

const HIDDEN = [
  { path: "mutes", word: "Muted", undo: "Unmute" },
  { path: "blocks", word: "Blocked", undo: "Unblock" },
];

export class People {
  constructor(person) {
    const { part, api } = person;
    Object.assign(this, { person, part, api });
    submit(part.follow, () => person.run(() => this.follow(part.follow.elements.namedItem("who"))));
    submit(part.makeList, () => person.run(async () => {
      const input = part.makeList.elements.namedItem("name"), name = input.value;
      await api.post("/v1/lists", { name });
      input.value = "";
      await person.changed(`The list ${name} is created.`);
    }));
  }

  async follow(input) {
    const { api, person } = this;
    const { id, profile } = await this.find(input.value.trim());
    const { requested } = await api.put(`/v1/following/${id}`);
    if (profile) person.learn({ [id]: profile });
    input.value = "";
    await person.changed(requested ? `You have asked to follow ${person.named(id)}.` : `You follow ${person.named(id)}.`);
  }

  /** Finds a user. A number is an id, and anything else, or what begins with @, a handle. */
  async find(who) {
    if (!/^\d+$/.test(who)) {
      const handle = who.replace(/^@/, "");
      const unknown = (error) => (error.status === 404 ? new Problem("Not found", `Nobody has the handle @${handle}.`, 404) : error);
      return this.api.get(`/v1/handles/${encodeURIComponent(handle)}`).catch((error) => Promise.reject(unknown(error)));
    }
    const user = await this.api.get(`/v1/users/${who}`);
    // The API knows no list of users: whoever has a token exists. The page asks for a trace, so that a typo is no follow.
    const beside = this.person.page.people.some((other) => other.id === who);
    const trace = beside || user.profile || Object.values(user.counters).some((count) => count > 0);
    if (!trace) throw new Problem("Not found", `User ${who} has no profile, no posts and no followers. A handle begins with @.`, 404);
    return user;
  }

  shown() {
    return this.refresh();
  }

  /** Reads everything of the screen at once. */
  async refresh() {
    await Promise.all([this.following(), this.hidden(), this.requests()]);
  }

  async following() {
    const { api, person } = this;
    const [page, lists] = await Promise.all([api.all(`/v1/users/${person.id}/following`, { relation: "true" }), api.all("/v1/lists")]);
    person.learn(page.profiles);
    entries(person, this.part.following, page.items);
    this.lists(lists.items, page.items);
  }

  /** Shows the requests to follow the person, and those of the person. */
  async requests() {
    const { api, person } = this;
    const directions = ["received", "sent"];
    const pages = await Promise.all(directions.map((direction) => api.get(`/v1/follow-requests?direction=${direction}&limit=100`)));
    for (const page of pages) person.learn(page.profiles);
    const requests = pages.flatMap((page, index) =>
      page.items.map(({ user }) => ({ direction: directions[index], user, name: person.named(user) })));
    this.part.requestsTitle.hidden = requests.length === 0;
    show(this.part.requests, requests, ({ direction, user }) => direction + user, ({ direction, user, name }) => {
      const path = `/v1/follow-requests/${user}`;
      const answers = direction === "sent"
        ? [act(person, "Withdraw", `Withdraw the request to ${name}`, "The request is withdrawn.", () => api.delete(`/v1/following/${user}`))]
        : [act(person, "Accept", `Accept ${name}`, `${name} follows you.`, () => api.put(path), { class: "primary" }),
          act(person, "Reject", `Reject ${name}`, `The request of ${name} is rejected.`, () => api.delete(path))];
      return row(person, user, direction === "sent" ? "asked by you" : "asks to follow you", ...answers);
    });
  }

  /** Shows the lists. The relation of a followed author names those that have the author. */
  lists(lists, following) {
    const shown = lists.map((list) => {
      const pick = (member) => following.filter(({ relation }) => relation.lists.includes(list.id) === member)
        .map(({ user }) => ({ id: user, name: this.person.named(user) }));
      return { ...list, authors: pick(true), others: pick(false) };
    });
    show(this.part.lists, shown, (list) => list.id, (list) => this.list(list));
    this.person.screens.feed.offer(lists);
  }

  list({ id, name, authors, others }) {
    const { api, person } = this;
    const path = (author) => `/v1/lists/${id}/authors/${author}`;
    const options = others.map((other) => h("option", { value: other.id }, other.name));
    const choice = h("select", { "aria-label": `Author to add to ${name}` }, ...options);
    const members = authors.map((author) => row(person, author.id, null,
      act(person, "Remove", `Remove ${author.name} from ${name}`, `${author.name} is no longer in ${name}.`, () => api.delete(path(author.id)))));
    return h("li", { class: "box" },
      h("p", { class: "row" }, h("strong", { class: "grow", dir: "auto" }, name),
        act(person, "Delete list", `Delete list ${name}`, `The list ${name} is deleted.`, () => api.delete(`/v1/lists/${id}`))),
      h("ul", { class: "plain rows" }, ...members),
      others.length > 0 && h("p", { class: "row" }, choice,
        act(person, "Add", `Add to ${name}`, `The list ${name} has one more author.`, () => api.put(path(choice.value)))));
  }

  async hidden() {
    const { api, person } = this;
    const pages = await Promise.all(HIDDEN.map(({ path }) => api.all(`/v1/${path}`)));
    for (const page of pages) person.learn(page.profiles);
    const users = pages.flatMap((page, index) => page.items.map(({ user }) => ({ ...HIDDEN[index], user, name: person.named(user) })));
    this.part.hiddenTitle.hidden = users.length === 0;
    show(this.part.hidden, users, ({ path, user }) => path + user, ({ path, word, undo, user, name }) => row(person, user, word,
      act(person, undo, `${undo} ${name}`, `${name} is no longer ${word.toLowerCase()}.`, () => api.delete(`/v1/${path}/${user}`))));
  }
}
