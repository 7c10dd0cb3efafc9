/** Client of Recalld, memory as a service for AI agents. */
export { Recalld } from "./client.js";
export { Problem, RecalldError, Unreachable } from "./errors.js";
export { FileRefused, memoryFiles, type MemoryFiles } from "./files.js";
export { List, type Page } from "./list.js";
export type { Options } from "./transport.js";
export type { CallOptions, components, Method, paths, RequestOptions, ResultOf, Schemas } from "./types.js";
export { Documents, Facts, Profile, Session, UserMemory, type Added, type AddOptions, type AppendOptions, type ContextOptions, type DocumentOptions, type FactOptions, type FactSearchOptions, type MemoryRef, type Message, type Policy, type SearchOptions, } from "./user.js";
