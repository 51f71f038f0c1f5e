// The inbox: what others have done, in groups.

import { ago, button, h, plural, show } from "./dom.js";

const EVERY = 15_000;

const WORDS = {
  follow: "follow you",
  request: "ask to follow you",
  accepted: "accepted your request",
  like: "like your post",
  favorite: "have your post as a favorite",
  repost: "reposted your post",
  quote: "quoted your post",
  comment: "commented on your post",
};

export class Inbox {
  constructor(person) {
    const { part, api } = person;
    Object.assign(this, { person, part, api, titles: {} });
    part.readInbox.addEventListener("click", () => person.run(() => this.readAll()));
    part.inbox.closest("[data-tab]").addEventListener("shown", () => person.id && person.run(() => this.refresh()));
    // A live message may be lost.
    this.timer = setInterval(() => !document.hidden && person.id && person.run(() => this.refresh()), EVERY);
  }

  stop() {
    clearInterval(this.timer);
  }

  async refresh() {
    const page = await this.api.get("/v1/inbox?limit=50");
    this.person.learn(page.profiles);
    this.counted(page.unread_total);
    await this.learnTitles(page.items.map((group) => group.post).filter((post) => post && !(post in this.titles)));
    const groups = page.items.map((group) => ({ ...group, title: this.titles[group.post], names: this.names(group) }));
    show(this.part.inbox, groups, (group) => group.id, (group) => this.group(group));
  }

  async learnTitles(posts) {
    const unknown = [...new Set(posts)];
    if (unknown.length === 0) return;
    const { items } = await this.api.get(`/v1/posts?profiles=false&${unknown.map((post) => `post=${post}`).join("&")}`);
    for (const { id, title } of items) this.titles[id] = title;
  }

  names({ users, count }) {
    const others = count - users.length;
    return users.map((user) => this.person.named(user)).join(", ") + (others > 0 ? ` and ${plural(others, "other")}` : "");
  }

  group({ id, kind, title, names, latest_at: at, read }) {
    return h("li", { class: read ? "read" : "" },
      h("span", { class: "grow" }, h("strong", {}, names), ` ${WORDS[kind]} `, title && h("q", {}, title), " ", ago(at), " ",
        !read && h("span", { class: "new" }, "unread")),
      !read && button("Mark read", () => this.person.run(() => this.read(id)), { "aria-label": `Mark read: ${names} ${WORDS[kind]}` }));
  }

  async read(id) {
    this.counted((await this.api.put(`/v1/inbox/${id}/read`)).unread);
    await this.refresh();
  }

  async readAll() {
    this.counted((await this.api.post("/v1/inbox/reads", { before: new Date().toISOString() })).unread);
    await this.refresh();
  }

  /** Shows the number of unread groups on the tab. */
  counted(unread) {
    this.person.count("Inbox", unread);
  }
}
