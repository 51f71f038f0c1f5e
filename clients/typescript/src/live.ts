import { TidemarkProblem } from "./problem.js";
import { sleep } from "./retry.js";
import type { components } from "./schema.js";

type UnreadCounts = components["schemas"]["UnreadCounts"];

/** A message of the server: the unread counts have changed. */
export interface UnreadChange {
  total: number;
  /** The author of `post`, and the unread posts of this author. All three are null if it is unknown. */
  author: string | null;
  unread: number | null;
  /** The post that changed last. */
  post: string | null;
  /** When the counts were read. */
  at: string;
}

/** The part of a `WebSocket` that `live` uses. */
export interface Socket {
  onopen: ((event: any) => void) | null;
  onmessage: ((event: any) => void) | null;
  onerror: ((event: any) => void) | null;
  onclose: ((event: any) => void) | null;
  send(data: string): void;
  close(): void;
}

export type WebSocketClass = new (address: string) => Socket;

interface CountChange {
  platform?: number;
  unread: number;
  at: string;
}

/** All counts, or a change of them. Both have `total`, and only all counts have `authors`. */
export type Unread = UnreadCounts | UnreadChange;

export interface LiveOptions {
  /** Gets all counts after each connect, and then each change. An error that it throws ends the updates. */
  onUnread: (unread: Unread) => void;
  /** Gets the number of unread groups of the inbox when it changes. */
  onInbox?: (unread: number) => void;
  /** At most ten platforms, for `onNotices`. */
  platforms?: readonly number[];
  /** Gets a platform and its number of unread notices when the number changes. A platform that begins with 0 is not told. */
  onNotices?: (platform: number, unread: number) => void;
  /** Gets true when changes begin to arrive, and false when the connection is lost. */
  onState?: (live: boolean) => void;
  /** Ends the updates. */
  signal?: AbortSignal;
  /** The time from a pong to the next ping. */
  pingMs?: number;
}

/** What a client provides. */
export interface Source {
  /** The address with a token, for each connection. */
  address: () => Promise<string>;
  unread: (signal: AbortSignal) => Promise<UnreadCounts>;
  webSocket: WebSocketClass | undefined;
}

const PING_MS = 60_000;
const LONGEST_ANSWER_MS = 10_000;
const LONGEST_WAIT_MS = 30_000;
/** Of so many refused pings, one reads the counts: while Redis is unavailable, each read is many reads of facts. */
const REFUSALS_PER_READ = 16;

/** Keeps a connection until the signal ends it, or until a response is a 401 or a 403, which is thrown. */
export async function live(source: Source, options: LiveOptions): Promise<void> {
  const webSocket = source.webSocket ?? (globalThis.WebSocket as WebSocketClass | undefined);
  if (!webSocket) {
    throw new TypeError(
      "live() needs a WebSocket, which this platform does not have. Use Node 22 or newer, or Node 20 with the option " +
        "--experimental-websocket, or pass the class of the package ws: new Tidemark({ webSocket: WebSocket }).",
    );
  }
  await new Live(source, webSocket, options).run();
}

/** A random time. Its range doubles with each failure. */
function wait(failures: number): number {
  return Math.random() * Math.min(LONGEST_WAIT_MS, 1000 * 2 ** failures);
}

class Live {
  readonly #source: Source;
  readonly #webSocket: WebSocketClass;
  readonly #options: LiveOptions;
  readonly #ping: string;
  readonly #signal: AbortSignal;
  #live = false;
  #newest = -Infinity;
  /** The time of the newest message about the inbox, and about each platform. */
  readonly #newestOf = new Map<number | undefined, number>();
  #changes = 0;

  constructor(source: Source, webSocket: WebSocketClass, options: LiveOptions) {
    this.#source = source;
    this.#webSocket = webSocket;
    this.#options = options;
    this.#ping = JSON.stringify({ type: "ping", platforms: options.platforms });
    this.#signal = options.signal ?? new AbortController().signal;
  }

