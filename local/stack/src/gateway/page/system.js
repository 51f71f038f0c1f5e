// The state of the local stack: queues, streams, functions, weather. A deployment has none of these routes.

import { Problem, activity, connection, latencies, percentile } from "./api.js";
import { button, copy, h, messages, once, show } from "./dom.js";

/** The status of an idle system is read less and less often, until something happens. In milliseconds. */
const FASTEST = 1000;
const SLOWEST = 60_000;
const SLOWER = 8;
/** What Escape closes first. */
const ABOVE = "dialog[open], details.menu[open]";

const number = (value) => h("td", { class: value ? "number busy" : "number" }, String(value));
// A long name may break between its words.
const name = (text) => h("th", { scope: "row" }, text.replace(/(?<=[a-z])(?=[A-Z])/g, "\u200b"));

export class System {
  constructor(api) {
    const { root, part } = copy("system");
    Object.assign(this, { root, part, api, message: messages(part.messages), stopped: new AbortController(), pause: FASTEST, wake: () => {} });
    const seen = () => this.seen(), { signal } = this.stopped;
    for (const source of [activity, connection]) source.addEventListener("change", seen, { signal });
    document.addEventListener("visibilitychange", seen, { signal });
    this.opener = button("System", () => this.slide(root.hidden), { "aria-expanded": "false", "aria-controls": root.id });
    part.close.addEventListener("click", () => this.slide(false));
    document.addEventListener("keydown", ({ key }) => key === "Escape" && !document.querySelector(ABOVE) && this.slide(false), { signal });
    part.weather.addEventListener("change", () => this.run(async () => {
      const { weather } = await api.put("/_local/weather", { weather: part.weather.value });
      this.message.say(`The weather is ${weather}.`);
    }));
    part.reconcile.addEventListener("click", once(() => this.run(async () => {
      this.message.say("Reconcile runs…");
      const { looked_at: seen, differences } = await api.post("/_local/schedules/reconcile");
      this.message.say(`Reconcile looked at ${seen ?? "all"} and found ${differences?.length ?? "no"} differences.`);
    })));
    part.flush.addEventListener("click", once(() => this.run(async () => {
      await api.post("/_local/redis/flush");
      this.message.say("Redis is empty. Reads rebuild what they need.");
    })));
  }

  /** Whether the API is a local stack. */
  static async exists(api) {
    return api.get("/_local/status").then((status) => "idle" in status, () => false);
  }

  stop() {
    this.stopped.abort();
    this.wake();
    this.root.remove();
    this.opener.remove();
  }

  /** Opens or closes the drawer. */
  slide(open) {
    if (!open && this.root.contains(document.activeElement)) this.opener.focus();
    this.root.hidden = !open;
    this.opener.ariaExpanded = String(open);
    this.seen();
  }

  /** Something has happened, or the drawer may have become visible. */
  seen() {
    this.pause = FASTEST;
    this.wake();
  }

  async run(action) {
    await action().catch((error) => this.message.problem(error));
    await this.refresh();
  }

  /** Shows the status until `stop`, while the drawer is open. */
  async watch() {
    const { known, weather } = await this.api.get("/_local/weather");
    this.part.weather.replaceChildren(...known.map((one) => h("option", { value: one }, one)));
    this.part.weather.value = weather;
    while (!this.stopped.signal.aborted) {
      if (!document.hidden && !this.root.hidden) await this.refresh();
      await new Promise((done) => {
        const timer = setTimeout(done, this.pause);
        this.wake = () => (clearTimeout(timer), setTimeout(done, FASTEST / 4));
      });
      this.wake = () => {};
    }
  }

  async refresh() {
    try {
      // Not measured: these requests are not the API's.
      const response = await fetch(`${this.api.base}/_local/status`, { cache: "no-store" });
      if (!response.ok) throw await Problem.of(response);
      const status = await response.json();
      this.pause = status.idle ? Math.min(SLOWEST, this.pause * SLOWER) : FASTEST;
      this.show(status);
    } catch {
      this.part.state.textContent = "not reachable";
      this.part.state.className = "badge down";
    }
  }

  show(status) {
    const { part } = this;
    part.state.textContent = status.idle ? "idle" : "busy";
    part.state.className = status.idle ? "badge none" : "badge";
    if (document.activeElement !== part.weather) part.weather.value = status.weather;
    const rows = (list, entries, cells) =>
      show(list, Object.entries(entries), ([key]) => key, ([key, value]) => h("tr", {}, name(key), ...cells(value, key)));
    rows(part.queues, status.queues, (queue) => [number(queue.visible), number(queue.in_flight), number(queue.delayed)]);
    rows(part.streams, status.streams, (stream) => [number(stream.behind)]);
    const fed = Object.fromEntries(Object.entries(status.functions).filter(([, unit]) => unit.has_sources));
    rows(part.functions, fed, (unit, key) => [number(unit.in_flight), h("td", {}, this.switch(key, unit.paused))]);
    const ms = (share) => (latencies.last.length ? `${Math.round(percentile(share))} ms` : "–");
    [part.p50.textContent, part.p99.textContent, part.requests.textContent] = [ms(0.5), ms(0.99), String(latencies.count)];
    const places = {
      API: h("a", { href: `${this.api.base}/docs` }, "reference"),
      DynamoDB: status.dynamodb_endpoint,
      SQS: status.sqs_endpoint,
      Redis: status.redis_url,
    };
    show(part.places, Object.entries(places), ([key]) => key, ([key, place]) => h("div", {}, h("dt", {}, key), h("dd", {}, place)));
  }

  switch(key, paused) {
    const verb = paused ? "resume" : "pause";
    return button(paused ? "Resume" : "Pause", () => this.run(async () => {
      await this.api.post(`/_local/sources/${key}/${verb}`);
      this.message.say(paused ? `${key} goes on.` : `${key} is paused. Its work waits in its queues.`);
    }), { class: "quiet", "aria-label": `${paused ? "Resume" : "Pause"} ${key}` });
  }
}
