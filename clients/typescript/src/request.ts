import type { components, operations } from "./schema.js";

export type Schemas = components["schemas"];

/** Options of every request. */
export interface Sent {
  /** Ends the request, and the wait before a retry. */
  signal?: AbortSignal;
}

/** Options of a request that is done once, however often it is repeated. */
export interface Keyed extends Sent {
  /** A key of your own, to continue after your own process has ended. Otherwise each call has a new one. */
  idempotencyKey?: string;
}

/** The query of an operation without the parameters that its method takes one by one. */
export type Query<O extends keyof operations, First extends string = never> = Omit<
  NonNullable<operations[O]["parameters"]["query"]>,
  First
>;

export const KEY = "idempotency-key";

/** The options with a key, which all attempts have in common. */
export function withKey<O extends Keyed>(options: O): O & { idempotencyKey: string } {
  return { ...options, idempotencyKey: options.idempotencyKey ?? randomKey() };
}

/** `crypto.randomUUID` exists only in secure contexts, which a page at `http://192.168.…` is not. */
function randomKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The request. What is left of the options is its query. */
export function requestOf(method: string, url: string, options: Keyed, body: unknown): Request {
  const { signal, idempotencyKey, ...query } = options;
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query as Record<string, unknown>)) {
    for (const one of [value].flat()) if (one !== undefined) search.append(name, String(one));
  }
  const headers = new Headers();
  if (idempotencyKey !== undefined) headers.set(KEY, idempotencyKey);
  if (body !== undefined) headers.set("content-type", "application/json");
  return new Request(search.size ? `${url}?${search}` : url, {
    method,
    headers,
    ...(signal && { signal }),
    ...(body !== undefined && { body: JSON.stringify(body) }),
  });
}
