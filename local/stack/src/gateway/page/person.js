// One person: identity, counts, and the tabs Feed, Inbox, People, Notices and Profile.

import { Api } from "./api.js";
import { avatar, copy, h, messages, plural, show } from "./dom.js";
import { Feed } from "./feed.js";
import { Inbox } from "./inbox.js";
import { Live } from "./live.js";
import { Notices } from "./notices.js";
import { People } from "./people.js";
import { watch } from "./poll.js";
import { Posts } from "./posts.js";

const COUNTERS_EVERY = 5000;

const STATES = { live: "Live", down: "Not live. Connecting again…", refused: "Not live" };

/** Tabs with the keys that people expect. Returns a function that puts a count on a tab. */
function tabs(root, bar) {
  const panels = [...root.querySelectorAll("[data-tab]")];
  const prefix = `tab-${crypto.getRandomValues(new Uint32Array(1))[0]}`;
  const choose = (chosen, focus) => panels.forEach((panel, index) => {
    const tab = bar.children[index];
    panel.hidden = index !== chosen;
    tab.ariaSelected = String(index === chosen);
    tab.tabIndex = index === chosen ? 0 : -1;
    if (focus && index === chosen) tab.focus();
    if (index === chosen) panel.dispatchEvent(new Event("shown"));
  });
  panels.forEach((panel, index) => {
    const [tab, name] = [`${prefix}-${index}`, panel.dataset.tab];
    Object.assign(panel, { id: `${tab}-panel`, role: "tabpanel" });
    panel.setAttribute("aria-labelledby", tab);
    const properties = { type: "button", role: "tab", id: tab, "aria-controls": panel.id, onclick: () => choose(index) };
    bar.append(h("button", properties, name));
  });
  bar.addEventListener("keydown", (event) => {
    const now = panels.findIndex((panel) => !panel.hidden), last = panels.length - 1;
    const next = { ArrowRight: now === last ? 0 : now + 1, ArrowLeft: now === 0 ? last : now - 1, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(next, true);
  });
  choose(0);
  return (name, count) => {
    const tab = bar.children[panels.findIndex((panel) => panel.dataset.tab === name)];
    tab.replaceChildren(name, ...(count ? [" ", h("span", { class: "count" }, String(count))] : []));
  };
}

export class Person {
  /**
   * `live` is the address of the WebSocket, if it is not that of the API. `counted` is called with the name and the unread
   * total whenever one of them changes.
   */
  constructor(base, live, token, counted) {
    const { root, part } = copy("person");
    Object.assign(this, { root, part, counted, profiles: {}, id: null, total: 0, unread: [] });
    this.message = messages(part.messages);
    this.api = new Api(base, token, this.message.say);
    this.count = tabs(root, part.tabs);
    this.posts = new Posts(this);
    this.inbox = new Inbox(this);
    this.parts = [new Feed(this), this.posts, this.inbox, new People(this), new Notices(this)];
    const url = new URL(live || `${this.api.base || location.origin}/v1/live`);
    url.protocol = url.protocol.replace("http", "ws");
    url.searchParams.set("token", token);
    this.live = new Live(url, {
      read: () => this.api.get("/v1/unread"),
      show: (unread) => this.show(unread),
      told: (message) => this.told(message),
      inbox: () => this.id !== null && this.run(() => this.inbox.refresh()),
      state: (state) => Object.assign(part.live, { textContent: STATES[state], className: state }),
      failed: (problem) => this.failed(problem),
    });
  }

  stop() {
    this.live.stop();
    this.counters?.stop();
    for (const part of this.parts) part.stop?.();
  }

  /** Calls a method of every tab that has it. */
  tell(what, ...rest) {
    return Promise.all(this.parts.map((part) => this.run(() => part[what]?.(...rest))));
  }

  /** Runs an action of the person, and shows its problem. Returns whether it succeeded. */
  async run(action) {
    try {
      await action();
      return true;
    } catch (error) {
      if (!error.title) console.error(error);
      this.message.problem(error);
      return false;
    }
  }

  /** The relations of the person changed: counts, feed and lists have to be read again. */
  async changed(text) {
    this.message.say(text);
    await Promise.all([this.live.read(), this.identify(), this.tell("refresh")]);
  }

  learn(profiles = {}) {
    Object.assign(this.profiles, profiles);
  }

  named(id) {
    return this.profiles[id]?.name ?? `User ${id}`;
  }

  async identify() {
    const { id } = await this.api.get("/v1/me");
    this.card(await this.api.get(`/v1/users/${id}`));
    // Counters follow a moment later, and others change them.
    this.counters ??= watch(this.api, `/v1/users/${id}`, COUNTERS_EVERY, (user) => this.card(user));
  }

  card({ id, profile, counters, private: isPrivate }) {
    const name = profile?.name ?? `User ${id}`;
    const who = [profile?.handle && `@${profile.handle}`, `id ${id}`, isPrivate && "private"].filter(Boolean).join(" · ");
    if (!this.part.private.disabled) this.part.private.checked = isPrivate;
    const counts = `${plural(counters.followers, "follower")} · ${counters.followings} following`;
    Object.assign(this, { id, name, profile });
    this.part.name.textContent = name;
    this.part.about.replaceChildren(h("span", {}, who), " ", h("span", {}, counts));
    show(this.part.avatar, [{ name, picture: profile?.picture }], () => "avatar", (one) => avatar(one.name, one.picture));
    this.root.setAttribute("aria-label", name);
    this.counted(name, this.total);
  }

  /** Shows counts that were read. Reads everything at the first and after a failure, and the feed if the total changed. */
  async show({ total, authors }) {
    const first = this.id === null || this.lost;
    const news = total !== this.total;
    this.counts(total, authors);
    if (first) await this.identify();
    if (this.lost) this.message.say("Tidemark is reachable again.");
    this.lost = false;
    if (first) await this.tell("refresh");
    else if (news) await this.tell("arrived");
  }

  /** Shows the counts of a message and reads the feed. A message names one author, and others may have changed too. */
  told({ total, author, unread }) {
    this.changedCount(total, author, unread);
    if (this.unread.reduce((sum, one) => sum + one.unread, 0) !== total) this.live.read();
    if (this.id !== null) this.tell("arrived");
  }

  /** Shows the total, and the count of one author if it is known. */
  changedCount(total, author, unread) {
    const others = this.unread.filter((other) => other.author !== author);
    this.counts(total, unread ? [{ author, unread }, ...others] : others);
  }

  counts(total, authors) {
    Object.assign(this, { total, unread: authors });
    this.part.badge.textContent = `${total} unread`;
    this.part.badge.classList.toggle("none", total === 0);
    this.counted(this.name ?? "…", total);
    this.tell("authors", authors);
  }

  failed(problem) {
    if (!this.lost) this.message.problem(problem);
    this.lost = true;
  }
}
