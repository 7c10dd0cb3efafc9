/** What people do daily with the memory of one user. */
import type { Recalld } from "./client.js";
import { Problem, RecalldError } from "./errors.js";
import { List } from "./list.js";
import { randomId } from "./transport.js";
import type { CallOptions, FileBody, paths, Schemas } from "./types.js";

type Owned = "agent_id" | "user_id";
type Query<P extends keyof paths> = paths[P] extends { get: { parameters: { query?: infer Q } } }
  ? Omit<NonNullable<Q>, Owned | "cursor" | keyof Spelled> & Spelled
  : never;
/** What a query string has as JSON. */
interface Spelled {
  filters?: Record<string, unknown>;
  metadata?: Record<string, unknown>;
}

export type Message = Schemas["MessageIn"];
export type AddOptions = Omit<Schemas["MemoryCreate"], Owned | "content"> & CallOptions;
export type AppendOptions = Omit<Schemas["MessagesAppend"], Owned | "messages"> & CallOptions;
/** What became of messages: `items` are the memories that a model found, or the turns that were stored. */
export type Added =
  | ({ how: "extracted" } & Schemas["Extracted"])
  | ({ how: "extracting" } & Schemas["Operation"])
  | ({ how: "stored" } & Schemas["Appended"]);
export type SearchOptions = Omit<Schemas["SearchRequest"], Owned | "query" | "top_k"> &
  CallOptions & {
    /** Most memories, 1 to 100; default 10. */
    limit?: number;
  };
export type ContextOptions = Omit<Schemas["ContextRequest"], Owned | "query" | "token_budget"> &
  CallOptions & {
    /** Most tokens; default: a quarter of the agent's `max_context_tokens`, else 4000. */
    budget?: number;
  };
/** `merge` is answered by an operation, not by a fact: use `Recalld.request` for it. */
export type FactOptions = Omit<Schemas["FactCreate"], Owned | "subject" | "predicate" | "object" | "on_conflict"> & {
  on_conflict?: Exclude<Schemas["FactConflictPolicy"], "merge">;
} & CallOptions;
export type FactSearchOptions = Omit<Schemas["FactSearch"], Owned | "query" | "top_k"> & { limit?: number };
export type DocumentOptions = CallOptions & {
  /** Default: the ending of the name says it. */
  media_type?: FileBody["mediaType"];
  /** Each passage has it, too. */
  metadata?: Record<string, unknown>;
};
export type Policy = Schemas["PolicyIn"] & { apply?: boolean };

/** The memory of one user, and of one agent when it was named. `Recalld.user` makes it. */
export class UserMemory {
  /** Statements with a subject, a predicate and an object, each with the time in which it is true. */
  readonly facts: Facts;
  /** Markdown, text, HTML and PDF, whose passages are found like memories. */
  readonly documents: Documents;
  /** Name, home, preferences: what is known of the user in fields. */
  readonly profile: Profile;

  constructor(
    readonly client: Recalld,
    readonly user: string,
    readonly agent?: string,
  ) {
    if (typeof user !== "string" || user.trim() === "") {
      throw new RecalldError("invalid_user", `A user needs an id, as user("ada"): ${JSON.stringify(user)} is none.`);
    }
    this.facts = new Facts(client, this.owner);
    this.documents = new Documents(client, this.owner);
    this.profile = new Profile(client, user);
  }

  /** `user_id`, and `agent_id` when an agent was named. */
  get owner(): { user_id: string; agent_id?: string } {
    return { user_id: this.user, ...(this.agent === undefined ? {} : { agent_id: this.agent }) };
  }

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
  add(what: Message[], options: AppendOptions & { session: string }): Promise<Added & { how: "stored" }>;
  add(what: Message[], options?: AppendOptions & { session?: string; infer?: boolean }): Promise<Added>;
  async add(
    what: string | Message[],
    options: AddOptions | (AppendOptions & { session?: string; infer?: boolean }) = {},
  ): Promise<unknown> {
    if (typeof what !== "string") {
      const { session, infer = true, ...rest } = options as AppendOptions & { session?: string; infer?: boolean };
      if (session !== undefined) return { how: "stored", ...(await this.session(session).append(what, rest)) };
      const [{ metadata, ...more }, call] = split(rest);
      if (infer) {
        const body = { ...this.owner, messages: what, metadata: metadata ?? {} };
        try {
          const found = await this.client.request("POST", "/v1/memories/extract", { body, ...call });
          return { how: "operation_id" in found ? "extracting" : "extracted", ...found };
        } catch (error) {
          if (!(error instanceof Problem) || error.code !== "llm_not_configured") throw error;
        }
      }
      const conversation = this.session();
      const said = what.map((one) => ({ ...one, metadata: { ...metadata, ...one.metadata } }));
      const stored = await conversation.append(said, { ...more, ...call });
      await conversation.end();
      return { how: "stored", ...stored };
    }
    const [rest, call] = split(options as AddOptions);
    const body: Schemas["MemoryCreate"] = { ...rest, ...this.owner, content: what };
    return this.client.request("POST", "/v1/memories", { body, ...call });
  }

