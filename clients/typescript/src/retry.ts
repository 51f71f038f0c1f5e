import { retryAfter } from "./problem.js";
import { KEY } from "./request.js";

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

/** A POST without a key whose repetition is harmless. */
const REPEATABLE = "/v1/following";

/** Sends a request until it has a response that is final. `send` gets a new copy for each attempt. */
export async function withRetries(
  request: Request,
  retries: Retries,
  send: (request: Request) => Promise<Response>,
): Promise<Response> {
  const keyed = request.headers.has(KEY);
  const repeatable = request.method !== "POST" || keyed || new URL(request.url).pathname.endsWith(REPEATABLE);
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
