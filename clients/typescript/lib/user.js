import { Problem, RecalldError } from "./errors.js";
import { List } from "./list.js";
import { randomId } from "./transport.js";
/** The memory of one user, and of one agent when it was named. `Recalld.user` makes it. */
export class UserMemory {
    client;
    user;
    agent;
    /** Statements with a subject, a predicate and an object, each with the time in which it is true. */
    facts;
    /** Markdown, text, HTML and PDF, whose passages are found like memories. */
    documents;
    /** Name, home, preferences: what is known of the user in fields. */
    profile;
    constructor(client, user, agent) {
        this.client = client;
        this.user = user;
        this.agent = agent;
        if (typeof user !== "string" || user.trim() === "") {
            throw new RecalldError("invalid_user", `A user needs an id, as user("ada"): ${JSON.stringify(user)} is none.`);
        }
        this.facts = new Facts(client, this.owner);
        this.documents = new Documents(client, this.owner);
        this.profile = new Profile(client, user);
    }
    /** `user_id`, and `agent_id` when an agent was named. */
    get owner() {
        return { user_id: this.user, ...(this.agent === undefined ? {} : { agent_id: this.agent }) };
    }
    async add(what, options = {}) {
        if (typeof what !== "string") {
            const { session, infer = true, ...rest } = options;
            if (session !== undefined)
                return { how: "stored", ...(await this.session(session).append(what, rest)) };
            const [{ metadata, ...more }, call] = split(rest);
            if (infer) {
                const body = { ...this.owner, messages: what, metadata: metadata ?? {} };
                try {
                    const found = await this.client.request("POST", "/v1/memories/extract", { body, ...call });
                    return { how: "operation_id" in found ? "extracting" : "extracted", ...found };
                }
                catch (error) {
                    if (!(error instanceof Problem) || error.code !== "llm_not_configured")
                        throw error;
                }
            }
            const conversation = this.session();
            const said = what.map((one) => ({ ...one, metadata: { ...metadata, ...one.metadata } }));
            const stored = await conversation.append(said, { ...more, ...call });
            await conversation.end();
            return { how: "stored", ...stored };
        }
        const [rest, call] = split(options);
        const body = { ...rest, ...this.owner, content: what };
        return this.client.request("POST", "/v1/memories", { body, ...call });
    }
    /**
     * The memories that matter for a query, best first.
     *
     * @param options `limit` (10), `min_score` (0 to 1), `mode`, filters.
     * @returns Each memory with its score: the probability, 0 to 1, that it helps.
     */
    async search(query, options = {}) {
        const [{ limit, ...rest }, call] = split(options);
        const body = { ...rest, ...(limit === undefined ? {} : { top_k: limit }), ...this.owner, query };
        const request = { body, ...call };
        return (await this.client.request("POST", "/v1/memories/search", request)).items;
    }
    /**
     * A block of text for the next prompt, within a token budget. Needs an agent.
     *
     * @returns `text` goes into the prompt; `messages`, `sections` and `tokens` say what it holds.
     * @throws TypeError when no agent was named.
     */
    context(query, options = {}) {
        if (this.agent === undefined) {
            throw new TypeError('context needs an agent: memory.user("ada", { agent: "support" })');
        }
        const [{ budget, ...body }, call] = split(options);
        const limit = budget === undefined ? {} : { token_budget: budget };
        const asked = { ...body, ...limit, user_id: this.user, agent_id: this.agent, query };
        return this.client.request("POST", "/v1/context", { body: asked, ...call });
    }
    /** One conversation. The first message creates it. Without an id it gets a new one. */
    session(id = randomId()) {
        return new Session(this, id);
    }
    /** The newest memories with exactly this user and agent, `limit` (20) at most; `memories` goes over all of them. */
    getAll({ limit = 20, ...filters } = {}) {
        return this.memories(filters).toArray(limit);
    }
    /** One memory as it is now. */
    get(memory) {
        return this.client.request("GET", "/v1/memories/{memory_id}", { path: { memory_id: idOf(memory) } });
    }
    /** Changes the fields that are given; null clears one. */
    update(memory, changes, options = {}) {
        const path = { memory_id: idOf(memory) };
        return this.client.request("PATCH", "/v1/memories/{memory_id}", { path, body: changes, ...options });
    }
    /** The user's memories, newest first, page by page; those with exactly this user and agent. */
    memories(filters = {}) {
        return new List((cursor) => this.client.request("GET", "/v1/memories", { query: { limit: 100, ...spelled(filters), ...this.owner, ...next(cursor) } }));
    }
    /** Plans, what is due and what ceases to hold, the soonest first, page by page. `until`: only what comes before. */
    upcoming(until) {
        const asked = until === undefined ? {} : { until };
        return new List((cursor) => this.client.request("GET", "/v1/upcoming", { query: { limit: 100, ...asked, ...this.owner, ...next(cursor) } }));
    }
    /**
     * Says which memories helped to answer, and which misled.
     *
     * @param memories Ids, or hits of a search.
     * @param query The question that they were found for.
     */
    async feedback(memories, helpful, query) {
        const asked = query === undefined ? {} : { query };
        const items = [memories].flat().map((one) => ({ memory_id: idOf(one), helpful, ...asked }));
        return (await this.client.request("POST", "/v1/memories/feedback", { body: { items } })).items;
    }
    async forget(what) {
        if (typeof what === "string" || "memory" in what || "memory_id" in what) {
            const path = { memory_id: idOf(what) };
            return await this.client.request("DELETE", "/v1/memories/{memory_id}", { path });
        }
        const { apply = false, ...policy } = what;
        return this.client.request("POST", "/v1/memories/forget", { body: { ...this.owner, policy, dry_run: !apply } });
    }
    /** Removes everything about the user, for all agents, and verifies it. It cannot be undone. */
    erase() {
        return this.client.request("DELETE", "/v1/users/{user_id}", { path: { user_id: this.user } });
    }
}
/** One conversation of a user. */
export class Session {
    memory;
    id;
    constructor(memory, id) {
        this.memory = memory;
        this.id = id;
    }
    /**
     * Appends messages in order, all or none. By default each user or assistant message becomes a memory, too.
     *
     * A session that has ended goes on.
     *
     * @param what A text is a message of the user.
     * @param options `reopen: false`: a session that has ended stays so.
     * @throws Problem `session_ended` then.
     */
    async append(what, { reopen = true, ...options } = {}) {
        const spoken = (one) => (typeof one === "string" ? { role: "user", content: one } : one);
        const messages = [what].flat().map(spoken);
        const [body, call] = split(options);
        const path = { session_id: this.id };
        const send = () => this.memory.client.request("POST", "/v1/sessions/{session_id}/messages", {
            path,
            body: { ...body, ...this.memory.owner, messages },
            ...call,
        });
        try {
            return await send();
        }
        catch (error) {
            if (!reopen || !(error instanceof Problem) || error.code !== "session_ended")
                throw error;
        }
        await this.memory.client.request("POST", "/v1/sessions/{session_id}/reopen", { path });
        return send();
    }
    /** Ends the conversation. A background operation learns from it. */
    end() {
        return this.memory.client.request("POST", "/v1/sessions/{session_id}/end", { path: { session_id: this.id } });
    }
    /** The messages, oldest first, page by page. */
    messages() {
        return new List((cursor) => this.memory.client.request("GET", "/v1/sessions/{session_id}/messages", {
            path: { session_id: this.id },
            query: { limit: 100, ...next(cursor) },
        }));
    }
    /** A block of text for the next prompt of this conversation; as `UserMemory.context`, with its last messages. */
    context(query, options = {}) {
        return this.memory.context(query, { ...options, session_id: this.id });
    }
}
/** The facts of a user. `for await (const fact of ada.facts)` reads those that are true now. */
export class Facts {
    client;
    owner;
    constructor(client, owner) {
        this.client = client;
        this.owner = owner;
    }
    /**
     * States a fact. Where there can be one object at a time, the fact before it ends.
     *
     * @example
     * await ada.facts.add("Ada", "lives in", "Boston", { valid_from: "2026-05-01T00:00:00Z" });
     */
    add(subject, predicate, object, options = {}) {
        const [body, call] = split(options);
        const stated = { ...body, ...this.owner, subject, predicate, object };
        return this.client.request("POST", "/v1/facts", { body: stated, ...call });
    }
    /** What was true at a time (`as_of`), or known at a time (`known_at`); default: now. */
    all(filters = {}) {
        return new List((cursor) => this.client.request("GET", "/v1/facts", { query: { limit: 100, ...spelled(filters), ...this.owner, ...next(cursor) } }));
    }
    [Symbol.asyncIterator]() {
        return this.all()[Symbol.asyncIterator]();
    }
    /** The facts that matter for a query, best first. */
    async search(query, { limit, ...filters } = {}) {
        const body = { ...filters, ...(limit === undefined ? {} : { top_k: limit }), ...this.owner, query };
        return (await this.client.request("POST", "/v1/facts/search", { body })).items;
    }
    /** Takes a fact back. It stays in the history. */
    retract(factId) {
        return this.client.request("POST", "/v1/facts/{fact_id}/retract", { path: { fact_id: factId } });
    }
}
/** The files of a user. `for await (const document of ada.documents)` reads the list, newest first. */
export class Documents {
    client;
    owner;
    constructor(client, owner) {
        this.client = client;
        this.owner = owner;
    }
    /**
     * Sends a file; the same name replaces it. The answer is the operation that reads the file.
     *
     * @example
     * const { document_id } = await ada.documents.add("manual.pdf", await readFile("manual.pdf"));
     */
    add(name, file, options = {}) {
        const [{ media_type, metadata }, call] = split(options);
        const query = { ...(metadata === undefined ? {} : spelled({ metadata })), ...this.owner, name };
        const mediaType = media_type === undefined ? {} : { mediaType: media_type };
        return this.client.request("POST", "/v1/documents", { query, file, ...mediaType, ...call });
    }
    /** A document: whether it was read, and how many passages it has. */
    get(documentId) {
        return this.client.request("GET", "/v1/documents/{document_id}", { path: { document_id: documentId } });
    }
    /** The operation that reads the file, as it is now. */
    operation(document) {
        const path = { operation_id: document.operation_id };
        return this.client.request("GET", "/v1/operations/{operation_id}", { path });
    }
    /** All documents, or the one of this name; page by page. */
    all(name) {
        const named = name === undefined ? {} : { name };
        return new List((cursor) => this.client.request("GET", "/v1/documents", { query: { limit: 100, ...named, ...this.owner, ...next(cursor) } }));
    }
    [Symbol.asyncIterator]() {
        return this.all()[Symbol.asyncIterator]();
    }
    /** Deletes a document and its passages. */
    delete(documentId) {
        return this.client.request("DELETE", "/v1/documents/{document_id}", { path: { document_id: documentId } });
    }
}
/** The profile of a user, which all agents share. */
export class Profile {
    client;
    user;
    constructor(client, user) {
        this.client = client;
        this.user = user;
    }
    /** The profile; null while nothing is known. */
    async get() {
        try {
            return await this.client.request("GET", "/v1/users/{user_id}/profile", { path: { user_id: this.user } });
        }
        catch (error) {
            if (error instanceof Problem && error.status === 404)
                return null;
            throw error;
        }
    }
    /** Adds to lists, overwrites single values, and keeps what is not named. Null clears a field. */
    update(changes, options = {}) {
        const path = { user_id: this.user };
        return this.client.request("PATCH", "/v1/users/{user_id}/profile", { path, body: changes, ...options });
    }
}
function spelled({ filters, metadata, ...rest }) {
    const json = Object.entries({ filters, metadata }).filter(([, value]) => value !== undefined);
    return { ...rest, ...Object.fromEntries(json.map(([name, value]) => [name, JSON.stringify(value)])) };
}
function next(cursor) {
    return cursor === undefined ? {} : { cursor };
}
function idOf(memory) {
    if (typeof memory === "string")
        return memory;
    return "memory" in memory ? memory.memory.memory_id : memory.memory_id;
}
/** Options of the body, and options of the call. */
function split(options) {
    const { signal, timeout, retries, idempotencyKey, ifMatch, ifNoneMatch, ...body } = options;
    const call = Object.entries({ signal, timeout, retries, idempotencyKey, ifMatch, ifNoneMatch });
    return [body, Object.fromEntries(call.filter(([, value]) => value !== undefined))];
}
