// Calls of the HTTP API: problems as errors, retries as Retry-After asks, latencies.

const LATENCIES = 100;
const ATTEMPTS = 5;
const LONGEST_WAIT = 30;

/** Reports whether the API responds: "ok", "degraded" (without Redis) or "down". */
export const connection = new EventTarget();
/** Reports that something has happened, so that what is shown of the system changes. */
export const activity = new EventTarget();
export const acted = () => activity.dispatchEvent(new Event("change"));
export const latencies = { last: [], count: 0 };
let state = "";

/** A response that is not what was asked for, in words for a person. */
export class Problem extends Error {
  constructor(title, detail, status, slug) {
    super(`${title}: ${detail}`);
    Object.assign(this, { title, detail, status, slug });
  }

  static async of(response) {
    const body = await response.json().catch(() => ({}));
    const title = body.title ?? body.message ?? body.error ?? `The server responded with ${response.status}`;
    const detail = body.errors?.map((error) => `${error.field} ${error.message}`).join("; ") ?? body.detail ?? "";
    const sentence = detail && `${detail[0].toUpperCase()}${detail.slice(1)}`;
    return new Problem(title, sentence, response.status, body.type?.split("/").pop());
  }
}

function report(next) {
  if (next === state) return;
  state = next;
  connection.dispatchEvent(new CustomEvent("change", { detail: next }));
}

function measure(started) {
  latencies.count += 1;
  latencies.last.push(performance.now() - started);
  if (latencies.last.length > LATENCIES) latencies.last.shift();
}

/** The latency in ms that the given share of the last calls did not exceed. */
export function percentile(share) {
  const sorted = latencies.last.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)];
}

export const wait = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

/** A header value of these UTF-8 bytes: `fetch` accepts only characters up to 255, and sends each as one byte. */
const utf8 = (text) => String.fromCharCode(...new TextEncoder().encode(text));

export class Api {
  /** `waiting` is told when a call waits before it is tried again. */
  constructor(base, token, waiting = () => {}) {
    Object.assign(this, { base: base.replace(/\/+$/, ""), token, waiting });
  }

  get = async (path) => (await this.call("GET", path)).data;
  put = async (path, body) => (await this.call("PUT", path, { body })).data;
  delete = async (path) => (await this.call("DELETE", path)).data;
  post = async (path, body, headers) => (await this.call("POST", path, { body, headers })).data;

  /** Sends a request and returns `{ status, data, etag }`. Throws a `Problem`. */
  async call(method, path, { body, headers = {}, token = this.token } = {}) {
    const repeatable = method !== "POST" || "Idempotency-Key" in headers;
    const request = { method, cache: "no-store", headers: { ...headers } };
    if (token) request.headers.Authorization = utf8(`Bearer ${token}`);
    if (body !== undefined) {
      request.headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(body);
    }
    for (let attempt = 1; ; attempt += 1) {
      const response = await this.send(path, request);
      if (response.ok || response.status === 304) {
        const text = await response.text();
        return { status: response.status, data: text ? JSON.parse(text) : null, etag: response.headers.get("ETag") };
      }
      const busy = response.status === 429 || (response.status === 503 && repeatable);
      if (!busy || attempt === ATTEMPTS) throw await Problem.of(response);
      const seconds = Math.min(LONGEST_WAIT, Number(response.headers.get("Retry-After")) || 1);
      this.waiting(`Tidemark is busy. The page tries again in ${seconds} s.`);
      await wait(seconds);
    }
  }

  async send(path, request) {
    const started = performance.now();
    try {
      const response = await fetch(this.base + path, request);
      measure(started);
      if (request.method !== "GET") acted();
      report(response.headers.get("Degraded") ? "degraded" : "ok");
      return response;
    } catch {
      report("down");
      const detail = `No response from ${this.base || location.origin}. The page keeps trying.`;
      throw new Problem("Tidemark is not reachable.", detail, 0, "unreachable");
    }
  }

  /** All items of a list's pages, and the profiles on them, up to `most` items. */
  async all(path, parameters = {}, most = 500) {
    const all = { items: [], profiles: {} };
    let cursor = null;
    do {
      const page = await this.get(`${path}?${new URLSearchParams({ limit: 100, ...parameters, ...(cursor && { cursor }) })}`);
      all.items.push(...page.items);
      Object.assign(all.profiles, page.profiles);
      cursor = page.next_cursor;
    } while (cursor && all.items.length < most);
    return all;
  }
}
