// Posts in a list, with what a person can do about each. The screens of the feed, an author and a post share it.

import { Comments } from "./comments.js";
import { ago, button, h, icon, menu, plural, rove, show, titled } from "./dom.js";
import { act, block, face, follow, mute, name } from "./relations.js";

/** Who has reacted: the path, and the count in a post. */
const REACTORS = { likes: "like", favorites: "favorite", reposts: "repost" };

export class Timeline {
  constructor(person, list) {
    Object.assign(this, { person, list, api: person.api, items: [], ranked: false, open: new Set(), reactors: new Map() });
    this.comments = new Comments(person);
    this.rove = rove(list);
  }

  /** Shows these posts. */
  show(items) {
    this.items = items;
    this.draw();
  }

  /** Shows a post as it is now, where this list has it. */
  patch(id, news) {
    if (this.items.some((item) => item.id === id)) this.show(this.items.map((item) => (item.id === id ? { ...item, ...news } : item)));
  }

  draw() {
    const { person, open, reactors } = this;
    const shown = this.items.map((item, index) => ({
      ...item,
      open: open.has(item.id),
      rank: this.ranked && index + 1,
      reactors: reactors.get(item.id),
      profile: person.profiles[item.author],
      by: item.of?.author && person.named(item.of.author),
      stands: person.reposts.get(item.title === null ? item.of.id : item.id),
    }));
    show(this.list, shown, (item) => item.id, (item) => this.post(item));
    this.rove();
  }

  post(item) {
    const { person } = this;
    const text = titled(item);
    const title = { class: "title", dir: "auto", "aria-expanded": String(item.open) };
    return h("li", { class: item.read ? "post read" : "post" },
      face(person, item.author),
      h("article", { "aria-label": `${text}, by ${person.named(item.author)}` },
        h("p", { class: "by" }, name(person, item.author), item.title === null && h("span", {}, "reposts"),
          ago(item.created_at),
          !item.read && h("span", { class: "new" }, "unread"),
          item.rank && h("span", { class: "rank", title: "Place in this order" }, `#${item.rank}`),
          this.menu(item, text)),
        h("h3", {}, button(text, () => this.read(item), title)),
        item.title !== null && this.text(item),
        item.of && this.original(item),
        h("p", { class: "row actions" },
          this.reaction("Like", item, "like", "liked", "likes"),
          this.reaction("Favorite", item, "favorite", "favorited", "favorites"),
          this.repost(item),
          button(icon("comments"), () => this.read(item), { "aria-expanded": String(item.open), "aria-label": `Comments ${item.comments}`, title: "Comments" },
            h("span", { class: "number" }, String(item.comments))),
          item.author !== person.id && button(item.read ? "Mark unread" : "Mark read", () => this.mark(item, !item.read), { class: "mark" })),
        item.open && this.who(item),
        item.open && this.comments.under(item, (change) => this.commented(item.id, change))));
  }

  /** Counts one comment more or less. */
  commented(id, change) {
    const { comments } = this.items.find((item) => item.id === id);
    this.person.patch(id, { comments: comments + change });
  }

  /** The text of an open post. The beginning of a closed one. */
  text({ body, open }) {
    if (open) return h("p", { class: "text", dir: "auto" }, body ?? "This post has no text.");
    return body && h("p", { class: "text beginning", dir: "auto" }, body);
  }

  /** The original of a repost or a quote. That of a repost has its title in the heading. */
  original({ title, of, by }) {
    if (of.unavailable) return title !== null && h("blockquote", {}, "This post is unavailable.");
    return h("blockquote", {}, h("span", { class: "by" }, h("strong", { dir: "auto" }, by), ago(of.created_at)),
      title !== null && h("span", { dir: "auto" }, of.title));
  }

