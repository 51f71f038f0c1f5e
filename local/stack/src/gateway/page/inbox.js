// The inbox: what others have done, in groups.

import { ago, button, h, once, plural, show } from "./dom.js";
import { face, name } from "./relations.js";

const WORDS = {
  follow: "followed you",
  request: "asked to follow you",
  accepted: "accepted your request",
  like: "liked your post",
  favorite: "marked as a favorite",
  repost: "reposted your post",
  quote: "quoted your post",
  comment: "commented on your post",
};

export class Inbox {
  constructor(person) {
    const { part, api } = person;
    Object.assign(this, { person, part, api, titles: {}, newest: null });
    part.readInbox.addEventListener("click", once(() => person.run(() => this.readAll())));
  }

  shown() {
    return this.refresh();
  }

  async refresh() {
    const page = await this.api.get("/v1/inbox?limit=50");
    this.person.learn(page.profiles);
    this.newest = page.items[0]?.latest_at;
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

  group({ id, kind, post, users, title, names, count, latest_at: at, read }) {
    const { person } = this;
    const others = count - users.length;
    const linked = users.flatMap((user, index) => [index > 0 && ", ", name(person, user)]);
    const shown = post && person.link(`posts/${post}`, { class: "name", dir: "auto" }, title ?? "a post");
    return h("li", { class: read ? "read" : "" }, face(person, users[0]),
      h("span", { class: "grow sentence" }, ...linked, others > 0 && ` and ${plural(others, "other")}`, ` ${WORDS[kind]} `, shown, " ", ago(at), " ",
        !read && h("span", { class: "new" }, "unread")),
      !read && button("Mark read", () => person.run(() => this.read(id)), { "aria-label": `Mark read: ${names} ${WORDS[kind]}` }));
  }

  async read(id) {
    this.counted((await this.api.put(`/v1/inbox/${id}/read`)).unread);
    await this.refresh();
  }

  /** Marks what the page shows and what is older: an act that has arrived since makes its group unread. */
  async readAll() {
    this.counted((await this.api.post("/v1/inbox/reads", { before: this.newest })).unread);
    await this.refresh();
  }

  /** Shows the number of unread groups on the tab. */
  counted(unread) {
    this.person.count("inbox", unread);
    this.part.readInbox.ariaDisabled = String(!unread || !this.newest);
  }
}