  /**
   * The memories that matter for a query, best first.
   *
   * @param options `limit` (10), `min_score` (0 to 1), `mode`, filters.
   * @returns Each memory with its score: the probability, 0 to 1, that it helps.
   */
  async search(query: string, options: SearchOptions = {}): Promise<Schemas["Found"][]> {
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
  context(query: string, options: ContextOptions = {}): Promise<Schemas["Context"]> {
    if (this.agent === undefined) {
      throw new TypeError('context needs an agent: memory.user("ada", { agent: "support" })');
    }
    const [{ budget, ...body }, call] = split(options);
    const limit = budget === undefined ? {} : { token_budget: budget };
    const asked = { ...body, ...limit, user_id: this.user, agent_id: this.agent, query };
    return this.client.request("POST", "/v1/context", { body: asked, ...call });
  }

  /** One conversation. The first message creates it. Without an id it gets a new one. */
  session(id: string = randomId()): Session {
    return new Session(this, id);
  }

  /** The newest memories with exactly this user and agent, `limit` (20) at most; `memories` goes over all of them. */
  getAll({ limit = 20, ...filters }: Query<"/v1/memories"> = {}): Promise<Schemas["Memory"][]> {
    return this.memories(filters).toArray(limit);
  }

  /** One memory as it is now. */
  get(memory: MemoryRef): Promise<Schemas["Memory"]> {
    return this.client.request("GET", "/v1/memories/{memory_id}", { path: { memory_id: idOf(memory) } });
  }

  /** Changes the fields that are given; null clears one. */
  update(memory: MemoryRef, changes: Schemas["MemoryPatch"], options: CallOptions = {}): Promise<Schemas["Memory"]> {
    const path = { memory_id: idOf(memory) };
    return this.client.request("PATCH", "/v1/memories/{memory_id}", { path, body: changes, ...options });
  }

  /** The user's memories, newest first, page by page; those with exactly this user and agent. */
  memories(filters: Query<"/v1/memories"> = {}): List<Schemas["Memory"]> {
    return new List((cursor) =>
      this.client.request("GET", "/v1/memories", { query: { limit: 100, ...spelled(filters), ...this.owner, ...next(cursor) } }),
    );
  }

  /** Plans, what is due and what ceases to hold, the soonest first, page by page. `until`: only what comes before. */
  upcoming(until?: string): List<Schemas["UpcomingItem"]> {
    const asked = until === undefined ? {} : { until };
    return new List((cursor) =>
      this.client.request("GET", "/v1/upcoming", { query: { limit: 100, ...asked, ...this.owner, ...next(cursor) } }),
    );
  }

  /**
   * Says which memories helped to answer, and which misled.
   *
   * @param memories Ids, or hits of a search.
   * @param query The question that they were found for.
   */
  async feedback(
    memories: MemoryRef | MemoryRef[],
    helpful: boolean,
    query?: string,
  ): Promise<Schemas["FeedbackApplied"][]> {
    const asked = query === undefined ? {} : { query };
    const items = [memories].flat().map((one) => ({ memory_id: idOf(one), helpful, ...asked }));
    return (await this.client.request("POST", "/v1/memories/feedback", { body: { items } })).items;
  }

  /**
   * Deletes one memory, or what a policy matches.
   *
   * @param what An id, a hit of a search, or a policy. A policy only tells what would go, unless it has `apply: true`:
   *   then an operation archives it, which can be undone for 30 days.
   * @example
   * const plan = await ada.forget({ older_than_days: 365, max_importance: 0.3 });
   */
  forget(what: MemoryRef): Promise<void>;
  forget(what: Policy & { apply: true }): Promise<Schemas["Operation"]>;
  forget(what: Policy & { apply?: false }): Promise<Schemas["ForgetPlan"]>;
  async forget(what: MemoryRef | Policy): Promise<unknown> {
    if (typeof what === "string" || "memory" in what || "memory_id" in what) {
      const path = { memory_id: idOf(what) };
      return await this.client.request("DELETE", "/v1/memories/{memory_id}", { path });
    }
    const { apply = false, ...policy } = what;
    return this.client.request("POST", "/v1/memories/forget", { body: { ...this.owner, policy, dry_run: !apply } });
  }

  /** Removes everything about the user, for all agents, and verifies it. It cannot be undone. */
  erase(): Promise<Schemas["Receipt"] | Schemas["Operation"]> {
    return this.client.request("DELETE", "/v1/users/{user_id}", { path: { user_id: this.user } });
  }
}

/** A memory's id, the memory, or a hit of a search. */
export type MemoryRef = string | { memory_id: string } | { memory: { memory_id: string } };

/** One conversation of a user. */
export class Session {
  constructor(
    private readonly memory: UserMemory,
    readonly id: string,
  ) {}

