export { Tidemark, type Options, type Token } from "./client.js";
export type { LiveOptions, Unread, UnreadChange, WebSocketClass } from "./live.js";
export { Pager, type Page } from "./pager.js";
export { TidemarkProblem } from "./problem.js";
export type { Keyed, Query, Schemas, Sent } from "./request.js";
export type { Retries } from "./retry.js";
export type { components, operations, paths } from "./schema.js";
