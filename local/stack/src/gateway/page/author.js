// The screen of an author: who that is, posts, followers, and followed authors.

import { avatar, endless, h, menu, plural, show } from "./dom.js";
import { block, entries, follow, mute, name } from "./relations.js";
import { Timeline } from "./timeline.js";

const PAGE = 20;

/** What the screen lists, and where the API has it. */
const LISTS = {
  posts: { path: (id) => `/v1/authors/${id}/posts`, parameters: { include: "body" } },
  followers: { path: (id) => `/v1/users/${id}/followers`, parameters: { relation: "true" } },
  following: { path: (id) => `/v1/users/${id}/following`, parameters: { relation: "true" } },
};

export class Author {
  constructor(person) {
    const { part, api } = person;
    Object.assign(this, { person, part, api, user: null, id: null, kind: "posts", items: [], cursor: null, loading: null, closed: null });
    this.timeline = new Timeline(person, part.timeline);
    this.more = endless(part.moreOfAuthor, () => person.run(() => this.next()));
  }

  /** Shows an author's posts, or `followers` or `following`. */
  async shown(id, kind = "posts") {
    const same = id === this.user?.id;
    Object.assign(this, { id, kind, items: [], cursor: null, loading: {}, closed: null });
    if (!same) this.user = null;
    this.draw();
    // The lists of the author that is shown need no further request.
    await Promise.all([same || this.identify(), this.load()]);
  }

  async refresh() {
    this.cursor = null;
    await Promise.all([this.identify(), this.load()]);
  }

  async identify() {
    const { id } = this;
    const user = await this.api.get(`/v1/users/${id}`);
    if (id !== this.id) return;
    this.person.learn({ ...user.profiles, ...(user.profile && { [id]: user.profile }) });
    this.user = user;
    this.draw();
  }

  /** Reads the first page, or that at the cursor. */
  async load() {
    const { path, parameters } = LISTS[this.kind];
    const query = new URLSearchParams({ limit: PAGE, ...parameters, ...(this.cursor && { cursor: this.cursor }) });
    const mine = (this.loading = {}), before = this.cursor ? this.items : [];
    try {
      const page = await this.api.get(`${path(this.id)}?${query}`);
      if (mine !== this.loading) return;
      [this.loading, this.closed] = [null, null];
      this.person.learn(page.profiles);
      const key = (item) => item.id ?? item.user, seen = new Set(before.map(key));
      this.items = [...before, ...page.items.filter((item) => !seen.has(key(item)))];
      this.cursor = page.next_cursor;
      this.draw();
    } catch (problem) {
      if (mine !== this.loading) return;
      [this.loading, this.items, this.cursor] = [null, [], null];
      // The author is private, or one of the two blocks the other.
      if (problem.status !== 403) throw problem;
      this.closed = problem.detail;
      this.draw();
    }
  }

  async next() {
    if (!this.loading && this.cursor) await this.load();
  }

  draw() {
    const { part, person, user, id, kind, items } = this;
    show(part.author, user ? [{ user, profiles: user.known_followers.users.map((one) => person.named(one)) }] : [], () => id, () => this.card(user));
    const counters = user?.counters;
    const links = [["posts", plural(counters?.posts ?? 0, "post")], ["followers", plural(counters?.followers ?? 0, "follower")],
      ["following", `${counters?.followings ?? 0} following`]].map(([list, text]) => ({ list, text, current: list === kind }));
    show(part.listsOfAuthor, user ? links : [], (one) => one.list, ({ list, text, current }) =>
      person.link(`authors/${id}/${list}`, { class: "button", "aria-current": current && "true" }, text));
    part.timeline.hidden = kind !== "posts";
    part.relations.hidden = kind === "posts";
    if (kind === "posts") this.timeline.show(items);
    else entries(person, part.relations, items);
    this.more(this.cursor, items.length || this.loading ? "" : (this.closed ?? "None yet."));
  }

  card({ id, profile, relation, known_followers: known, private: isPrivate }) {
    const { person } = this;
    const own = id === person.id, named = person.named(id);
    const facts = [profile?.handle && `@${profile.handle}`, `id ${id}`, isPrivate && "private", relation.followed_by && "follows you",
      relation.muted && "muted", relation.blocked && "blocked"].filter(Boolean);
    const others = known.count - known.users.length;
    const knownBy = known.users.flatMap((user) => [" ", name(person, user)]);
    return h("div", {},
      h("div", { class: "card" }, avatar(named, profile?.picture),
        h("div", { class: "grow" }, h("h3", { dir: "auto", tabindex: "-1", class: "short", title: named }, named), h("p", { class: "hint" }, facts.join(" · "))),
        own ? person.link("profile", { class: "button" }, "Edit profile") : h("p", { class: "row" }, !relation.blocked && follow(person, id, relation),
          menu(`More about ${named}`, mute(person, id), block(person, id)))),
      profile?.bio && h("p", { class: "text", dir: "auto" }, profile.bio),
      known.count > 0 && h("p", { class: "hint" }, "Followed by", ...knownBy, others > 0 && ` and ${plural(others, "other")} whom you follow`));
  }
}