  /**
   * Appends messages in order, all or none. By default each user or assistant message becomes a memory, too.
   *
   * A session that has ended goes on.
   *
   * @param what A text is a message of the user.
   * @param options `reopen: false`: a session that has ended stays so.
   * @throws Problem `session_ended` then.
   */
  async append(
    what: string | Message | Message[],
    { reopen = true, ...options }: AppendOptions & { reopen?: boolean } = {},
  ): Promise<Schemas["Appended"]> {
    const spoken = (one: string | Message) => (typeof one === "string" ? { role: "user" as const, content: one } : one);
    const messages = [what].flat().map(spoken);
    const [body, call] = split(options);
    const path = { session_id: this.id };
    const send = () =>
      this.memory.client.request("POST", "/v1/sessions/{session_id}/messages", {
        path,
        body: { ...body, ...this.memory.owner, messages },
        ...call,
      });
    try {
      return await send();
    } catch (error) {
      if (!reopen || !(error instanceof Problem) || error.code !== "session_ended") throw error;
    }
    await this.memory.client.request("POST", "/v1/sessions/{session_id}/reopen", { path });
    return send();
  }

  /** Ends the conversation. A background operation learns from it. */
  end(): Promise<Schemas["Operation"]> {
    return this.memory.client.request("POST", "/v1/sessions/{session_id}/end", { path: { session_id: this.id } });
  }

  /** The messages, oldest first, page by page. */
  messages(): List<Schemas["Message"]> {
    return new List((cursor) =>
      this.memory.client.request("GET", "/v1/sessions/{session_id}/messages", {
        path: { session_id: this.id },
        query: { limit: 100, ...next(cursor) },
      }),
    );
  }

  /** A block of text for the next prompt of this conversation; as `UserMemory.context`, with its last messages. */
  context(query: string, options: ContextOptions = {}): Promise<Schemas["Context"]> {
    return this.memory.context(query, { ...options, session_id: this.id });
  }
}

/** The facts of a user. `for await (const fact of ada.facts)` reads those that are true now. */
export class Facts implements AsyncIterable<Schemas["Fact"]> {
  constructor(
    private readonly client: Recalld,
    private readonly owner: { user_id: string; agent_id?: string },
  ) {}

  /**
   * States a fact. Where there can be one object at a time, the fact before it ends.
   *
   * @example
   * await ada.facts.add("Ada", "lives in", "Boston", { valid_from: "2026-05-01T00:00:00Z" });
   */
  add(subject: string, predicate: string, object: string, options: FactOptions = {}): Promise<Schemas["Fact"]> {
    const [body, call] = split(options);
    const stated = { ...body, ...this.owner, subject, predicate, object };
    return this.client.request("POST", "/v1/facts", { body: stated, ...call }) as Promise<Schemas["Fact"]>;
  }

  /** What was true at a time (`as_of`), or known at a time (`known_at`); default: now. */
  all(filters: Query<"/v1/facts"> = {}): List<Schemas["Fact"]> {
    return new List((cursor) =>
      this.client.request("GET", "/v1/facts", { query: { limit: 100, ...spelled(filters), ...this.owner, ...next(cursor) } }),
    );
  }

  [Symbol.asyncIterator](): AsyncIterator<Schemas["Fact"]> {
    return this.all()[Symbol.asyncIterator]();
  }

