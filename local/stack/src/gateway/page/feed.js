// The feed of a person: endless, live, with choices about each author.

import { Comments } from "./comments.js";
import { ago, avatar, button, h, show, titled } from "./dom.js";

const PAGE = 20;
const REBUILDING_PAUSE = 1000;

export class Feed {
  constructor(person) {
    const { part, api } = person;
    Object.assign(this, { person, part, api, items: [], cursor: null, loading: null, open: new Set(), menus: new Set(), reposts: new Map() });
    this.comments = new Comments(person);
    this.observer = new IntersectionObserver(([entry]) => entry.isIntersecting && person.run(() => this.more()));
    for (const filter of [part.order, part.status, part.list]) {
      filter.addEventListener("change", () => person.run(() => this.refresh()));
    }
    part.readAll.addEventListener("click", () => person.run(async () => {
      // Up to the newest post that the page shows: one that has arrived since stays unread.
      const before = this.items.map((item) => item.created_at).toSorted().at(-1);
      if (!before) return;
      const { changed } = await api.post("/v1/reads", { all: true, before });
      await person.changed(`${changed} marked read.`);
    }));
  }

  stop() {
    this.observer.disconnect();
  }

  /** Reads everything again from the first page. */
  async refresh() {
    [this.items, this.cursor] = [[], null];
    await this.arrived();
  }

  /** Reads the first page and puts it before the items that follow it, so that the reader's place stays. */
  async arrived() {
    const page = await this.load(null);
    if (!page) return;
    const last = page.items.at(-1)?.id;
    const kept = page.next_cursor ? this.items.findIndex((item) => item.id === last) + 1 : 0;
    const seen = new Set(page.items.map((item) => item.id));
    const rest = kept ? this.items.slice(kept).filter((item) => !seen.has(item.id)) : [];
    if (!rest.length) this.cursor = page.next_cursor;
    this.items = [...page.items, ...rest];
    this.draw();
  }

  async more() {
    if (this.loading || !this.cursor) return;
    const page = await this.load(this.cursor);
    if (!page) return;
    const seen = new Set(this.items.map((item) => item.id));
    this.items.push(...page.items.filter((item) => !seen.has(item.id)));
    this.cursor = page.next_cursor;
    this.draw();
  }

