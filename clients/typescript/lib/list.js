/** `for await (const item of list)` reads all items; a page is fetched when it is needed. */
export class List {
    fetchPage;
    constructor(fetchPage) {
        this.fetchPage = fetchPage;
    }
    async *[Symbol.asyncIterator]() {
        for await (const page of this.pages())
            yield* page;
    }
    /** Page by page. */
    async *pages() {
        let cursor;
        do {
            const page = await this.fetchPage(cursor);
            yield page.items;
            cursor = page.next_cursor ?? undefined;
        } while (cursor !== undefined);
    }
    /** The first `limit` items; default: all. */
    async toArray(limit = Infinity) {
        const items = [];
        if (limit <= 0)
            return items;
        for await (const item of this) {
            items.push(item);
            if (items.length >= limit)
                break;
        }
        return items;
    }
}
