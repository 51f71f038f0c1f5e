// One person: identity, counts, messages, and which screen is shown.

import { Api, wait } from "./api.js";
import { Author } from "./author.js";
import { Composer } from "./composer.js";
import { avatar, button, copy, h, messages, plural, show } from "./dom.js";
import { Feed } from "./feed.js";
import { Inbox } from "./inbox.js";
import { Live } from "./live.js";
import { Notices } from "./notices.js";
import { People } from "./people.js";
import { Post } from "./post.js";
import { Profile } from "./profile.js";

const IDENTIFY_EVERY = 60_000;
const MOST_COUNTED = 99;
/** Counters follow a change within seconds. */
const SETTLING = [0.2, 0.5, 1, 2, 4];

const STATES = { live: "Live", down: "Reconnecting…", refused: "Not live" };

export class Person {
  /**
   * `key` names the person in the page's address. `page` has the `people` of the page, and what concerns all of them:
   * `went(person)`, `changed()`, `settings()`, and `sample()` or null.
   */
  constructor({ base, live, token, key, page }) {
    const { root, part } = copy("person");
    Object.assign(this, { root, part, key, page, profiles: {}, reposts: new Map(), id: null, name: "…", total: null, unread: [] });
    Object.assign(this, { told: null, refused: false, lost: false, stopped: false });
    this.ready = new Promise((identified) => (this.identified = identified));
    this.alarm = messages(part.messages);
    this.panels = [...root.querySelectorAll("[data-screen]")];
    this.messages = Object.fromEntries(this.panels.map((panel) => {
      const place = h("div", { class: "messages" });
      panel.prepend(place);
      return [panel.dataset.screen, messages(place)];
    }));
    this.api = new Api(base, token, (text) => this.say(text));
    this.tabs();
    this.composer = new Composer(this);
    this.screens = {
      feed: new Feed(this),
      inbox: new Inbox(this),
      people: new People(this),
      notices: new Notices(this),
      profile: new Profile(this),
      authors: new Author(this),
      posts: new Post(this),
    };
    this.lead(root);
    // All at once: the first posts wait for neither the identity nor the live connection.
    this.run(() => this.screens.feed.refresh());
    this.identifying = this.run(() => this.identify());
    this.connect(live);
    // Messages do not tell the counters.
    this.timer = setInterval(() => document.hidden || this.lost || this.run(() => this.identify()), IDENTIFY_EVERY);
  }

  connect(live) {
    const { part, screens } = this;
    const url = new URL(live || `${this.api.base || location.origin}/v1/live`);
    url.protocol = url.protocol.replace("http", "ws");
    url.searchParams.set("token", this.api.token);
    this.live = new Live(url, {
      read: () => this.api.get("/v1/unread"),
      show: (unread) => this.show(unread),
      told: (message) => this.hear(message),
      inbox: ({ unread }) => this.acts(unread),
      notices: (message) => this.run(() => screens.notices.told(message)),
      state: (state) => this.become(state),
      failed: (problem) => this.failed(problem),
    });
    this.live.name(screens.notices.platform);
  }

  /** Sends no further request, and ends the live connection. */
  stop() {
    [this.stopped, this.settling] = [true, null];
    this.live.stop();
    clearInterval(this.timer);
    this.composer.delivery.stop();
    this.screens.notices.stop();
  }

  /** Runs an action of the person, and shows its problem on the screen where it began. Returns whether it succeeded. */
  async run(action) {
    if (this.stopped) return false;
    const place = this.messages[this.screen];
    try {
      await action();
      return true;
    } catch (error) {
      if (error.status === 401 || error.slug === "erased") this.refuse(error);
      else if (error.status === 0) this.unreachable(error);
      else {
        if (!error.title) console.error(error);
        place.problem(error);
      }
      return false;
    }
  }

  say(text) {
    if (text) this.messages[this.screen].say(text);
    else this.messages[this.screen].clear();
  }

  // Screens.

  get screen() {
    return (this.route ?? "feed").split("/")[0];
  }

  shows(screen) {
    return this.screen === screen;
  }

  /** A link to a screen of this person. */
  link(route, properties, ...children) {
    return h("a", { href: `#${this.key}=${route}`, ...properties }, ...children);
  }