  /** The facts that matter for a query, best first. */
  async search(query: string, { limit, ...filters }: FactSearchOptions = {}): Promise<Schemas["FoundFact"][]> {
    const body = { ...filters, ...(limit === undefined ? {} : { top_k: limit }), ...this.owner, query };
    return (await this.client.request("POST", "/v1/facts/search", { body })).items;
  }

  /** Takes a fact back. It stays in the history. */
  retract(factId: string): Promise<Schemas["Fact"]> {
    return this.client.request("POST", "/v1/facts/{fact_id}/retract", { path: { fact_id: factId } });
  }
}

/** The files of a user. `for await (const document of ada.documents)` reads the list, newest first. */
export class Documents implements AsyncIterable<Schemas["Document"]> {
  constructor(
    private readonly client: Recalld,
    private readonly owner: { user_id: string; agent_id?: string },
  ) {}

  /**
   * Sends a file; the same name replaces it. The answer is the operation that reads the file.
   *
   * @example
   * const { document_id } = await ada.documents.add("manual.pdf", await readFile("manual.pdf"));
   */
  add(name: string, file: FileBody["file"], options: DocumentOptions = {}): Promise<Schemas["DocumentAccepted"]> {
    const [{ media_type, metadata }, call] = split(options);
    const query = { ...(metadata === undefined ? {} : spelled({ metadata })), ...this.owner, name };
    const mediaType = media_type === undefined ? {} : { mediaType: media_type };
    return this.client.request("POST", "/v1/documents", { query, file, ...mediaType, ...call });
  }

  /** A document: whether it was read, and how many passages it has. */
  get(documentId: string): Promise<Schemas["Document"]> {
    return this.client.request("GET", "/v1/documents/{document_id}", { path: { document_id: documentId } });
  }

  /** The operation that reads the file, as it is now. */
  operation(document: { operation_id: string }): Promise<Schemas["Operation"]> {
    const path = { operation_id: document.operation_id };
    return this.client.request("GET", "/v1/operations/{operation_id}", { path });
  }

  /** All documents, or the one of this name; page by page. */
  all(name?: string): List<Schemas["Document"]> {
    const named = name === undefined ? {} : { name };
    return new List((cursor) =>
      this.client.request("GET", "/v1/documents", { query: { limit: 100, ...named, ...this.owner, ...next(cursor) } }),
    );
  }

  [Symbol.asyncIterator](): AsyncIterator<Schemas["Document"]> {
    return this.all()[Symbol.asyncIterator]();
  }

  /** Deletes a document and its passages. */
  delete(documentId: string): Promise<void> {
    return this.client.request("DELETE", "/v1/documents/{document_id}", { path: { document_id: documentId } });
  }
}

/** The profile of a user, which all agents share. */
export class Profile {
  constructor(
    private readonly client: Recalld,
    private readonly user: string,
  ) {}

  /** The profile; null while nothing is known. */
  async get(): Promise<Schemas["StoredProfile"] | null> {
    try {
      return await this.client.request("GET", "/v1/users/{user_id}/profile", { path: { user_id: this.user } });
    } catch (error) {
      if (error instanceof Problem && error.status === 404) return null;
      throw error;
    }
  }

  /** Adds to lists, overwrites single values, and keeps what is not named. Null clears a field. */
  update(changes: Schemas["ProfilePatch"], options: CallOptions = {}): Promise<Schemas["StoredProfile"]> {
    const path = { user_id: this.user };
    return this.client.request("PATCH", "/v1/users/{user_id}/profile", { path, body: changes, ...options });
  }
}

function spelled<T extends Spelled>({ filters, metadata, ...rest }: T) {
  const json = Object.entries({ filters, metadata }).filter(([, value]) => value !== undefined);
  return { ...rest, ...Object.fromEntries(json.map(([name, value]) => [name, JSON.stringify(value)])) };
}

function next(cursor: string | undefined): { cursor?: string } {
  return cursor === undefined ? {} : { cursor };
}

function idOf(memory: MemoryRef): string {
  if (typeof memory === "string") return memory;
  return "memory" in memory ? memory.memory.memory_id : memory.memory_id;
}

/** Options of the body, and options of the call. */
function split<T extends CallOptions>(options: T): [Omit<T, keyof CallOptions>, CallOptions] {
  const { signal, timeout, retries, idempotencyKey, ifMatch, ifNoneMatch, ...body } = options;
  const call = Object.entries({ signal, timeout, retries, idempotencyKey, ifMatch, ifNoneMatch });
  return [body, Object.fromEntries(call.filter(([, value]) => value !== undefined))];
}
