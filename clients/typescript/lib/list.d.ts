/** Lists that are fetched page by page while they are read. */
export interface Page<T> {
    items: T[];
    next_cursor?: string | null;
}
/** `for await (const item of list)` reads all items; a page is fetched when it is needed. */
export declare class List<T> implements AsyncIterable<T> {
    private readonly fetchPage;
    constructor(fetchPage: (cursor?: string) => Promise<Page<T>>);
    [Symbol.asyncIterator](): AsyncGenerator<T>;
    /** Page by page. */
    pages(): AsyncGenerator<T[]>;
    /** The first `limit` items; default: all. */
    toArray(limit?: number): Promise<T[]>;
}
