/** Whose memory one looks at: a person, an agent, both or everyone. It is part of the address, and links carry it on. */
import { api, ask, useLoad } from "../api.js";
import { createContext, html, useContext, useMemo } from "../ui.js";
import { go, scopeOf, to } from "../route.js";
import { visible } from "./text.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** The first hundred of each, and the person who is chosen. `every`: these are all agents; `everyone`: all people. `again()` loads them anew.
 * @typedef {{ users: Schemas["ListedUser"][], agents: Schemas["ListedAgent"][], every: boolean, everyone: boolean, loading: boolean, again: () => void }} Known */

const MOST = 100;
const SINGULAR = /** @type {Record<string, string>} */ ({ memories: "memory" });
const Owners = createContext(/** @type {Known} */ ({ users: [], agents: [], every: false, everyone: false, loading: true, again: () => {} }));

/** The people and agents to choose from. The frame loads them once for all pages. @returns {Known} */
export const useKnown = () => useContext(Owners);

/** @param {{ route: import("../route.js").Route, children: unknown }} props */
export function KnownOwners({ route, children }) {
  const loaded = useLoad(async (signal) => {
    const [users, agents] = await Promise.all([
      ask(api.GET("/v1/users", { params: { query: { limit: MOST } }, signal })),
      ask(api.GET("/v1/agents", { params: { query: { limit: MOST, order: "asc" } }, signal })),
    ]);
    return { users: users.items, agents: agents.items, every: !agents.next_cursor, everyone: !users.next_cursor };
  }, []);
  const { users: listed = [], agents = [], every = false, everyone = true } = loaded.data ?? {};
  const { user_id = "" } = scopeOf(route);
  const far = everyone || listed.some((user) => user.user_id === user_id) ? "" : user_id;
  const chosen = useLoad(async (signal) => {
    if (!far) return [];
    const profile = await ask(api.GET("/v1/users/{user_id}/profile", { params: { path: { user_id: far } }, signal })).catch(() => undefined);
    return [/** @type {Schemas["ListedUser"]} */ (/** @type {unknown} */ ({ version: null, created_at: null, updated_at: null, ...profile, user_id: far }))];
  }, [far]);
  const first = far && chosen.data?.[0]?.user_id === far ? chosen.data[0] : undefined;
  const loading = loaded.loading && !loaded.data;
  // the same until one of these has changed: all that shows a name is drawn again with another
  const known = useMemo(() => ({ users: first ? [first, ...listed] : listed, agents, every, everyone: Boolean(loaded.data) && everyone, loading, again: loaded.again }),
    [loaded.data, first, loading]);
  return html`<${Owners.Provider} value=${known}>${children}</${Owners.Provider}>`;
}

/** The names of people and agents, by their ids; the id where none is known: `useNames().person("mira")` is "Mira". */
export function useNames() {
  const known = useKnown();
  return {
    person: (/** @type {string} */ id) => known.users.find((user) => user.user_id === id)?.name ?? id,
    agent: (/** @type {string} */ id) => known.agents.find((agent) => agent.agent_id === id)?.name ?? id,
  };
}

/** What a person or agent is called: the name, or the id where there is none. @param {string} id @param {string | null | undefined} name */
export const called = (id, name) => (!name || name.toLowerCase() === id.toLowerCase() ? visible(name || id) : `${visible(name)} (${visible(id)})`);

/** "7 memories, 2 sessions, last 2026-06-01": what somebody owns. @param {Schemas["ListedUser"] | Schemas["ListedAgent"]} of */
export const owning = ({ records, last_active }) => [...Object.entries(records).filter(([, count]) => count).map(([kind, count]) => `${count.toLocaleString("en")} ${count === 1 ? SINGULAR[kind] ?? kind.slice(0, -1) : kind}`), last_active && `last ${last_active}`].filter(Boolean).join(", ");

/** Each by the name alone, which a choice has room for; with the id where several have the name. @param {{ id: string, name?: string | null }[]} given */
const options = (given) => given.map(({ id, name }) => ({ id, name: given.filter((one) => one.name === name).length > 1 ? called(id, name) : visible(name || id) }));

/** The choices of the frame, where the page shows what is chosen. What the key is bound to is all there is to choose from: one person alone is shown, locked.
 * @param {{ route: import("../route.js").Route, caller: import("../api.js").Caller, asked: { person: boolean, agent: boolean } }} props `asked`: what the page lets one choose */
export function ScopeChoice({ route, caller, asked }) {
  const known = useKnown();
  const scope = scopeOf(route);
  if (!asked.person) return html`<div class="scope"></div>`;
  const people = options(known.users.map((user) => ({ id: user.user_id, name: user.name })));
  const agents = options(known.agents.map((agent) => ({ id: agent.agent_id, name: agent.name })));
  return html`<div class="scope" role="group" aria-label="Whose memory">
    <${Choice} label="Person" any="Everyone" bound=${caller.users} value=${scope.user_id} options=${people} onChange=${(/** @type {string} */ id) => choose(route, "user_id", id)} />
    ${asked.agent && html`<${Choice} label="Agent" any="Any agent" bound=${caller.agents} value=${scope.agent_id} options=${agents} onChange=${(/** @type {string} */ id) => choose(route, "agent_id", id)} />`}</div>`;
}

/** @param {{ label: string, any: string, bound: string[] | null, value: string | undefined, options: { id: string, name: string }[], onChange: (id: string) => void }} props `bound`: all that the key may see */
function Choice({ label, any, bound, value = "", options, onChange }) {
  const named = (/** @type {string} */ id) => options.find((option) => option.id === id) ?? { id, name: visible(id) };
  if (bound?.length === 1) return html`<label title="The key is bound to it">${label} <select class="chosen" disabled><option>${named(bound[0]).name}</option></select></label>`;
  const listed = bound?.length ? bound.map(named) : !value || options.some((option) => option.id === value) ? options : [named(value), ...options];
  return html`<label>${label} <select class=${value ? "chosen" : ""} value=${value} onChange=${(/** @type {any} */ event) => onChange(event.target.value)}>
    <option value="">${any}</option>${listed.map((one) => html`<option key=${one.id} value=${one.id}>${one.name}</option>`)}</select></label>`;
}

const PAGES_OF = /** @type {const} */ ({ user_id: "users", agent_id: "agents" });

/** Goes to the same page of another owner. A record that is open is left: it may be somebody else's.
 * @param {import("../route.js").Route} route @param {"user_id" | "agent_id"} name @param {string} id */
export function choose(route, name, id) {
  const kind = PAGES_OF[name];
  if (route.page === "owners" && route.rest[0] === kind) go(id ? to("owners", [kind, id, ...route.rest.slice(2)], { ...route.params, fact: "", entity: "" }) : to("owners", [], { [name]: "" }));
  else go(to(route.page, route.page === "owners" || route.page === "operations" ? route.rest : [], { ...route.params, [name]: id, from: "", turn: "" }));
}
