// Live counts: one WebSocket, which is pinged, and opened again when it ends. docs/live.md describes the messages.

import { acted, wait } from "./api.js";

const PING_EVERY = 60_000;
const ANSWER_WITHIN = 10_000;
const LONGEST_PAUSE = 10_000;
// Of so many refused pings, one reads the counts.
const REFUSALS_PER_READ = 16;

const pause = (failures) => Math.random() * Math.min(LONGEST_PAUSE, 1000 * 2 ** failures);

export class Live {
  /**
   * Keeps a connection to `url` until `stop`. It calls these functions:
   * - `read()` returns the counts, and `show(counts)` shows them: at the start of each connection, and when it failed.
   * - `told(message)` shows the counts of a message that is newer than all before.
   * - `inbox(message)` shows the number of unread groups of the inbox.
   * - `notices(message)` shows the number of unread notices of the platform that `name` has named.
   * - `state("live" | "down" | "refused")` when that changes.
   * - `failed(problem)` when `read` or `show` fails. A 401 or 403 ends everything.
   */
  constructor(url, on) {
    Object.assign(this, { url, on, state: null, newest: 0, reading: null, stopped: false, platform: null, ping: () => {} });
    /** Grows with each message and each wish to read. Counts that were requested before it grew may be stale. */
    this.heard = 0;
    this.run();
  }

  stop() {
    this.stopped = true;
    this.end?.();
  }

  /** Names the platform whose unread notices are told. */
  name(platform) {
    this.platform = platform;
    this.ping();
  }

  async run() {
    for (let failures = 0; !this.stopped; failures += 1) {
      const began = Date.now();
      const answered = await this.connection();
      if (!this.stopped) this.become("down");
      // A browser does not tell why a handshake failed. The API does.
      if (!answered && !this.stopped) await this.read();
      if (Date.now() - began > LONGEST_PAUSE) failures = 0;
      if (!this.stopped) await wait(pause(failures) / 1000);
    }
  }

  /** Opens a connection and waits until it has ended. Returns whether a ping was answered. */
  connection() {
    return new Promise((done) => {
      const socket = new WebSocket(this.url);
      let timer, answers = 0, failures = 0;
      const later = (time, action) => (clearTimeout(timer), (timer = setTimeout(action, time)));
      const ping = () => {
        socket.send(JSON.stringify({ type: "ping", ...(this.platform && { platforms: [this.platform] }) }));
        later(ANSWER_WITHIN, this.end);
      };
      const answered = async (live) => {
        answers += 1;
        failures = live ? 0 : failures + 1;
        later(live ? PING_EVERY : pause(failures), ping);
        if (live ? this.state === "live" : failures % REFUSALS_PER_READ !== 1) return;
        const read = await this.read();
        if (read && socket.readyState === WebSocket.OPEN) this.become(live ? "live" : "down");
      };
      this.ping = () => socket.readyState === WebSocket.OPEN && ping();
      this.end = () => {
        clearTimeout(timer);
        Object.assign(socket, { onopen: null, onmessage: null, onclose: null });
        socket.close();
        done(answers > 0);
      };
      socket.onopen = ping;
      socket.onclose = this.end;
      socket.onmessage = ({ data }) => {
        const message = JSON.parse(data);
        if (message.type === "unread") this.receive(message);
        else if (["inbox", "notices"].includes(message.type)) this.on[message.type](message);
        else {
          // The token does not list the platform. A ping that names it renews nothing.
          if (message.error === "forbidden") this.platform = null;
          answered(message.type === "pong");
        }
      };
      later(ANSWER_WITHIN, this.end);
    });
  }

  receive(message) {
    const at = Date.parse(message.at);
    if (at <= this.newest) return;
    this.newest = at;
    this.heard += 1;
    acted();
    this.on.told(message);
  }

  become(state) {
    if (state === this.state) return;
    this.state = state;
    this.on.state(state);
  }

  /** Reads the counts and shows them. Returns whether that succeeded. If not, the connection begins anew. */
  async read() {
    this.heard += 1;
    try {
      await (this.reading ??= this.latest());
      return true;
    } catch (problem) {
      if (this.stopped) return false;
      this.on.failed(problem);
      if ([401, 403].includes(problem.status)) {
        this.become("refused");
        this.stop();
      }
      this.end();
      return false;
    }
  }

  async latest() {
    let heard, counts;
    try {
      do {
        heard = this.heard;
        counts = await this.on.read();
      } while (heard !== this.heard);
    } finally {
      this.reading = null;
    }
    if (!this.stopped) await this.on.show(counts);
  }
}
