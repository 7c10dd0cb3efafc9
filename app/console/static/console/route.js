/** The address of a view: `#/memories/mem_1?query=tea` is page `memories`, rest `["mem_1"]`, params `{query: "tea"}`. */

/** @typedef {{ page: string, rest: string[], params: Record<string, string> }} Route */

/** @param {string} text @returns {string} */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a lone percent sign
  }
}

/** @param {string} hash @returns {Route} */
export function parse(hash) {
  const [path, query = ""] = hash.replace(/^#?\/?/, "").split(/\?(.*)/s);
  const [page, ...rest] = path.split("/").filter(Boolean).map(decoded);
  return { page: page ?? "overview", rest, params: Object.fromEntries(new URLSearchParams(query)) };
}

const KINDS = /** @type {const} */ ({ users: "user_id", agents: "agent_id" });

/** The name of the owner that a page of one person or one agent is about. @param {string} page @param {string[]} rest */
const ownerOf = (page, rest) => (page === "owners" && rest[1] && Object.hasOwn(KINDS, rest[0]) ? KINDS[/** @type {keyof typeof KINDS} */ (rest[0])] : undefined);

/** Whose memory a view is about; nobody named means everyone. @param {Route} route @returns {{ user_id?: string, agent_id?: string }} */
export function scopeOf({ page, rest, params }) {
  const owner = ownerOf(page, rest);
  const { user_id, agent_id } = params;
  return { ...(user_id && { user_id }), ...(agent_id && { agent_id }), ...(owner && { [owner]: rest[1] }) };
}

/**
 * Returns the address of a view, for `href`. Parameters that are empty are left out. The person and the agent that are
 * chosen now stay chosen, unless `params` names others or none: `to("memories", [], { user_id: "" })`.
 * @param {string} page
 * @param {string[]} [rest]
 * @param {Record<string, unknown>} [params]
 */
export function to(page, rest = [], params = {}) {
  const all = { ...scopeOf(parse(location.hash)), ...params };
  const owner = ownerOf(page, rest);
  const given = Object.entries(all).filter(([name]) => name !== owner).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${[page, ...rest].map(encodeURIComponent).join("/")}${query && `?${query}`}`;
}

/** The address of what is shown: a link that was followed is told a moment after it stands in `location`. */
let shown = location.hash;
addEventListener("hashchange", () => { shown = location.hash; });

/** Goes to an address of `to`. `replace`: without a step in the browser's history, for filters that change as one types;
 * what was typed last does not take back a link that was followed meanwhile.
 * @param {string} address @param {{ replace?: boolean }} [how] */
export function go(address, { replace = false } = {}) {
  if (!replace) {
    location.hash = address;
    return;
  }
  if (location.hash !== shown) return;
  history.replaceState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}