  /** Reads a page. Returns null if a later read has overtaken it. */
  async load(cursor) {
    const { order, status, list } = this.part;
    const choices = { order: order.value, status: status.value, list: list.value };
    const parameters = { limit: PAGE, include: "body", own: "true", ...choices, cursor };
    const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value));
    const mine = (this.loading = {});
    try {
      const page = await this.api.get(`/v1/feed?${query}`);
      if (mine !== this.loading) return null;
      this.person.learn(page.profiles);
      if (page.rebuilding) setTimeout(() => this.person.run(() => this.arrived()), REBUILDING_PAUSE);
      return page;
    } finally {
      if (mine === this.loading) this.loading = null;
    }
  }

  draw() {
    const { part, person, open, menus } = this;
    this.authors(person.unread);
    const shown = this.items.map((item) =>
      ({ ...item, open: open.has(item.id), menu: menus.has(item.id), profile: person.profiles[item.author], by: item.of?.author && person.named(item.of.author),
        stands: this.reposts.get(item.title === null ? item.of.id : item.id) }));
    show(part.posts, shown, (item) => item.id, (item) => this.post(item));
    const none = part.status.value === "unread" ? "Nothing is unread." : "No posts yet. Follow someone in the tab People.";
    part.more.textContent = this.cursor ? "Loading more…" : shown.length ? "You have seen everything." : none;
    // Observed anew, it loads the next page if it is still in view.
    this.observer.unobserve(part.more);
    if (this.cursor) this.observer.observe(part.more);
  }

  /** Shows the unread counts by author. */
  authors(unread) {
    const named = unread.map((one) => ({ ...one, name: this.person.named(one.author) }));
    show(this.part.authors, named, (one) => one.author, ({ name, unread: count }) =>
      h("li", {}, name, " ", h("span", { class: "count" }, String(count))));
  }

  post(item) {
    const name = this.person.named(item.author);
    const own = item.author === this.person.id;
    const text = titled(item);
    const title = { class: "title", "aria-expanded": String(item.open) };
    const more = { class: "more", "aria-label": `More about ${name}`, "aria-expanded": String(item.menu) };
    return h("li", { class: item.read ? "post read" : "post" },
      avatar(name, item.profile?.picture),
      h("article", { "aria-label": `${text}, by ${name}` },
        h("p", { class: "by" }, h("strong", {}, name), item.title === null && h("span", {}, "reposts"), ago(item.created_at), !item.read && h("span", { class: "new" }, "unread"),
          item.score !== undefined && h("span", { class: "score", title: "Rank" }, item.score.toFixed(1)),
          !own && button("⋯", () => this.flip(this.menus, item), more)),
        item.menu && this.choices(item, name),
        h("h3", {}, button(text, () => this.read(item), title)),
        item.open && item.title !== null && h("p", { class: "text" }, item.body ?? "This post has no text."),
        item.of && this.original(item),
        h("p", { class: "row" },
          this.reaction("Like", item, "like", "liked", "likes"),
          this.reaction("Favorite", item, "favorite", "favorited", "favorites"),
          this.repost(item),
          !item.of?.unavailable && button("Quote", () => this.person.posts.quote(item), { class: "quiet", "aria-label": `Quote ${text}` }),
          button("Comments", () => this.read(item), { class: "quiet", "aria-expanded": String(item.open) },
            " ", h("span", { class: "number" }, String(item.comments))),
          !own && button(item.read ? "Mark unread" : "Mark read", () => this.mark(item, !item.read), { class: "quiet" })),
        item.open && this.comments.under(item, (change) => this.counted(item, change))));
  }

  choices(item, name) {
    const { api, person } = this;
    const act = (text, label, done, action) => button(text, () => person.run(async () => {
      this.menus.delete(item.id);
      await action();
      await person.changed(done);
    }), { "aria-label": label });
    const { author } = item;
    const through = Math.max(...this.items.filter((other) => other.author === author).map((other) => other.seq));
    return h("p", { class: "row choices" },
      act("Mark all read", `Mark all read by ${name}`, `All posts by ${name} are read.`,
        () => api.post("/v1/reads", { author, through })),
      act("Unfollow", `Unfollow ${name}`, `You no longer follow ${name}.`, () => api.delete(`/v1/following/${author}`)),
      act("Mute", `Mute ${name}`, `${name} is muted. The tab People can undo it.`, () => api.put(`/v1/mutes/${author}`)),
      act("Block", `Block ${name}`, `${name} is blocked. The tab People can undo it.`, () => api.put(`/v1/blocks/${author}`)));
  }

  reaction(text, item, kind, flag, count) {
    const react = async () => {
      const done = await this.api[item[flag] ? "delete" : "put"](`/v1/posts/${item.id}/${kind}`);
      return { [flag]: done[flag], [count]: done[count] };
    };
    return button(text, () => this.change(item, react), { "aria-pressed": String(item[flag]) },
      " ", h("span", { class: "number" }, String(item[count])));
  }

  /** The original of a repost or a quote. That of a repost has its title in the heading. */
  original({ title, of, by }) {
    if (of.unavailable) return title !== null && h("blockquote", {}, "This post is unavailable.");
    return h("blockquote", {}, h("span", { class: "by" }, h("strong", {}, by), ago(of.created_at)), title !== null && of.title);
  }

  /** Items do not say whether the person reposts them. A second repost changes nothing. */
  repost(item) {
    const original = item.title === null ? item.of.id : item.id;
    const stands = this.reposts.get(original) ?? (item.title === null && item.author === this.person.id);
    const change = () => this.change(item, async () => {
      const { reposted, reposts } = await this.api[stands ? "delete" : "put"](`/v1/posts/${item.id}/repost`);
      this.reposts.set(original, reposted);
      this.person.run(() => Promise.all([this.arrived(), this.person.posts.own()]));
      return { reposts };
    });
    return button("Repost", change, { "aria-pressed": String(stands) }, " ", h("span", { class: "number" }, String(item.reposts)));
  }

  /** Shows one comment more or less. */
  counted({ id }, change) {
    this.items = this.items.map((other) => (other.id === id ? { ...other, comments: other.comments + change } : other));
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

  /** Changes a shown item by what the API returns. */
  change(item, action) {
    return this.person.run(async () => {
      const news = await action();
      this.items = this.items.map((other) => (other.id === item.id ? { ...other, ...news } : other));
      this.draw();
    });
  }

  flip(set, item) {
    if (!set.delete(item.id)) set.add(item.id);
    this.draw();
  }

  /** Opens or closes a post. An opened one is read. */
  async read(item) {
    this.flip(this.open, item);
    if (this.open.has(item.id) && !item.read) await this.mark(item, true);
  }
}
