export interface Page<Item> {
  items: Item[];
  next_cursor: string | null;
}

/** All items of a list. It requests a page when the loop reaches it. Each loop begins at the first page again. */
export class Pager<P extends Page<unknown>> implements AsyncIterable<P["items"][number]> {
  readonly #load: (cursor: string | undefined) => Promise<P>;

  constructor(load: (cursor: string | undefined) => Promise<P>) {
    this.#load = load;
  }

  /** The pages, with what they have besides items: `unread_total`, `profiles`, `rebuilding`. */
  async *pages(): AsyncGenerator<P, void, undefined> {
    let cursor: string | undefined;
    do {
      const page = await this.#load(cursor);
      yield page;
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
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
}
