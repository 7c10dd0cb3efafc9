/** What people do daily with the memory of one user. */
import type { Recalld } from "./client.js";
import { List } from "./list.js";
import type { CallOptions, FileBody, paths, Schemas } from "./types.js";
type Owned = "agent_id" | "user_id";
type Query<P extends keyof paths> = paths[P] extends {
    get: {
        parameters: {
            query?: infer Q;
        };
    };
} ? Omit<NonNullable<Q>, Owned | "cursor" | keyof Spelled> & Spelled : never;
/** What a query string has as JSON. */
interface Spelled {
    filters?: Record<string, unknown>;
    metadata?: Record<string, unknown>;
}
export type Message = Schemas["MessageIn"];
export type AddOptions = Omit<Schemas["MemoryCreate"], Owned | "content"> & CallOptions;
export type AppendOptions = Omit<Schemas["MessagesAppend"], Owned | "messages"> & CallOptions;
/** What became of messages: `items` are the memories that a model found, or the turns that were stored. */
export type Added = ({
    how: "extracted";
} & Schemas["Extracted"]) | ({
    how: "extracting";
} & Schemas["Operation"]) | ({
    how: "stored";
} & Schemas["Appended"]);
export type SearchOptions = Omit<Schemas["SearchRequest"], Owned | "query" | "top_k"> & CallOptions & {
    /** Most memories, 1 to 100; default 10. */
    limit?: number;
};
export type ContextOptions = Omit<Schemas["ContextRequest"], Owned | "query" | "token_budget"> & CallOptions & {
    /** Most tokens; default: a quarter of the agent's `max_context_tokens`, else 4000. */
    budget?: number;
};
/** `merge` is answered by an operation, not by a fact: use `Recalld.request` for it. */
export type FactOptions = Omit<Schemas["FactCreate"], Owned | "subject" | "predicate" | "object" | "on_conflict"> & {
    on_conflict?: Exclude<Schemas["FactConflictPolicy"], "merge">;
} & CallOptions;
export type FactSearchOptions = Omit<Schemas["FactSearch"], Owned | "query" | "top_k"> & {
    limit?: number;
};
export type DocumentOptions = CallOptions & {
    /** Default: the ending of the name says it. */
    media_type?: FileBody["mediaType"];
    /** Each passage has it, too. */
    metadata?: Record<string, unknown>;
};
export type Policy = Schemas["PolicyIn"] & {
    apply?: boolean;
};
/** The memory of one user, and of one agent when it was named. `Recalld.user` makes it. */
export declare class UserMemory {
    readonly client: Recalld;
    readonly user: string;
    readonly agent?: string | undefined;
    /** Statements with a subject, a predicate and an object, each with the time in which it is true. */
    readonly facts: Facts;
    /** Markdown, text, HTML and PDF, whose passages are found like memories. */
    readonly documents: Documents;
    /** Name, home, preferences: what is known of the user in fields. */
    readonly profile: Profile;
    constructor(client: Recalld, user: string, agent?: string | undefined);
    /** `user_id`, and `agent_id` when an agent was named. */
    get owner(): {
        user_id: string;
        agent_id?: string;
    };
    /**
     * Remembers a text, or what matters of messages.
     *
     * @param what A text becomes one memory. From messages a language model extracts memories (`how` is "extracted", or
     *   "extracting" if it takes longer than 30 seconds). Without a model, or with `infer: false`, they are stored as the
     *   turns of a session of their own, which ends at once (`how` is "stored"). With `session` they are appended to it.
     * @returns The memory, or what became of the messages.
     * @example
     * await ada.add("Prefers tea", { memory_type: "preference" });
     * await ada.add([{ role: "user", content: "I moved to Boston." }]);
     */
    add(what: string, options?: AddOptions): Promise<Schemas["MemoryCreated"]>;
    add(what: Message[], options: AppendOptions & {
        session: string;
    }): Promise<Added & {
        how: "stored";
    }>;
    add(what: Message[], options?: AppendOptions & {
        session?: string;
        infer?: boolean;
    }): Promise<Added>;
    /**
     * The memories that matter for a query, best first.
     *
     * @param options `limit` (10), `min_score` (0 to 1), `mode`, filters.
     * @returns Each memory with its score: the probability, 0 to 1, that it helps.
     */
    search(query: string, options?: SearchOptions): Promise<Schemas["Found"][]>;
    /**
     * A block of text for the next prompt, within a token budget. Needs an agent.
     *
     * @returns `text` goes into the prompt; `messages`, `sections` and `tokens` say what it holds.
     * @throws TypeError when no agent was named.
     */
    context(query: string, options?: ContextOptions): Promise<Schemas["Context"]>;
    /** One conversation. The first message creates it. Without an id it gets a new one. */
    session(id?: string): Session;
    /** The newest memories with exactly this user and agent, `limit` (20) at most; `memories` goes over all of them. */
    getAll({ limit, ...filters }?: Query<"/v1/memories">): Promise<Schemas["Memory"][]>;
    /** One memory as it is now. */
    get(memory: MemoryRef): Promise<Schemas["Memory"]>;
    /** Changes the fields that are given; null clears one. */
    update(memory: MemoryRef, changes: Schemas["MemoryPatch"], options?: CallOptions): Promise<Schemas["Memory"]>;
    /** The user's memories, newest first, page by page; those with exactly this user and agent. */
    memories(filters?: Query<"/v1/memories">): List<Schemas["Memory"]>;
    /** Plans, what is due and what ceases to hold, the soonest first, page by page. `until`: only what comes before. */
    upcoming(until?: string): List<Schemas["UpcomingItem"]>;
    /**
     * Says which memories helped to answer, and which misled.
     *
     * @param memories Ids, or hits of a search.
     * @param query The question that they were found for.
     */
    feedback(memories: MemoryRef | MemoryRef[], helpful: boolean, query?: string): Promise<Schemas["FeedbackApplied"][]>;
    /**
     * Deletes one memory, or what a policy matches.
     *
     * @param what An id, a hit of a search, or a policy. A policy only tells what would go, unless it has `apply: true`:
     *   then an operation archives it, which can be undone for 30 days.
     * @example
     * const plan = await ada.forget({ older_than_days: 365, max_importance: 0.3 });
     */
    forget(what: MemoryRef): Promise<void>;
    forget(what: Policy & {
        apply: true;
    }): Promise<Schemas["Operation"]>;
    forget(what: Policy & {
        apply?: false;
    }): Promise<Schemas["ForgetPlan"]>;
    /** Removes everything about the user, for all agents, and verifies it. It cannot be undone. */
    erase(): Promise<Schemas["Receipt"] | Schemas["Operation"]>;
}
/** A memory's id, the memory, or a hit of a search. */
export type MemoryRef = string | {
    memory_id: string;
} | {
    memory: {
        memory_id: string;
    };
};
/** One conversation of a user. */
export declare class Session {
    private readonly memory;
    readonly id: string;
    constructor(memory: UserMemory, id: string);
    /**
     * Appends messages in order, all or none. By default each user or assistant message becomes a memory, too.
     *
     * A session that has ended goes on.
     *
     * @param what A text is a message of the user.
     * @param options `reopen: false`: a session that has ended stays so.
     * @throws Problem `session_ended` then.
     */
    append(what: string | Message | Message[], { reopen, ...options }?: AppendOptions & {
        reopen?: boolean;
    }): Promise<Schemas["Appended"]>;
    /** Ends the conversation. A background operation learns from it. */
    end(): Promise<Schemas["Operation"]>;
    /** The messages, oldest first, page by page. */
    messages(): List<Schemas["Message"]>;
    /** A block of text for the next prompt of this conversation; as `UserMemory.context`, with its last messages. */
    context(query: string, options?: ContextOptions): Promise<Schemas["Context"]>;
}
/** The facts of a user. `for await (const fact of ada.facts)` reads those that are true now. */
export declare class Facts implements AsyncIterable<Schemas["Fact"]> {
    private readonly client;
    private readonly owner;
    constructor(client: Recalld, owner: {
        user_id: string;
        agent_id?: string;
    });
    /**
     * States a fact. Where there can be one object at a time, the fact before it ends.
     *
     * @example
     * await ada.facts.add("Ada", "lives in", "Boston", { valid_from: "2026-05-01T00:00:00Z" });
     */
    add(subject: string, predicate: string, object: string, options?: FactOptions): Promise<Schemas["Fact"]>;
    /** What was true at a time (`as_of`), or known at a time (`known_at`); default: now. */
    all(filters?: Query<"/v1/facts">): List<Schemas["Fact"]>;
    [Symbol.asyncIterator](): AsyncIterator<Schemas["Fact"]>;
    /** The facts that matter for a query, best first. */
    search(query: string, { limit, ...filters }?: FactSearchOptions): Promise<Schemas["FoundFact"][]>;
    /** Takes a fact back. It stays in the history. */
    retract(factId: string): Promise<Schemas["Fact"]>;
}
/** The files of a user. `for await (const document of ada.documents)` reads the list, newest first. */
export declare class Documents implements AsyncIterable<Schemas["Document"]> {
    private readonly client;
    private readonly owner;
    constructor(client: Recalld, owner: {
        user_id: string;
        agent_id?: string;
    });
    /**
     * Sends a file; the same name replaces it. The answer is the operation that reads the file.
     *
     * @example
     * const { document_id } = await ada.documents.add("manual.pdf", await readFile("manual.pdf"));
     */
    add(name: string, file: FileBody["file"], options?: DocumentOptions): Promise<Schemas["DocumentAccepted"]>;
    /** A document: whether it was read, and how many passages it has. */
    get(documentId: string): Promise<Schemas["Document"]>;
    /** The operation that reads the file, as it is now. */
    operation(document: {
        operation_id: string;
    }): Promise<Schemas["Operation"]>;
    /** All documents, or the one of this name; page by page. */
    all(name?: string): List<Schemas["Document"]>;
    [Symbol.asyncIterator](): AsyncIterator<Schemas["Document"]>;
    /** Deletes a document and its passages. */
    delete(documentId: string): Promise<void>;
}
/** The profile of a user, which all agents share. */
export declare class Profile {
    private readonly client;
    private readonly user;
    constructor(client: Recalld, user: string);
    /** The profile; null while nothing is known. */
    get(): Promise<Schemas["StoredProfile"] | null>;
    /** Adds to lists, overwrites single values, and keeps what is not named. Null clears a field. */
    update(changes: Schemas["ProfilePatch"], options?: CallOptions): Promise<Schemas["StoredProfile"]>;
}
export {};
