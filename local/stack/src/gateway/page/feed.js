// The feed of a person: endless, live, with a menu for each author.

import { ago, avatar, button, h, show } from "./dom.js";

const PAGE = 20;
const REBUILDING_PAUSE = 1000;

export function feed(person) {
  const { part, api } = person;
  const open = new Set(), menus = new Set();
  let items = [], cursor = null, loading = null;

  const query = (after) => {
    const parameters = { limit: PAGE, include: "body", order: part.order.value, status: part.status.value, list: part.list.value, cursor: after };
    return `/v1/feed?${new URLSearchParams(Object.entries(parameters).filter(([, value]) => value))}`;
  };
  const draw = () => {
    const shown = items.map((item) => ({ ...item, open: open.has(item.id), menu: menus.has(item.id), profile: person.profiles[item.author] }));
    authors(person.unread);
    show(part.posts, shown, (item) => item.id, post);
    const none = part.status.value === "unread" ? "Nothing is unread." : "No posts yet. Follow someone in the tab People.";
    part.more.textContent = cursor ? "Loading more…" : items.length ? "You have seen everything." : none;
    observer.unobserve(part.more);
    if (cursor) observer.observe(part.more);
  };

  const authors = (unread) => show(part.authors, unread.map((one) => ({ ...one, name: person.named(one.author) })), (one) => one.author,
    ({ name, unread: count }) => h("li", {}, name, " ", h("span", { class: "count" }, String(count))));

  /** Reads one page after another; a read that was overtaken by a change of the filters is dropped. */
  async function load(after) {
    const mine = (loading = {});
    try {
      const page = await api.get(query(after));
      if (mine !== loading) return null;
      person.learn(page.profiles);
      if (page.rebuilding) setTimeout(() => person.run(arrived), REBUILDING_PAUSE);
      return page;
    } finally {
      if (mine === loading) loading = null;
    }
  }

  /** Reads everything again from the first page. */
  async function refresh() {
    [items, cursor] = [[], null];
    await arrived();
  }

  /** Reads the first page and puts it before the items that follow it, so that the reader's place stays. */
  async function arrived() {
    const page = await load(null);
    if (!page) return;
    const last = page.items.at(-1)?.id;
    const kept = page.next_cursor ? items.findIndex((item) => item.id === last) + 1 : 0;
    const seen = new Set(page.items.map((item) => item.id));
    const rest = kept ? items.slice(kept).filter((item) => !seen.has(item.id)) : [];
    if (!rest.length) cursor = page.next_cursor;
    items = [...page.items, ...rest];
    draw();
  }

  async function more() {
    if (loading || !cursor) return;
    const page = await load(cursor);
    if (!page) return;
    const seen = new Set(items.map((item) => item.id));
    items.push(...page.items.filter((item) => !seen.has(item.id)));
    cursor = page.next_cursor;
    draw();
  }

  const observer = new IntersectionObserver(([entry]) => {
    if (entry.isIntersecting) person.run(more);
  });

  /** Changes the shown item once the API has done it. */
  const change = (item, action) => person.run(async () => {
    const news = await action();
    items = items.map((other) => (other.id === item.id ? { ...other, ...news } : other));
    draw();
  });
  const mark = (item, read) => change(item, async () => {
    const done = await api[read ? "put" : "delete"](`/v1/posts/${item.id}/read`);
    const others = person.unread.filter((other) => other.author !== item.author);
    const own = { author: item.author, unread: done.unread.author };
    person.counts(done.unread.total, own.unread ? [own, ...others] : others);
    return { read: done.read };
  });
  const react = (item, kind, flag, count) => change(item, async () => {
    const done = await api[item[flag] ? "delete" : "put"](`/v1/posts/${item.id}/${kind}`);
    return { [flag]: done[flag], [count]: item[count] + (done[flag] ? 1 : 0) - (item[flag] ? 1 : 0) };
  });
  const flip = (set, item) => {
    if (!set.delete(item.id)) set.add(item.id);
    draw();
  };
  const read = async (item) => {
    flip(open, item);
    if (open.has(item.id) && !item.read) await mark(item, true);
  };

  function choices(item, name) {
    const act = (text, label, done, action) =>
      button(text, () => person.run(async () => (menus.delete(item.id), await action(), person.changed(done))), { "aria-label": label });
    const newest = Math.max(...items.filter((other) => other.author === item.author).map((other) => other.seq));
    return h("p", { class: "row choices" },
      act("Mark all read", `Mark all read by ${name}`, `All posts by ${name} are read.`, () => api.post("/v1/reads", { author: item.author, through: newest })),
      act("Unfollow", `Unfollow ${name}`, `You no longer follow ${name}.`, () => api.delete(`/v1/following/${item.author}`)),
      act("Mute", `Mute ${name}`, `${name} is muted. The tab People can undo it.`, () => api.put(`/v1/mutes/${item.author}`)),
      act("Block", `Block ${name}`, `${name} is blocked. The tab People can undo it.`, () => api.put(`/v1/blocks/${item.author}`)));
  }

  function post(item) {
    const name = person.named(item.author);
    const reaction = (text, kind, flag, count) => button(text, () => react(item, kind, flag, count),
      { class: "reaction", "aria-pressed": String(item[flag]) }, " ", h("span", { class: "number" }, String(item[count])));
    const text = item.open && h("p", { class: "text" }, item.body ?? "This post has no text.");
    return h("li", { class: item.read ? "post read" : "post" },
      avatar(name, item.profile?.picture),
      h("article", { "aria-label": `${item.title}, by ${name}` },
        h("p", { class: "by" }, h("strong", {}, name), " ", ago(item.created_at), !item.read && h("span", { class: "new" }, "unread"),
          item.score !== undefined && h("span", { class: "score", title: "Rank" }, item.score.toFixed(1)),
          button("⋯", () => flip(menus, item), { class: "more", "aria-label": `More about ${name}`, "aria-expanded": String(item.menu) })),
        item.menu && choices(item, name),
        h("h3", {}, button(item.title, () => read(item), { class: "title", "aria-expanded": String(item.open) })),
        text,
        h("p", { class: "row" }, reaction("Like", "like", "liked", "likes"), reaction("Favorite", "favorite", "favorited", "favorites"),
          button(item.read ? "Mark unread" : "Mark read", () => mark(item, !item.read), { class: "quiet" }))));
  }

  for (const filter of [part.order, part.status, part.list]) {
    filter.addEventListener("change", () => person.run(refresh));
  }
  part.readAll.addEventListener("click", () => person.run(async () => {
    const { changed } = await api.post("/v1/reads", { all: true });
    await person.changed(`${changed} marked read.`);
  }));

  return {
    refresh,
    arrived,
    stop: () => observer.disconnect(),
    authors,
  };
}
