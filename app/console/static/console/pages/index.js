/**
 * The pages in the order of the menu, and which files an address needs. A page is a module in this folder, and so is each
 * part of a person or an agent, and the record beside a list; README.md beside the package says how one is added. This
 * module imports nothing: `start.js` reads it before the others are there.
 */

/** @typedef {{ name: string, title: string, file: string }} Part */

/**
 * `verb` is what a key needs to see the page; `group` is the heading of the menu that it stands under; `record` shows what
 * is chosen of the list. A `hidden` page is in no menu.
 * @type {{ name: string, icon: string, title: string, group: string, hidden?: boolean, file: string, record?: string, verb: "read" | "admin" }[]}
 */
export const PAGES = [
  { name: "overview", icon: "gauge", title: "Overview", group: "", file: "overview.js", verb: "read" },
  { name: "owners", icon: "users", title: "People and agents", group: "", file: "owners.js", verb: "read" },
  { name: "prompt", icon: "text-quote", title: "Prompt", group: "", file: "prompt.js", verb: "read" },
  { name: "memories", icon: "notebook-text", title: "Memories", group: "What is kept", file: "memories.js", record: "memory.js", verb: "read" },
  { name: "documents", icon: "copy", title: "Documents", group: "What is kept", file: "documents.js", verb: "read" },
  { name: "sessions", icon: "messages-square", title: "Sessions", group: "What is kept", file: "sessions.js", verb: "read" },
  { name: "tasks", icon: "list-checks", title: "Tasks", group: "What is kept", file: "tasks.js", verb: "read" },
  { name: "findings", icon: "lightbulb", title: "Findings", group: "What is kept", file: "findings.js", verb: "read" },
  { name: "operations", icon: "server-cog", title: "Operations", group: "The service", file: "operations.js", verb: "read" },
  { name: "record", icon: "check", title: "Record", group: "", hidden: true, file: "record.js", verb: "read" },
  { name: "components", icon: "check", title: "Components", group: "", hidden: true, file: "components.js", verb: "read" },
];

/** What is shown of a person or an agent, in the order of the tabs: `#/owners/users/mira/facts`. @type {Record<string, Part[]>} */
export const PARTS = {
  users: [
    { name: "now", title: "What is known", file: "owner_person.js" },
    { name: "profile", title: "Profile", file: "owner_profile.js" },
    { name: "facts", title: "Facts", file: "owner_facts.js" },
    { name: "graph", title: "Graph", file: "owner_graph.js" },
    { name: "procedures", title: "Procedures", file: "owner_procedures.js" },
    { name: "data", title: "Export and erase", file: "owner_data.js" },
  ],
  agents: [
    { name: "about", title: "About", file: "owner_agent.js" },
    { name: "experience", title: "Experience", file: "owner_experience.js" },
    { name: "facts", title: "Facts", file: "owner_facts.js" },
    { name: "graph", title: "Graph", file: "owner_graph.js" },
    { name: "procedures", title: "Procedures", file: "owner_procedures.js" },
    { name: "actions", title: "Actions", file: "owner_actions.js" },
  ],
};

/** The parts of operations that are of nobody's memory, or have a field for the person: the frame asks for none there. */
const OF_NOBODY = ["keys", "audit", "settings"];

/** Whose memory is chosen in the frame of a view: `/v1/operations` knows the person alone. @param {import("../route.js").Route} route @returns {{ person: boolean, agent: boolean }} */
export function choices({ page, rest: [part] }) {
  const person = page !== "operations" || !OF_NOBODY.includes(part);
  return { person, agent: person && (page !== "operations" || part === "forget") };
}

/** What stands beside jobs and operations: `#/operations/keys`. @type {Record<string, string>} */
export const OPERATIONS = { forget: "forget.js", keys: "administration.js", audit: "administration.js", settings: "administration.js" };

/** The part that an address names, or the first. Undefined: it names no person and no agent. @param {string[]} rest @returns {Part | undefined} */
export function partOf([kind, id, name]) {
  if (!id || !Object.hasOwn(PARTS, kind)) return undefined;
  return PARTS[kind].find((part) => part.name === name) ?? PARTS[kind][0];
}

/** The files of a view: `owners.js` and `owner_facts.js` of `#/owners/users/mira/facts`. @param {import("../route.js").Route} route @returns {string[]} */
export function filesOf({ page, rest }) {
  const entry = PAGES.find(({ name }) => name === page);
  const part = page === "owners" ? partOf(rest)?.file : page === "operations" && Object.hasOwn(OPERATIONS, rest[0] ?? "") ? OPERATIONS[rest[0]] : rest[0] && entry?.record;
  return [entry?.file, part].flatMap((file) => file || []);
}

/** @typedef {{ default: (props: any) => any }} Module */
/** @type {Map<string, Module>} */
const modules = new Map();

/** @param {string} file of this folder @returns {Promise<Module>} */
export async function load(file) {
  const module = await import(`./${file}`);
  modules.set(file, module);
  return module;
}

/** The module of a file where it was loaded already: it is drawn at once. @param {string} file */
export const loaded = (file) => modules.get(file);
