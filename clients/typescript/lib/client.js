import { sleep, Transport } from "./transport.js";
import { UserMemory } from "./user.js";
/**
 * A connection to the service. It keeps no state besides its settings and needs no closing.
 *
 * @example
 * const ada = new Recalld({ url: "http://127.0.0.1:8000" }).user("ada", { agent: "support" });
 */
export class Recalld {
    transport;
    /** @throws RecalldError `invalid_url` when `url` is no http(s) URL. */
    constructor(options = {}) {
        this.transport = new Transport(options);
    }
    /** Where the service is. */
    get url() {
        return this.transport.url;
    }
    /**
     * The memory of one user.
     *
     * @param user The user's id.
     * @param scope `agent`: what is added belongs to this agent and the user. Without it, every agent may know it.
     * @throws RecalldError `invalid_user` when `user` is empty or no text.
     */
    user(user, scope = {}) {
        return new UserMemory(this, user, scope.agent);
    }
    /**
     * Changes of records, the oldest first, without an end: what comes later is asked for again and again. Store the
     * `cursor` of each change, and a later call goes on where this one was.
     *
     * @param after The `cursor` of the last change that was dealt with, or "now"; default: the oldest one that is kept.
     * @param options `every`: milliseconds between two looks (1,000), null: end at the last change; `signal`; and what
     *   `GET /v1/changes` filters by.
     * @throws Problem `changes_lost` (410) when the service no longer keeps what came after the cursor.
     * @example
     * for await (const change of memory.changes(cursor, { kind: "memory" })) cursor = change.cursor;
     */
    async *changes(after, { every = 1000, signal, ...filters } = {}) {
        for (;;) {
            const query = { ...filters, ...(after === undefined ? {} : { after }), format: "json" };
            const page = (await this.transport.call("GET", "/v1/changes", {
                query,
                ...(signal ? { signal } : {}),
            }));
            yield* page.items;
            after = page.cursor;
            if (page.next_cursor == null) {
                if (every === null)
                    return;
                await sleep(every, signal);
            }
        }
    }
    /**
     * Any operation of the API, typed by its path.
     *
     * @param method HTTP method.
     * @param path Path as in the OpenAPI document, with `{names}`.
     * @param options `path`, `query` and `body` of the operation; `signal`, `timeout`, `retries`, `idempotencyKey`,
     *   `ifMatch`.
     * @returns The answer's JSON, or its text; undefined where it has no content.
     * @throws Problem when the service refuses, Unreachable when no answer comes.
     * @example
     * const task = await memory.request("POST", "/v1/tasks", { body: { agent_id: "support", goal: "Refund" } });
     */
    async request(method, path, ...options) {
        const [call] = options;
        const answer = await this.transport.call(method, path, call);
        return answer;
    }
}
