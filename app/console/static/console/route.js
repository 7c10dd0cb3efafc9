/** The address of a view: `#/memories/mem_1?query=tea` is page `memories`, rest `["mem_1"]`, params `{query: "tea"}`. */
import { useEffect, useState } from "./ui.js";

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

/**
 * Returns the address of a view, for `href`. Parameters that are empty are left out.
 * @param {string} page
 * @param {string[]} [rest]
 * @param {Record<string, unknown>} [params]
 */
export function to(page, rest = [], params = {}) {
  const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${[page, ...rest].map(encodeURIComponent).join("/")}${query && `?${query}`}`;
}

/** Goes to an address of `to`. `replace`: without a step in the browser's history, for filters that change as one types.
 * @param {string} address @param {{ replace?: boolean }} [how] */
export function go(address, { replace = false } = {}) {
  if (!replace) {
    location.hash = address;
    return;
  }
  history.replaceState(null, "", address);
  dispatchEvent(new HashChangeEvent("hashchange"));
}

/** The route of now; the component draws again when it changes. */
export function useRoute() {
  const [hash, set] = useState(location.hash);
  useEffect(() => {
    const changed = () => set(location.hash);
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parse(hash);
}
