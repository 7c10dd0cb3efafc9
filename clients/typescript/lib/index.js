/** Client of Recalld, memory as a service for AI agents. */
export { Recalld } from "./client.js";
export { Problem, RecalldError, Unreachable } from "./errors.js";
export { FileRefused, memoryFiles } from "./files.js";
export { List } from "./list.js";
export { Documents, Facts, Profile, Session, UserMemory, } from "./user.js";
