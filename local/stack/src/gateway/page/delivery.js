// A picture of how a post reaches its followers, below the form that has published it.

import { wait } from "./api.js";
import { button, h, show, svg } from "./dom.js";

/** Seconds. The longer a delivery takes, the less often the page asks. */
const FIRST_PAUSE = 0.2;
const LONGEST_PAUSE = 2;
const GROWTH = 1.3;
const MOST_SECONDS = 30;

const MOST_DOTS = 100;
const LONGEST_NAME = 24;
/** Units of the picture. */
const WIDTH = 320;
const DOTS_FROM = 88;
const LABEL = 22;

const STATES = {
  pending: "waits to be delivered",
  running: "is being delivered",
  done: "is delivered",
  cancelled: "was deleted before it was delivered",
};

const number = (count) => count.toLocaleString("en");
const followed = (count) => `${number(count)} follower${count === 1 ? "" : "s"}`;
const duration = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

/** How many followers a dot stands for: 1, 2, 5, 10, 20, … */
function perDot(followers) {
  const least = followers / MOST_DOTS, power = 10 ** Math.max(0, Math.floor(Math.log10(least)));
  return [1, 2, 5, 10].map((step) => step * power).find((size) => size >= least);
}

export class Delivery {
  constructor(person) {
    Object.assign(this, { person, place: person.part.delivery, post: null });
  }

  /** Asks no more, and removes the picture. */
  stop() {
    this.post = null;
    this.place.replaceChildren();
  }

  dismiss() {
    this.stop();
    this.person.part.posts.focus({ preventScroll: true });
  }

  /** Shows the delivery of a post that was sent at this `performance.now()`, in place of the one before. */
  async begin({ id, title, delivery }, sent) {
    this.post = { id, title, sent, reader: null, ...delivery };
    this.status = h("p", { role: "status", class: "grow" });
    this.again = button("Look again", () => this.watch(), { class: "quiet", hidden: true });
    const close = button("Dismiss", () => this.dismiss(), { class: "quiet", "aria-label": `Dismiss the delivery of “${title}”` });
    this.place.replaceChildren(h("div", { class: "delivery" }, h("div", { class: "row" }, this.status, this.again, close), this.paint()));
    this.draw();
    // The message may have come before the response to the publish.
    for (const other of this.person.page.people) this.reached(other);
    await this.watch();
  }

  /** Asks until the delivery has ended, but not longer than half a minute. */
  async watch() {
    const { post } = this;
    this.again.hidden = true;
    const ended = () => ["done", "cancelled"].includes(post.state);
    for (let pause = FIRST_PAUSE, waited = 0; !ended() && waited < MOST_SECONDS; pause = Math.min(LONGEST_PAUSE, pause * GROWTH)) {
      await wait(pause);
      if (post !== this.post) return;
      waited += pause;
      const gone = (problem) => (problem.status === 404 ? { state: "cancelled" } : {});
      Object.assign(post, await this.person.api.get(`/v1/posts/${post.id}/delivery`).catch(gone));
      if (post !== this.post) return;
      this.draw();
    }
    this.again.hidden = ended();
  }

  /** The live connection of a person has told of a post, perhaps of this one. */
  reached({ name, told }) {
    const { post } = this;
    if (!post || post.reader || told?.post !== post.id) return;
    post.reader = `\u2068${[...name].slice(0, LONGEST_NAME).join("")}\u2069, ${number(Math.round(told.at - post.sent))} ms`;
    this.draw();
  }

  /** The post and its followers, with room for the name of a reader. */
  paint() {
    const { followers } = this.post;
    if (!followers) return "";
    const count = Math.ceil(followers / perDot(followers)), gap = count > 30 ? 11 : 20;
    const columns = Math.floor((WIDTH - DOTS_FROM) / gap), rows = Math.ceil(count / columns), top = Math.max(0, 36 - rows * gap) / 2;
    const x = (index) => DOTS_FROM + ((index % columns) + 0.5) * gap, y = (index) => top + (Math.floor(index / columns) + 0.5) * gap;
    const middle = top + (rows * gap) / 2, height = 2 * top + rows * gap;
    const ways = Array.from({ length: rows }, (_, row) => y(row * columns));
    this.dots = Array.from({ length: count }, (_, index) => svg("circle", { cx: x(index), cy: y(index), r: gap * 0.34 }));
    // The first of the last row, with nothing between it and its name.
    this.dot = this.dots[(rows - 1) * columns];
    this.label = svg("text", { x: DOTS_FROM + 2, y: height + 15 });
    const labelled = this.person.page.people.length > 1 ? LABEL : 0;
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${height + labelled}`, role: "img" },
      ...ways.map((way) => svg("path", { class: "way", d: `M36 ${middle} C58 ${middle} 50 ${way} ${DOTS_FROM} ${way}` })),
      svg("rect", { x: 2, y: middle - 15, width: 34, height: 30, rx: 5 }),
      svg("path", { class: "lines", d: `M9 ${middle - 6}h20M9 ${middle}h20M9 ${middle + 6}h12` }),
      ...this.dots, this.label);
    return this.picture;
  }

  draw() {
    const { title, mode, state, delivered, followers, reader } = this.post;
    const pulled = mode === "pull" && state !== "cancelled", counts = this.counts(), does = pulled ? "is published" : STATES[state];
    // A screen reader says only what has changed.
    show(this.status, [{ does, counts }], () => "status", () =>
      h("span", {}, "“", h("bdi", {}, title), `” ${does}. `, h("span", { class: "hint" }, counts)));
    if (!followers) return;
    const filled = pulled ? 0 : state === "done" ? this.dots.length : Math.floor(delivered / perDot(followers));
    this.dots.forEach((dot, index) => dot.classList.toggle("full", index < filled));
    this.picture.classList.toggle("pulled", pulled);
    this.dot.classList.toggle("reached", reader !== null);
    this.label.textContent = reader ?? "";
    this.picture.setAttribute("aria-label", `“${title}”: ${counts}${reader ? ` ${reader}.` : ""}`);
  }

  counts() {
    const { mode, state, delivered, followers, started_at: started, finished_at: finished } = this.post;
    if (!followers) return "Nobody follows you yet.";
    const size = perDot(followers), dots = size > 1 ? ` A dot stands for ${number(size)}.` : "";
    if (mode === "pull") return `${followed(followers)}: readers fetch it when they read.${dots}`;
    const took = state === "done" ? ` in ${duration(Date.parse(finished) - Date.parse(started))}` : "";
    return `${number(delivered)} of ${followed(followers)}${took}.${dots}`;
  }
}