  async run(): Promise<void> {
    for (let failures = 0; !this.#signal.aborted; failures++) {
      const began = Date.now();
      // A token that cannot be had now is a failed attempt.
      const address = await this.#source.address().catch(() => undefined);
      const opened = address !== undefined && (await this.#connection(address).finally(() => this.#become(false)));
      // A WebSocket does not tell why the handshake failed. The API does.
      const counts = opened ? undefined : await this.#counts();
      if (counts) this.#options.onUnread(counts);
      if (Date.now() - began > LONGEST_WAIT_MS) failures = 0;
      await sleep(wait(failures), this.#signal).catch(() => {});
    }
  }

  /** Opens a connection and waits until it has ended. Returns whether it was open. */
  #connection(address: string): Promise<boolean> {
    return new Promise((resolve, reject) => {
      const pingMs = this.#options.pingMs ?? PING_MS;
      const socket = new this.#webSocket(address);
      let timer: ReturnType<typeof setTimeout> | undefined;
      let [opened, ended, failures] = [false, false, 0];

      const later = (ms: number, action: () => void) => {
        clearTimeout(timer);
        if (!ended) timer = setTimeout(action, ms);
      };
      const end = () => {
        ended = true;
        clearTimeout(timer);
        this.#signal.removeEventListener("abort", end);
        socket.onopen = socket.onmessage = socket.onerror = socket.onclose = null;
        socket.close();
        resolve(opened);
      };
      const ping = () => {
        socket.send(this.#ping);
        later(Math.min(pingMs, LONGEST_ANSWER_MS), end);
      };
      /** A pong says that the connection is registered. After any other message, the ping is sent again soon. */
      const answered = async (pong: boolean) => {
        clearTimeout(timer);
        failures = pong ? 0 : failures + 1;
        if (pong ? !this.#live : failures % REFUSALS_PER_READ === 1) {
          const counts = await this.#counts();
          if (ended) return;
          if (!counts) return end();
          this.#options.onUnread(counts);
          this.#become(pong);
        }
        later(pong ? pingMs : wait(failures), ping);
      };

      socket.onopen = () => {
        opened = true;
        ping();
      };
      socket.onmessage = async ({ data }) => {
        try {
          const message = JSON.parse(data as string) as UnreadChange & { type?: string };
          if (message.type === "unread") this.#changed(message);
          else if (message.type === "inbox" || message.type === "notices") this.#countChanged(message as unknown as CountChange);
          else await answered(message.type === "pong");
        } catch (error) {
          reject(error);
          end();
        }
      };
      // Node 20 has no close event after a handshake that fails.
      socket.onerror = socket.onclose = end;
      this.#signal.addEventListener("abort", end, { once: true });
      later(LONGEST_ANSWER_MS, end);
      if (this.#signal.aborted) end();
    });
  }

  /** A number of unread groups of the inbox, or of unread notices of a platform. */
  #countChanged({ platform, unread, at }: CountChange): void {
    const time = Date.parse(at);
    if (time <= (this.#newestOf.get(platform) ?? -Infinity)) return;
    this.#newestOf.set(platform, time);
    if (platform === undefined) this.#options.onInbox?.(unread);
    else this.#options.onNotices?.(platform, unread);
  }

  /** A change with an earlier time than one before it is stale. */
  #changed({ total, author, unread, post, at }: UnreadChange): void {
    const time = Date.parse(at);
    if (time <= this.#newest) return;
    this.#newest = time;
    this.#changes++;
    this.#options.onUnread({ total, author, unread, post, at });
  }

  /** The counts, read again if a change came meanwhile, which may be newer. Undefined if they cannot be read now. */
  async #counts(): Promise<UnreadCounts | undefined> {
    try {
      for (;;) {
        const changes = this.#changes;
        const counts = await this.#source.unread(this.#signal);
        if (this.#signal.aborted) return undefined;
        if (changes === this.#changes) return counts;
      }
    } catch (error) {
      if (error instanceof TidemarkProblem && (error.status === 401 || error.status === 403)) throw error;
      return undefined;
    }
  }

  #become(live: boolean): void {
    if (live === this.#live) return;
    this.#live = live;
    this.#options.onState?.(live);
  }
}
