import { retryAfter } from "./problem.js";

export interface Retries {
  /** The number of repetitions after the first attempt. 0 turns retries off. */
  limit: number;
  /** The first wait is a random time up to this. Each further wait has twice the range. */
  baseMs: number;
  /** The longest wait without `Retry-After`. */
  maxMs: number;
  /** A response with a longer `Retry-After` is not retried. */
  maxRetryAfterMs: number;
}

export const RETRIES: Retries = { limit: 4, baseMs: 200, maxMs: 10_000, maxRetryAfterMs: 60_000 };

/** Routes whose repetition without an idempotency key could make something twice, or change what came in between. */
const KEYED = new Set([
  "POST /v1/posts",
  "POST /v1/posts/{post}/comments",
  "POST /v1/notices",
  "PUT /v1/notices",
  "PUT /v1/notices/{notice}",
  "POST /v1/reads",
  "POST /v1/notices/reads",
  "POST /v1/lists",
  "PUT /v1/inbox/{group}/read",
  "POST /v1/inbox/reads",
]);
/** POST routes for which a repetition is harmless. */
const REPEATABLE = new Set(["/v1/following"]);
const KEY = "idempotency-key";

/** Gives such a request a key before its first attempt, unless the caller chose one. All attempts have the same key. */
export function addKey(path: string, request: Request): void {
  if (KEYED.has(`${request.method} ${path}`) && !request.headers.has(KEY)) {
    request.headers.set(KEY, randomKey());
  }
}

/** `crypto.randomUUID` exists only in secure contexts, which a page at `http://192.168.…` is not. */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Sends a request until it has a response that is final. `send` gets a new copy for each attempt. */
export async function withRetries(
  path: string,
  request: Request,
  retries: Retries,
  send: (request: Request) => Promise<Response>,
): Promise<Response> {
  const keyed = request.headers.has(KEY);
  const repeatable = request.method !== "POST" || keyed || REPEATABLE.has(path);
  for (let attempt = 0; ; attempt++) {
    const last = attempt >= retries.limit;
    let after: number | undefined;
    try {
      const response = await send(last ? request : request.clone());
      after = retryAfter(response);
      const retryable = isRetryable(response.status, repeatable, keyed);
      if (last || !retryable || (after ?? 0) * 1000 > retries.maxRetryAfterMs) return response;
      await response.body?.cancel();
    } catch (error) {
      if (last || !repeatable || request.signal.aborted) throw error;
    }
    const jitter = Math.random() * Math.min(retries.maxMs, retries.baseMs * 2 ** attempt);
    await sleep((after ?? 0) * 1000 + jitter, request.signal);
  }
}

/** A 429 has changed nothing. A 502, 503 or 504 may hide a change, as a lost response does. */
function isRetryable(status: number, repeatable: boolean, keyed: boolean): boolean {
  if (status === 429) return true;
  if (status === 409) return keyed && repeatable; // The first request with the key is still in flight.
  return repeatable && (status === 502 || status === 503 || status === 504);
}

export function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", abort);
      resolve();
    }, ms);
    if (signal.aborted) abort();
    else signal.addEventListener("abort", abort, { once: true });
  });
}
