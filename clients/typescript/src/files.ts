/** The files of a user with the commands of Anthropic's memory tool: `betaMemoryTool(memoryFiles(ada))`. */
import { Problem } from "./errors.js";
import type { Schemas } from "./types.js";
import type { UserMemory } from "./user.js";

const ROOT = "/memories";
const MOST_KEY = 256; // characters of a path
const ATTEMPTS = 4;

/** A command that cannot be done, in the words that the model reads. */
export class FileRefused extends Error {}

/** What `betaMemoryTool` of `@anthropic-ai/sdk/helpers/beta/memory` takes. */
export interface MemoryFiles {
  view(command: { path: string; view_range?: number[] | null }): Promise<string>;
  create(command: { path: string; file_text: string }): Promise<string>;
  str_replace(command: { path: string; old_str: string; new_str: string }): Promise<string>;
  insert(command: { path: string; insert_line: number; insert_text: string }): Promise<string>;
  delete(command: { path: string }): Promise<string>;
  rename(command: { old_path: string; new_path: string }): Promise<string>;
}

/**
 * Texts under paths below /memories, which no search sees. It answers in the words of the SDK's own backend.
 *
 * @throws TypeError when no agent was named.
 */
export function memoryFiles(memory: UserMemory): MemoryFiles {
  if (memory.agent === undefined) throw new TypeError('files need an agent: memory.user("ada", { agent: "claude" })');
  const owned = { ...memory.owner, memory_type: "file" as const };
  const { client } = memory;
  const list = (query: { key: string } | { key_prefix: string }, limit: number, cursor?: string) =>
    client.request("GET", "/v1/memories", {
      query: { ...owned, ...query, limit, ...(cursor === undefined ? {} : { cursor }) },
    });
  const fileAt = async (key: string) => (await list({ key }, 1)).items[0];
  const isFolder = async (path: string) => (await list({ key_prefix: `${path}/` }, 1)).items.length > 0;
  async function below(path: string): Promise<Schemas["Memory"][]> {
    const found: Schemas["Memory"][] = [];
    let cursor: string | undefined;
    do {
      const page = await list({ key_prefix: `${path}/` }, 100, cursor);
      found.push(...page.items);
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
    return found;
  }
  async function requireFolders(path: string): Promise<void> {
    for (let parent = above(path); parent !== ROOT; parent = above(parent)) {
      if (await fileAt(parent)) throw new FileRefused(`${parent} is a file, and no folder`);
    }
  }
  async function write(key: string, content: string, only: { ifMatch: number } | { ifNoneMatch: "*" }): Promise<void> {
    await client.request("POST", "/v1/memories", { body: { ...owned, key, content }, ...only });
  }
  async function edit(path: string, change: (content: string) => [changed: string, said: string]): Promise<string> {
    const where = pathOf(path);
    for (let attempt = 1; ; attempt++) {
      const file = await fileAt(where);
      if (!file) {
        const there = where === ROOT || (await isFolder(where));
        throw new FileRefused(`The path ${path} ${there ? "is not a file." : "does not exist. Please provide a valid path."}`);
      }
      const [changed, said] = change(file.content);
      try {
        await write(where, changed, { ifMatch: file.version });
        return said;
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        if (error.status !== 412 || attempt === ATTEMPTS) throw new FileRefused(error.message);
      }
    }
  }

  return {
    async view({ path, view_range }) {
      const where = pathOf(path);
      const file = await fileAt(where);
      if (file) return numbered(path, file.content, view_range);
      const files = await below(where);
      if (files.length === 0 && where !== ROOT) {
        throw new FileRefused(`The path ${path} does not exist. Please provide a valid path.`);
      }
      const bytes = (text: string) => new TextEncoder().encode(text).length;
      return listed(path, where, new Map(files.map((one) => [String(one.key), bytes(one.content)])));
    },
    async create({ path, file_text }) {
      const where = pathOf(path);
      if (where === ROOT || (await isFolder(where))) throw new FileRefused(`File ${path} already exists`);
      await requireFolders(where);
      try {
        await write(where, file_text, { ifNoneMatch: "*" });
      } catch (error) {
        if (!(error instanceof Problem)) throw error;
        throw new FileRefused(error.status === 412 ? `File ${path} already exists` : error.message);
      }
      return `File created successfully at: ${path}`;
    },
    str_replace({ path, old_str, new_str }) {
      return edit(path, (content) => replaced(path, content, old_str, new_str));
    },
    insert({ path, insert_line, insert_text }) {
      return edit(path, (content) => [inserted(content, insert_line, insert_text), `The file ${path} has been edited.`]);
    },
    async delete({ path }) {
      const where = pathOf(path);
      if (where === ROOT) throw new FileRefused(`Cannot delete the ${ROOT} directory itself`);
      const file = await fileAt(where);
      if (file) {
        await memory.forget(file);
        return `Successfully deleted ${path}`;
      }
      const query = { ...owned, key_prefix: `${where}/` };
      if ((await client.request("DELETE", "/v1/memories", { query })).deleted === 0) {
        throw new FileRefused(`The path ${path} does not exist`);
      }
      return `Successfully deleted ${path}`;
    },
    async rename({ old_path, new_path }) {
      const [old, target] = [pathOf(old_path), pathOf(new_path)];
      if (old === ROOT) throw new FileRefused(`Cannot rename the ${ROOT} directory itself`);
      if (target === ROOT || (await fileAt(target)) || (await isFolder(target))) {
        throw new FileRefused(`The destination ${new_path} already exists`);
      }
      if (target.startsWith(`${old}/`)) throw new FileRefused(`Cannot move ${old_path} into itself`);
      const file = await fileAt(old);
      const moved = file ? [file] : await below(old);
      if (moved.length === 0) throw new FileRefused(`The path ${old_path} does not exist`);
      await requireFolders(target);
      for (const one of moved) await memory.update(one, { key: pathOf(target + String(one.key).slice(old.length)) });
      return `Successfully renamed ${old_path} to ${new_path}`;
    },
  };
}

function above(path: string): string {
  return path.slice(0, path.lastIndexOf("/"));
}

/** The path without `.`, `..` and doubled slashes. */
function pathOf(given: string): string {
  if (!given.startsWith(ROOT)) throw new FileRefused(`Path must start with ${ROOT}, got: ${given}`);
  const parts: string[] = [];
  for (const part of given.normalize("NFC").split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  const path = `/${parts.join("/")}`;
  if (path !== ROOT && !path.startsWith(`${ROOT}/`)) {
    throw new FileRefused(`Path ${given} would escape ${ROOT} directory`);
  }
  if ([...path].length > MOST_KEY) {
    throw new FileRefused(`The path ${given.slice(0, MOST_KEY)} is too long: it has at most ${MOST_KEY} characters`);
  }
  return path;
}

/** A folder two levels deep. `sizes`: bytes of each file below it, by path. */
function listed(given: string, path: string, sizes: Map<string, number>): string {
  const below = new Map([...sizes].map(([name, size]) => [name.slice(path.length + 1), size]));
  const total = (prefix: string) =>
    [...below].reduce((sum, [name, size]) => (name.startsWith(prefix) ? sum + size : sum), 0);
  const entries = new Set([...below.keys()].flatMap((name) => [1, 2].map((n) => name.split("/").slice(0, n).join("/"))));
  const lines = [`${sizeOf(total(""))}\t${given}`];
  for (const entry of [...entries].sort(byParts)) {
    if (entry.split("/").some((part) => part.startsWith("."))) continue;
    const size = below.get(entry);
    lines.push(`${sizeOf(size ?? total(`${entry}/`))}\t${given}/${entry}${size === undefined ? "/" : ""}`);
  }
  const head = `Here're the files and directories up to 2 levels deep in ${given}, excluding hidden items:`;
  return [head, ...lines].join("\n");
}

/** A folder comes before what is in it, and that before its neighbours: "a", "a/b", "a.md". */
function byParts(one: string, other: string): number {
  const [ones, others] = [one.split("/"), other.split("/")];
  const at = ones.findIndex((part, index) => part !== others[index]);
  if (at === -1) return ones.length - others.length;
  const [part = "", against] = [ones[at], others[at]];
  return against === undefined || part > against ? 1 : -1;
}

function sizeOf(bytes: number): string {
  const unit = bytes === 0 ? 0 : Math.min(Math.floor(Math.log2(bytes) / 10), 3);
  const number = bytes / 1024 ** unit;
  return `${Number.isInteger(number) ? number : number.toFixed(1)}${"BKMG"[unit]}`;
}

function numbered(given: string, content: string, range: number[] | null | undefined): string {
  const lines = content.split("\n");
  let [first, last] = [0, lines.length];
  if (range?.length === 2) {
    const [from = 1, to = -1] = range;
    [first, last] = [Math.max(1, from) - 1, to === -1 ? last : to];
  }
  return `Here's the content of ${given} with line numbers:\n${withNumbers(lines.slice(first, last), first + 1)}`;
}

function withNumbers(lines: string[], first: number): string {
  return lines.map((line, index) => `${String(first + index).padStart(6)}\t${line}`).join("\n");
}

function replaced(given: string, content: string, old: string, fresh: string): [string, string] {
  const lineAt = (at: number) => content.slice(0, at).split("\n").length;
  const count = old === "" ? content.length + 1 : content.split(old).length - 1;
  if (count === 0) {
    throw new FileRefused(`No replacement was performed, old_str \`${old}\` did not appear verbatim in ${given}.`);
  }
  if (count > 1) {
    const lines: number[] = [];
    for (let at = content.indexOf(old); at !== -1 && at <= content.length; at = content.indexOf(old, at + 1)) {
      lines.push(lineAt(at));
      if (old === "" && at === content.length) break;
    }
    throw new FileRefused(
      `No replacement was performed. Multiple occurrences of old_str \`${old}\` in lines: ${lines.join(", ")}. ` +
        "Please ensure it is unique",
    );
  }
  const line = lineAt(content.indexOf(old)) - 1;
  const changed = content.split(old).join(fresh);
  const first = Math.max(0, line - 2);
  const near = withNumbers(changed.split("\n").slice(first, line + 3), first + 1);
  const head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):";
  return [changed, `${head}\n${near}`];
}

function inserted(content: string, line: number, text: string): string {
  const lines = content.split("\n");
  if (lines.at(-1) === "") lines.pop();
  if (line < 0 || line > lines.length) {
    throw new FileRefused(
      `Invalid \`insert_line\` parameter: ${line}. It should be within the range [0, ${lines.length}].`,
    );
  }
  lines.splice(line, 0, text.replace(/\n+$/, ""));
  const changed = lines.join("\n");
  return changed.endsWith("\n") ? changed : `${changed}\n`;
}
