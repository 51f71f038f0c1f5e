export { Tidemark, type ResponseBody, type ListPath, type Options, type Schemas, type Token } from "./client.js";
export type { LiveOptions, Unread, UnreadChange } from "./live.js";
export { Pager, type Page } from "./pager.js";
export { TidemarkProblem } from "./problem.js";
export type { Retries } from "./retry.js";
export type { components, operations, paths } from "./schema.js";
