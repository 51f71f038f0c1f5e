import createFetchClient, { type Client, type FetchOptions } from "openapi-fetch";
import type { FilterKeys, PathsWithMethod, RequiredKeysOf, ResponseObjectMap, SuccessResponse } from "openapi-typescript-helpers";

import { live, type LiveOptions } from "./live.js";
import { Pager, type Page } from "./pager.js";
import { TidemarkProblem } from "./problem.js";
import { RETRIES, addKey, withRetries, type Retries } from "./retry.js";
import type { components, paths } from "./schema.js";

export type Schemas = components["schemas"];
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
}

type Method = "get" | "put" | "post" | "delete";
type PathOf<M extends Method> = PathsWithMethod<paths, M>;
type Init<M extends Method, P extends PathOf<M>> = FetchOptions<FilterKeys<paths[P], M>>;
type InitArgument<M extends Method, P extends PathOf<M>> =
  RequiredKeysOf<Init<M, P>> extends never ? [init?: Init<M, P>] : [init: Init<M, P>];
type Success<T> = T extends Record<string | number, unknown> ? SuccessResponse<ResponseObjectMap<T>, "application/json"> : never;
/** The body of a successful response; undefined for a 204. */
export type ResponseBody<M extends Method, P extends PathOf<M>> = [Success<paths[P][M]>] extends [never] ? undefined : Success<paths[P][M]>;
/** The paths of lists. */
export type ListPath = { [P in PathOf<"get">]: ResponseBody<"get", P> extends Page<unknown> ? P : never }[PathOf<"get">];
type PageOf<P extends ListPath> = Extract<ResponseBody<"get", P>, Page<unknown>>;
type Query<P extends PathOf<"get">> = NonNullable<paths[P]["get"]["parameters"]["query"]>;

/** A client of Tidemark for one user. Every method throws `TidemarkProblem` for a response other than the requested one. */
export class Tidemark {
  readonly #http: Client<paths>;
  readonly #liveAddress: () => Promise<string>;

  constructor(options: Options = {}) {
    const retries = { ...RETRIES, ...options.retries };
    const send = options.fetch ?? ((request: Request) => globalThis.fetch(request));
    const timeoutMs = options.timeoutMs ?? 30_000;
    const attempt = async (request: Request) => {
      const token = await currentToken(options);
      if (token !== undefined) request.headers.set("authorization", `Bearer ${token}`);
      return send(new Request(request, { signal: AbortSignal.any([request.signal, AbortSignal.timeout(timeoutMs)]) }));
    };
    const baseUrl = options.baseUrl ?? globalThis.location?.origin ?? "";
    this.#liveAddress = async () => {
      const token = await currentToken(options);
      const url = options.liveUrl ?? `${baseUrl.replace(/\/+$/, "").replace(/^http/, "ws")}/v1/live`;
      return token === undefined ? url : `${url}?token=${encodeURIComponent(token)}`;
    };
    this.#http = createFetchClient<paths>({ baseUrl });
    this.#http.use({
      onRequest: async ({ request, schemaPath }) => {
        addKey(schemaPath, request);
        const response = await withRetries(schemaPath, request, retries, attempt);
        if (!response.ok) throw await TidemarkProblem.of(response);
        return response;
      },
    });
  }

  get<P extends PathOf<"get">>(path: P, ...init: InitArgument<"get", P>): Promise<ResponseBody<"get", P>> {
    return this.#call("get", path, init);
  }

  put<P extends PathOf<"put">>(path: P, ...init: InitArgument<"put", P>): Promise<ResponseBody<"put", P>> {
    return this.#call("put", path, init);
  }

  post<P extends PathOf<"post">>(path: P, ...init: InitArgument<"post", P>): Promise<ResponseBody<"post", P>> {
    return this.#call("post", path, init);
  }

  delete<P extends PathOf<"delete">>(path: P, ...init: InitArgument<"delete", P>): Promise<ResponseBody<"delete", P>> {
    return this.#call("delete", path, init);
  }

  /** All items of a list: `for await (const entry of tidemark.walk("/v1/mutes")) …`. */
  walk<P extends ListPath>(path: P, ...init: InitArgument<"get", P>): Pager<PageOf<P>> {
    const given = (init[0] ?? {}) as { params?: { query?: object } };
    return new Pager((cursor) => {
      const query = { ...given.params?.query, ...(cursor !== undefined && { cursor }) };
      return this.#call("get", path, [{ ...given, params: { ...given.params, query } }]);
    });
  }

  follow(author: string, preference?: number): Promise<Schemas["Following"]> {
    const body = preference === undefined ? {} : { body: { preference } };
    return this.put("/v1/following/{author}", { params: { path: { author } }, ...body });
  }

  unfollow(author: string): Promise<Schemas["NotFollowing"]> {
    return this.delete("/v1/following/{author}", { params: { path: { author } } });
  }

  /** Publishes a post, once, however often the request is repeated. */
  publish(body: Schemas["PublishPostRequest"]): Promise<Schemas["PublishedPost"]> {
    return this.post("/v1/posts", { body });
  }

  /** Publishes a notice on each platform, once. Needs the scope `notices:write`. */
  publishNotices(body: Schemas["PublishNoticesRequest"]): Promise<Schemas["PublishedNotices"]> {
    return this.post("/v1/notices", { body });
  }

  feed(query: Query<"/v1/feed"> = {}): Pager<Schemas["FeedPage"]> {
    return this.walk("/v1/feed", { params: { query } });
  }

  posts(author: string, query: Query<"/v1/authors/{author}/posts"> = {}): Pager<Schemas["TimelinePage"]> {
    return this.walk("/v1/authors/{author}/posts", { params: { path: { author }, query } });
  }

  unread(): Promise<Schemas["UnreadCounts"]> {
    return this.get("/v1/unread");
  }

  markRead(body: Schemas["MarkReadRequest"]): Promise<Schemas["PostsMarked"]> {
    return this.post("/v1/reads", { body });
  }

  /** Tells the unread counts as they change, over a WebSocket that is opened again when it ends. Resolves after `signal`. */
  live(options: LiveOptions): Promise<void> {
    return live({ address: this.#liveAddress, unread: (signal) => this.get("/v1/unread", { signal }) }, options);
  }

  async #call<T>(method: Method, path: string, init: readonly unknown[]): Promise<T> {
    const request = this.#http.request as (method: Method, path: string, init?: unknown) => Promise<{ data?: unknown }>;
    return (await request(method, path, init[0])).data as T;
  }
}

async function currentToken({ token }: Options): Promise<string | undefined> {
  return typeof token === "function" ? token() : token;
}
