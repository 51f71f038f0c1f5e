import { live, type LiveOptions, type WebSocketClass } from "./live.js";
import { Operations } from "./operations.js";
import { TidemarkProblem } from "./problem.js";
import { requestOf, type Schemas } from "./request.js";
import { RETRIES, withRetries, type Retries } from "./retry.js";

export type Token = string | (() => string | Promise<string>);

export interface Options {
  /** The address of the API without `/v1`. In a browser, the default is the address of the page. */
  baseUrl?: string;
  /** The address of live updates, if it is not `/v1/live` of the API. A deployment has the output `LiveUrl`. */
  liveUrl?: string;
  /** A token, or a function that returns one. The function is called for every attempt. */
  token?: Token;
  retries?: Partial<Retries>;
  /** The longest time of one attempt. */
  timeoutMs?: number;
  fetch?: (request: Request) => Promise<Response>;
  /** The class for `live()` where the platform has none, as Node 20: that of the package `ws`. */
  webSocket?: WebSocketClass;
}

/** A client of Tidemark for one user. Every method throws `TidemarkProblem` for a response other than the requested one. */
export class Tidemark extends Operations {
  readonly #baseUrl: string;
  readonly #options: Options;
  readonly #retries: Retries;

  constructor(options: Options = {}) {
    super();
    this.#baseUrl = (options.baseUrl ?? globalThis.location?.origin ?? "").replace(/\/+$/, "");
    this.#options = options;
    this.#retries = { ...RETRIES, ...options.retries };
  }

  /** What all other methods call: sends a request, whose query is `options`, and returns the body of the response. */
  async send<T>(method: string, path: string, options: object = {}, body?: unknown): Promise<T> {
    const request = requestOf(method, this.#baseUrl + path, options, body);
    const response = await withRetries(request, this.#retries, (attempt) => this.#attempt(attempt));
    if (!response.ok) throw await TidemarkProblem.of(response);
    return (response.status === 204 ? undefined : await response.json()) as T;
  }

  /** Tells the unread counts as they change, over a WebSocket that is opened again when it ends. Resolves after `signal`. */
  live(options: LiveOptions): Promise<void> {
    const unread = (signal: AbortSignal): Promise<Schemas["UnreadCounts"]> => this.unread({ signal });
    return live({ address: () => this.#liveAddress(), unread, webSocket: this.#options.webSocket }, options);
  }

  async #attempt(request: Request): Promise<Response> {
    const { fetch = globalThis.fetch, timeoutMs = 30_000 } = this.#options;
    const token = await this.#token();
    if (token !== undefined) request.headers.set("authorization", `Bearer ${token}`);
    return fetch(new Request(request, { signal: AbortSignal.any([request.signal, AbortSignal.timeout(timeoutMs)]) }));
  }

  async #liveAddress(): Promise<string> {
    const token = await this.#token();
    const url = this.#options.liveUrl ?? `${this.#baseUrl.replace(/^http/, "ws")}/v1/live`;
    return token === undefined ? url : `${url}?token=${encodeURIComponent(token)}`;
  }

  async #token(): Promise<string | undefined> {
    const { token } = this.#options;
    return typeof token === "function" ? token() : token;
  }
}
