import type { components } from "./schema.js";

export interface Page<Item> {
  items: Item[];
  next_cursor: string | null;
  profiles?: components["schemas"]["Profiles"];
}

/** The beginning of a page. A cursor takes the place of an offset. */
type Start = { cursor?: string; offset?: undefined };

/** The profiles that a list keeps at most. A page has fewer. */
const KEPT = 10_000;

/**
 * A list. `for await` gives its items, and requests a page when the loop reaches it. Each loop begins at the first page
 * again.
 */
export class Pager<P extends Page<unknown>> implements AsyncIterable<P["items"][number]> {
  readonly #load: (start: Start) => Promise<P>;
  readonly #profiles = new Map<string, components["schemas"]["Card"]>();

  constructor(load: (start: Start) => Promise<P>) {
    this.#load = load;
  }

  /** The profiles of the users on the pages that were requested, by user id: the 10,000 that were seen last. */
  get profiles(): ReadonlyMap<string, components["schemas"]["Card"]> {
    return this.#profiles;
  }

  /** The name of a user on the pages that were requested, or the id of a user without a profile. */
  name(user: string): string {
    return this.#profiles.get(user)?.name ?? user;
  }

  /** The first page, with what it has besides items: `unread_total`, `next_cursor`, `first_cursor`. */
  async page(): Promise<P> {
    return this.#request({});
  }

  /** The pages, one after another. */
  async *pages(): AsyncGenerator<P, void, undefined> {
    for (let page = await this.page(); ; page = await this.#request({ cursor: page.next_cursor, offset: undefined })) {
      yield page;
      if (page.next_cursor === null) return;
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<P["items"][number], void, undefined> {
    for await (const page of this.pages()) yield* page.items as P["items"][number][];
  }

  /** The first items, all of them without a limit. */
  async take(limit = Infinity): Promise<P["items"][number][]> {
    const items: P["items"][number][] = [];
    if (limit <= 0) return items;
    for await (const item of this) {
      items.push(item);
      if (items.length >= limit) break;
    }
    return items;
  }

  async #request(start: Start): Promise<P> {
    const page = await this.#load(start);
    for (const [user, profile] of Object.entries(page.profiles ?? {})) {
      this.#profiles.delete(user);
      this.#profiles.set(user, profile);
    }
    for (const user of this.#profiles.keys()) {
      if (this.#profiles.size <= KEPT) break;
      this.#profiles.delete(user);
    }
    return page;
  }
}
