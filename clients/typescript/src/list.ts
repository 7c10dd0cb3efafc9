/** Lists that are fetched page by page while they are read. */
export interface Page<T> {
  items: T[];
  next_cursor?: string | null;
}

/** `for await (const item of list)` reads all items; a page is fetched when it is needed. */
export class List<T> implements AsyncIterable<T> {
  constructor(private readonly fetchPage: (cursor?: string) => Promise<Page<T>>) {}

  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    for await (const page of this.pages()) yield* page;
  }

  /** Page by page. */
  async *pages(): AsyncGenerator<T[]> {
    let cursor: string | undefined;
    do {
      const page = await this.fetchPage(cursor);
      yield page.items;
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
  }

  /** The first `limit` items; default: all. */
  async toArray(limit = Infinity): Promise<T[]> {
    const items: T[] = [];
    if (limit <= 0) return items;
    for await (const item of this) {
      items.push(item);
      if (items.length >= limit) break;
    }
    return items;
  }
}
