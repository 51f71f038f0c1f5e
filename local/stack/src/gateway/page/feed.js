// The screen Feed: what the followed authors and the person publish, who has unread posts, and the empty page of a newcomer.

import { button, endless, h, once, show } from "./dom.js";
import { act } from "./relations.js";
import { Timeline } from "./timeline.js";

const PAGE = 20;
const REBUILDING_PAUSE = 1000;
/** The authors with unread posts that are shown at once, and after a click. */
const FEW = 3;
const MANY = 100;

export class Feed {
  constructor(person) {
    const { part, api } = person;
    Object.assign(this, { person, part, api, cursor: null, loading: null, unread: [], all: false, counting: null, empty: false, total: null });
    /** The newest read of a first page. Its total is then the page's. */
    this.arriving = null;
    this.timeline = new Timeline(person, part.posts);
    this.more = endless(part.more, () => person.run(() => this.next()));
    for (const filter of [part.order, part.status, part.list]) {
      filter.addEventListener("change", () => person.run(() => Promise.all([this.refresh(), this.counts()])));
    }
    part.filter.addEventListener("click", () => {
      part.filters.hidden = !part.filters.hidden;
      part.filter.ariaExpanded = String(!part.filters.hidden);
      if (!part.filters.hidden) person.run(() => this.lists());
    });
    part.readAll.addEventListener("click", once(() => person.run(() => this.readAll())));
  }

  /** Reads everything again from the first page. */
  async refresh() {
    [this.timeline.items, this.cursor] = [[], null];
    await this.arrived();
  }

  /** Reads the first page and puts it before the items that follow it, so that the reader's place stays. */
  arrived() {
    return (this.arriving = this.first());
  }

  async first() {
    const page = await this.load(null);
    if (!page) return;
    this.total = this.part.list.value ? null : page.unread_total;
    await this.person.ready;
    const { items } = this.timeline;
    const last = page.items.at(-1)?.id;
    const kept = page.next_cursor ? items.findIndex((item) => item.id === last) + 1 : 0;
    const seen = new Set(page.items.map((item) => item.id));
    const rest = kept ? items.slice(kept).filter((item) => !seen.has(item.id)) : [];
    if (!rest.length) this.cursor = page.next_cursor;
    this.draw([...page.items, ...rest]);
  }

  async next() {
    if (this.loading || !this.cursor) return;
    const page = await this.load(this.cursor);
    if (!page) return;
    const { items } = this.timeline;
    const seen = new Set(items.map((item) => item.id));
    this.cursor = page.next_cursor;
    this.draw([...items, ...page.items.filter((item) => !seen.has(item.id))]);
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
      if (!list.value) this.person.first(page.unread_total);
      if (page.rebuilding) setTimeout(() => this.person.run(() => this.arrived()), REBUILDING_PAUSE);
      return page;
    } finally {
      if (mine === this.loading) this.loading = null;
    }
  }

  draw(items) {
    const { part } = this;
    const chosen = [part.order, part.status, part.list].map((choice) => choice.selectedOptions[0].text);
    part.chosen.textContent = chosen.join(" · ");
    this.timeline.ranked = part.order.value === "ranked";
    this.timeline.show(items);
    const empty = items.length === 0 && !this.cursor;
    this.empty = empty && part.status.value === "all" && !part.list.value;
    const none = this.empty ? "" : part.status.value === "unread" ? "Nothing is unread." : "No posts yet.";
    this.more(this.cursor, empty ? none : "You have seen everything.");
    this.authors();
    this.newcomer();
  }

  /** Offers something to a person whose feed is empty. */
  newcomer() {
    const { person, part, empty } = this;
    const { page } = person;
    const others = page.people.filter((other) => other !== person && other.id).map(({ id, name }) => ({ id, name }));
    const offers = empty ? [{ others: person.counters.followings ? [] : others, sample: page.sample !== null }] : [];
    show(part.newcomer, offers, () => "offer", ({ others: beside, sample }) => h("div", {},
      h("p", {}, "Posts of the people you follow appear here."),
      h("p", { class: "row" },
        sample && button("Fill with sample people", () => person.run(() => page.sample()), { class: "primary" }),
        ...beside.map(({ id, name }) => act(person, `Follow ${name}`, `Follow ${name}`, `You follow ${name}.`, () => person.api.put(`/v1/following/${id}`))),
        person.link("people", { class: "button" }, "Find people"))));
  }

  /** Reads who has unread posts, if the person's own counts are those of more authors than the chosen list. */
  async counts() {
    const list = this.part.list.value;
    const mine = (this.counting = {});
    const unread = list ? (await this.api.get(`/v1/unread?list=${list}`)).authors : this.person.unread;
    if (mine !== this.counting) return;
    this.unread = unread;
    this.authors();
  }

  /** Shows who has unread posts: a few, or many in a box that scrolls. */
  authors() {
    const { person, part, unread, all } = this;
    const count = part.list.value ? unread.reduce((sum, one) => sum + one.unread, 0) : person.total;
    part.readAll.ariaDisabled = String(!count || !this.shown());
    const named = unread.slice(0, all ? MANY : FEW).map((one) => ({ ...one, name: person.named(one.author) }));
    const rest = unread.length - named.length;
    const more = unread.length > FEW ? [{ author: "more", all, rest }] : [];
    part.authors.classList.toggle("all", all);
    show(part.authors, [...named, ...more], (one) => one.author, ({ author, name, unread: posts, rest: others }) => author === "more"
      ? h("li", {}, button(all ? "Fewer" : `${others} more`, () => this.flip(), { class: "quiet", "aria-expanded": String(all) }))
      : h("li", {}, person.link(`authors/${author}`, { class: "chip" }, h("span", { class: "short", dir: "auto" }, name), " ", h("span", { class: "count" }, String(posts)))));
  }

  flip() {
    this.all = !this.all;
    this.authors();
  }

  /** The time of the newest post of others that the page shows. */
  shown() {
    return this.timeline.items.filter((item) => item.author !== this.person.id).map((item) => item.created_at).toSorted().at(-1);
  }

  /** Marks what the page shows and what is older, of the chosen list: a post that has arrived since stays unread. */
  async readAll() {
    const before = this.shown(), list = this.part.list.value;
    const changed = list ? await this.readList(list, before) : (await this.api.post("/v1/reads", { all: true, before })).changed;
    await this.person.changed(`${changed} marked read.`);
  }

  async readList(list, before) {
    let changed = 0, cursor = null;
    do {
      const query = new URLSearchParams({ status: "unread", limit: 100, profiles: false, list, ...(cursor && { cursor }) });
      const page = await this.api.get(`/v1/feed?${query}`);
      const posts = page.items.filter((item) => item.created_at <= before).map((item) => item.id);
      if (posts.length) changed += (await this.api.post("/v1/reads", { posts })).changed;
      cursor = page.next_cursor;
    } while (cursor);
    return changed;
  }

  async lists() {
    this.offer((await this.api.all("/v1/lists")).items);
  }

  /** Offers the lists as feeds. The feed of a list that is gone becomes everyone's. */
  offer(lists) {
    const { list: select } = this.part;
    const chosen = select.value;
    select.replaceChildren(...[{ id: "", name: "Everyone" }, ...lists].map(({ id, name }) => h("option", { value: id }, name)));
    select.value = chosen;
    if (select.value === chosen) return;
    select.value = "";
    select.dispatchEvent(new Event("change"));
  }
}