  menu(item, text) {
    const { person, api } = this;
    const { author, id } = item;
    const label = `More about ${author === person.id ? text : person.named(author)}`;
    const link = person.link(`posts/${id}`, { class: "button" }, "Open");
    const quote = !item.of?.unavailable && button("Quote", () => person.composer.quote(item), { "aria-label": `Quote ${text}` });
    if (author === person.id) {
      const edit = item.title !== null && button("Edit", () => person.composer.compose(item), { "aria-label": `Edit ${text}` });
      const remove = act(person, "Delete", `Delete ${text}`, `“${text}” is deleted.`, () => api.delete(`/v1/posts/${id}`));
      return menu(label, link, quote, edit, remove);
    }
    const name = person.named(author);
    // Up to the newest post that the page shows: one that has arrived since stays unread.
    const through = Math.max(...this.items.filter((other) => other.author === author).map((other) => other.seq));
    const readAll = act(person, "Mark all read", `Mark all read by ${name}`, `The posts by ${name} are read.`,
      () => api.post("/v1/reads", { author, through }));
    return menu(label, link, quote, readAll, mute(person, author), follow(person, author, { following: true }), block(person, author));
  }

  reaction(text, item, kind, flag, count) {
    const react = async () => {
      const done = await this.api[item[flag] ? "delete" : "put"](`/v1/posts/${item.id}/${kind}`);
      return { [flag]: done[flag], [count]: done[count] };
    };
    const properties = { "aria-pressed": String(item[flag]), "aria-label": `${text} ${item[count]}`, title: text, class: kind };
    return button(icon(kind), () => this.change(item, react), properties, h("span", { class: "number" }, String(item[count])));
  }

  /** Items do not say whether the person reposts them. A second repost changes nothing. */
  repost(item) {
    const { person } = this;
    const original = item.title === null ? item.of.id : item.id;
    const stands = person.reposts.get(original) ?? (item.title === null && item.author === person.id);
    const repost = async () => {
      const { reposted, reposts } = await this.api[stands ? "delete" : "put"](`/v1/posts/${item.id}/repost`);
      person.reposts.set(original, reposted);
      person.run(() => person.refresh());
      return { reposts };
    };
    const properties = { "aria-pressed": String(stands), "aria-label": `Repost ${item.reposts}`, title: "Repost" };
    return button(icon("repost"), () => this.change(item, repost), properties, h("span", { class: "number" }, String(item.reposts)));
  }

  /** Buttons that show who has reacted. */
  who(item) {
    const { person } = this;
    const counted = Object.keys(REACTORS).filter((kind) => item[kind] > 0);
    if (counted.length === 0) return null;
    const choices = counted.map((kind) => button(plural(item[kind], REACTORS[kind]), () => person.run(() => this.reacted(item, kind)),
      { "aria-expanded": String(item.reactors?.kind === kind), class: "quiet" }));
    const users = item.reactors?.users.map((user) => h("li", {}, name(person, user)));
    return h("div", { class: "reactors" }, h("p", { class: "row" }, ...choices), users && h("ul", { class: "plain row", "aria-label": item.reactors.kind }, ...users));
  }

  async reacted(item, kind) {
    if (this.reactors.get(item.id)?.kind === kind) this.reactors.delete(item.id);
    else {
      const page = await this.api.get(`/v1/posts/${item.id}/${kind}?limit=100`);
      this.person.learn(page.profiles);
      this.reactors.set(item.id, { kind, users: page.items.map((one) => one.user) });
    }
    this.draw();
  }

  mark(item, read) {
    return this.change(item, async () => {
      const { live } = this.person, { heard } = live;
      const { read: now, author, unread, total } = await this.api[read ? "put" : "delete"](`/v1/posts/${item.id}/read`);
      // A message that came meanwhile may be newer.
      if (heard === live.heard) this.person.changedCount(total, author, unread);
      return { read: now };
    });
  }

  /** Changes a post by what the API returns, wherever it is shown. */
  change(item, action) {
    return this.person.run(async () => this.person.patch(item.id, await action()));
  }

  /** Opens or closes a post. An opened one is read. */
  async read(item) {
    if (!this.open.delete(item.id)) this.open.add(item.id);
    this.draw();
    if (this.open.has(item.id) && !item.read) await this.mark(item, true);
  }
}
