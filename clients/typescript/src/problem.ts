import type { components } from "./schema.js";

type Body = components["schemas"]["Problem"];

/** The slugs of responses that API Gateway makes itself. Their body is `{"message": …}`. */
const SLUGS: Record<number, string> = {
  304: "not-modified",
  401: "unauthorized",
  403: "forbidden",
  404: "not-found",
  413: "body-too-large",
  429: "too-many-requests",
  503: "unavailable",
};

/** A response other than the requested one: problem details (RFC 9457). */
export class TidemarkProblem extends Error {
  override readonly name = "TidemarkProblem";
  /** The kind of problem, a stable URI reference: `/problems/not-found`. */
  readonly type: string;
  /** The last segment of `type`: `not-found`. */
  readonly slug: string;
  readonly status: number;
  /** The kind in words. */
  readonly title: string;
  /** The cause in this case. */
  readonly detail: string;
  /** The same as in the log of the server. */
  readonly requestId: string;
  /** The invalid fields of the request. */
  readonly errors: readonly components["schemas"]["FieldError"][];
  /** `Retry-After` in seconds, if the response has it. */
  readonly retryAfter: number | undefined;

  constructor(response: Response, body: Partial<Body> & { message?: string }) {
    const slug = body.type?.split("/").at(-1) ?? SLUGS[response.status] ?? "internal";
    const detail = body.detail ?? body.message ?? response.statusText;
    super(`${response.status} ${slug}: ${detail}`);
    this.slug = slug;
    this.type = body.type ?? `/problems/${slug}`;
    this.status = response.status;
    this.title = body.title ?? response.statusText;
    this.detail = detail;
    this.requestId = body.request_id ?? response.headers.get("apigw-requestid") ?? "";
    this.errors = body.errors ?? [];
    this.retryAfter = retryAfter(response);
  }

  /** Reads the problem in a response, also if a proxy or API Gateway made it. */
  static async of(response: Response): Promise<TidemarkProblem> {
    const text = await response.text();
    try {
      const body: unknown = JSON.parse(text);
      return new TidemarkProblem(response, typeof body === "object" && body !== null ? body : {});
    } catch {
      return new TidemarkProblem(response, text ? { message: text } : {});
    }
  }
}

/** `Retry-After` in seconds. It is a number of seconds or a date. */
export function retryAfter(response: Response): number | undefined {
  const value = response.headers.get("retry-after");
  if (value === null) return undefined;
  const seconds = /^\d+$/.test(value) ? Number(value) : (Date.parse(value) - Date.now()) / 1000;
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
}