  /** Lets links of the panel lead this person, and leave the other where it is. */
  lead(root) {
    root.addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#']");
      if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      this.go(link.hash.slice(`#${this.key}=`.length));
      if (["authors", "posts"].includes(this.screen)) this.panel().querySelector("button").focus({ preventScroll: true });
    });
  }

  /** Goes to a screen, as a step of the browser's history. */
  go(route) {
    this.enter(route);
    this.page.went(this);
  }

  panel() {
    return this.panels.find((panel) => panel.dataset.screen === this.screen);
  }

  /** Shows the screen of a route such as `inbox` or `authors/7/followers`. */
  enter(route) {
    const [screen, ...of] = route.split("/");
    if (!(screen in this.screens)) return this.enter("feed");
    if (route === this.route) return;
    this.places ??= new Map();
    this.places.set(this.route, [this.root.scrollTop, scrollY]);
    const [top, y] = this.places.get(route) ?? [0, Math.min(scrollY, this.root.offsetTop)];
    // A problem stays on its screen.
    this.messages[this.screen].forget();
    this.route = route;
    for (const panel of this.panels) panel.hidden = panel.dataset.screen !== screen;
    const tabs = [...this.part.tabs.children];
    const chosen = tabs.find((tab) => tab.dataset.screen === screen);
    for (const tab of tabs) {
      tab.ariaSelected = String(tab === chosen);
      tab.tabIndex = tab === (chosen ?? tabs[0]) ? 0 : -1;
    }
    this.root.scrollTop = top;
    scrollTo(0, y);
    this.run(async () => {
      await this.ready;
      if (this.route === route) await this.screens[screen].shown?.(...of);
    });
  }

  /** Tabs with the keys that people expect. */
  tabs() {
    const bar = this.part.tabs;
    for (const panel of this.panels.filter(({ dataset }) => dataset.tab)) {
      const { screen, tab: name } = panel.dataset, id = `tab-${this.key}-${screen}`;
      Object.assign(panel, { id: `${id}-panel`, role: "tabpanel" });
      panel.setAttribute("aria-labelledby", id);
      bar.append(h("button", { type: "button", role: "tab", id, "data-screen": screen, "aria-controls": panel.id, onclick: () => this.go(screen) }, name));
    }
    bar.addEventListener("keydown", (event) => {
      const tabs = [...bar.children], now = tabs.indexOf(event.target), last = tabs.length - 1;
      const next = { ArrowRight: now === last ? 0 : now + 1, ArrowLeft: now === 0 ? last : now - 1, Home: 0, End: last }[event.key];
      if (next === undefined) return;
      event.preventDefault();
      tabs[next].focus();
      tabs[next].click();
    });
    for (const back of this.root.querySelectorAll("[data-back]")) back.addEventListener("click", () => history.back());
  }

  /** Shows a number on a tab. */
  count(screen, count) {
    const tab = [...this.part.tabs.children].find(({ dataset }) => dataset.screen === screen);
    const { tab: name } = this.panels.find(({ dataset }) => dataset.screen === screen).dataset;
    tab.replaceChildren(name, ...(count ? [" ", h("span", { class: "count" }, count > MOST_COUNTED ? `${MOST_COUNTED}+` : String(count))] : []));
  }

  // Identity.

  learn(profiles = {}) {
    Object.assign(this.profiles, profiles);
  }

  named(id) {
    return this.profiles[id]?.name ?? `User ${id}`;
  }

  async identify() {
    const me = await this.api.get("/v1/me");
    const { id, profile, counters, private: isPrivate, inbox_unread: acts } = me;
    const name = profile?.name ?? `User ${id}`, { part } = this;
    Object.assign(this, { id, name, profile, counters });
    if (profile) this.learn({ [id]: profile });
    const who = [profile?.handle ? `@${profile.handle}` : `id ${id}`, isPrivate && "private"].filter(Boolean).join(" · ");
    const link = (list, text) => this.link(`authors/${id}/${list}`, {}, text);
    Object.assign(part.name, { textContent: name, title: name });
    part.who.textContent = who;
    show(part.about, [counters], () => "about", () => h("span", {},
      link("followers", plural(counters.followers, "follower")), " ", link("following", `${counters.followings} following`)));
    show(part.avatar, [{ name, picture: profile?.picture }], () => "avatar", (one) => avatar(one.name, one.picture));
    part.avatar.href = `#${this.key}=authors/${id}`;
    this.root.setAttribute("aria-label", name);
    this.screens.profile.identified(me);
    this.screens.inbox.counted(acts);
    this.identified();
    this.page.changed();
  }

  /** Reads the counters until they have followed a change, or for some seconds. */
  async settle() {
    const mine = (this.settling = {}), before = JSON.stringify(this.counters);
    for (const pause of SETTLING) {
      await wait(pause);
      if (mine !== this.settling) return;
      await this.identify();
      if (JSON.stringify(this.counters) !== before) return;
    }
  }

  /** The token is not accepted: nothing can be done as this person. */
  refuse(problem) {
    if (this.refused) return;
    this.refused = true;
    this.stop();
    const { part } = this;
    this.become("refused");
    part.name.textContent = "Nobody";
    part.who.textContent = "";
    part.about.replaceChildren();
    part.avatar.replaceChildren(avatar("?"));
    this.root.setAttribute("aria-label", "Nobody");
    this.root.classList.add("refused");
    part.refused.replaceChildren(h("h3", {}, problem.status === 401 ? "This token is not accepted" : problem.title),
      h("p", {}, problem.detail || problem.title), button("Open settings", () => this.page.settings(), { class: "primary" }));
    this.name = "Nobody";
    this.page.changed();
  }

  // Counts, and what others do.

  /** Reads the feed and the shown screen again. */
  async refresh() {
    const { feed } = this.screens, shown = this.screens[this.screen];
    await Promise.all([feed.arrived(), shown !== feed && shown.refresh?.()]);
  }

  /** The relations of the person changed: counts, feed and lists have to be read again. */
  async changed(text) {
    this.say(text);
    this.run(() => this.settle());
    const { feed } = this.screens, shown = this.screens[this.screen];
    await Promise.all([this.live.read(), this.identify(), feed.refresh(), shown !== feed && shown.refresh?.()]);
  }

  /** Shows a post as it is now on all screens. */
  patch(id, news) {
    for (const { timeline } of Object.values(this.screens)) timeline?.patch(id, news);
  }

  /** Shows counts that were read, and reads the feed if it may have changed. */
  async show({ total, authors }) {
    this.counts(total, authors);
    await this.identifying;
    if (this.id === null || this.lost) await this.run(() => this.identify());
    await this.screens.feed.arriving?.catch(() => {});
    const news = this.lost || this.disconnected || this.screens.feed.total !== this.total;
    if (this.lost) this.alarm.say("Tidemark is reachable again.");
    this.lost = this.disconnected = false;
    if (news) await this.run(() => this.refresh());
  }

  /** Shows the counts of a message and reads the feed. A message names one author, and others may have changed too. */
  hear({ total, author, unread, post }) {
    if (unread) this.told = { post, at: performance.now() };
    for (const other of this.page.people) other.composer.delivery.reached(this);
    this.changedCount(total, author, unread);
    if (this.unread.reduce((sum, one) => sum + one.unread, 0) !== total) this.live.read();
    this.run(() => this.screens.feed.arrived());
  }

  /** Others have done something: the inbox, and perhaps the counters, have changed. */
  acts(unread) {
    this.screens.inbox.counted(unread);
    if (this.shows("inbox")) this.run(() => this.screens.inbox.refresh());
    this.run(() => this.settle());
  }

  /** The first feed has the total before it is read with the authors. */
  first(total) {
    if (this.total === null) this.counts(total, []);
  }

  /** Shows the total, and the count of one author if it is known. */
  changedCount(total, author, unread) {
    const others = this.unread.filter((other) => other.author !== author);
    this.counts(total, unread ? [{ author, unread }, ...others] : others);
  }

  counts(total, authors) {
    if (total > this.total && this.total !== null) this.pulse();
    Object.assign(this, { total, unread: authors });
    this.part.badge.textContent = `${total} unread`;
    this.part.badge.classList.toggle("none", total === 0);
    this.page.changed();
    this.run(() => this.screens.feed.counts());
  }

  /** More is unread: the badge says so to whoever looks elsewhere. */
  pulse() {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (!calm) this.part.badge.animate([{ transform: "scale(1.3)" }, { transform: "none" }], { duration: 400, easing: "ease-out" });
  }

  /** The state of the live connection. While it was down, anything may have changed. */
  become(state) {
    if (state === "down") this.disconnected = true;
    Object.assign(this.part.live, { textContent: STATES[state] }).dataset.state = state;
  }

  /** The counts cannot be read. */
  failed(problem) {
    if ([401, 403].includes(problem.status)) return this.refuse(problem);
    if (!this.lost) this.alarm.problem(problem);
    this.lost = true;
  }

  /** An action got no response. The live connection begins anew, and finds out when the API responds again. */
  unreachable(problem) {
    this.alarm.problem(problem);
    this.lost = true;
    this.live?.end?.();
  }
}
