/** The REST API: a typed client (openapi-fetch on the paths of the service's document), problems and loading. */
import createClient from "./vendor/openapi-fetch.mjs";
import { follow } from "./live.js";
import { load, loaded } from "./pages/index.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./ui.js";

const KEY = "recalld.key";
/** The address of the service, without a slash at the end: the console lies in `/console/` of it. */
export const BASE = new URL("..", document.baseURI).href.replace(/\/$/, "");

/** An answer of the service that is not 2xx, as problem+json says it. */
export class Problem extends Error {
  /** @param {number} status @param {string} code @param {string} detail @param {string} request */
  constructor(status, code, detail, request) {
    super(detail);
    this.status = status;
    this.code = code;
    this.request = request;
  }
}

/** The key lives in this tab alone: a new tab asks for it again. */
export const key = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  /** @param {string} value */
  set: (value) => {
    value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY);
    changes.close();
  },
};

/** @param {string} query @param {string} type @param {AbortSignal} [signal] */
const changesAs = (query, type, signal) => fetch(`${BASE}/v1/changes?${query}`, { signal, headers: { Accept: type, ...(key.get() && { Authorization: `Bearer ${key.get()}` }) } });

const changes = follow(
  () => changesAs("after=now&limit=1", "application/json").then((response) => response.json()).then((page) => page.cursor, () => undefined),
  (after, signal) => changesAs(`after=${encodeURIComponent(after)}`, "text/event-stream", signal),
);

/** Calls `act` after records of these kinds have changed, as long as the component is drawn. No kind: never.
 * @param {string[]} kinds @param {() => void} act */
export function useLive(kinds, act) {
  const now = useRef(act);
  now.current = act;
  useEffect(() => (kinds.length ? changes.on(kinds, () => now.current()) : undefined), [kinds.join()]);
}

/** Called at a 401, so that the console asks for a key. */
export const unauthorized = new EventTarget();

/** @type {import("openapi-fetch").Client<import("schema").paths>} */
export const api = createClient({ baseUrl: BASE });
api.use({
  onRequest({ request }) {
    changes.asked();
    if (key.get()) request.headers.set("Authorization", `Bearer ${key.get()}`);
  },
});

/**
 * Waits for a call of `api` and returns its data. Throws a Problem.
 * @example const memory = await ask(api.GET("/v1/memories/{memory_id}", { params: { path: { memory_id } } }));
 * @template T
 * @param {Promise<{ data?: T, error?: unknown, response: Response }>} call
 * @returns {Promise<T>}
 */
export async function ask(call) {
  const { data, error, response } = await call.catch((reason) => {
    if (reason?.name === "AbortError") throw reason;
    throw new Problem(0, "unreachable", "The service does not answer. Is it running?", "");
  });
  if (response.ok) return /** @type {T} */ (data);
  const told = /** @type {{ code?: string, detail?: string, request_id?: string }} */ (Object(error));
  if (response.status === 401) unauthorized.dispatchEvent(new Event("401"));
  throw new Problem(
    response.status, told.code ?? "unknown", told.detail ?? `The service answered ${response.status}.`,
    told.request_id ?? response.headers.get("x-request-id") ?? "",
  );
}

/**
 * Loads when the component appears and when one of `inputs` changes; an answer that was overtaken is dropped.
 * `data` keeps the last answer while the next one loads.
 * @template T
 * @param {(signal: AbortSignal) => Promise<T>} load passes the signal to each call: `api.GET(path, { signal, … })`
 * @param {unknown[]} inputs
 * @param {string[]} [kinds] of records; it loads again when one of them changes
 */
export function useLoad(load, inputs, kinds = []) {
  const [state, set] = useState(
    /** @returns {{ data?: T, error?: Problem, loading: boolean }} */ () => ({ loading: true }),
  );
  const [turn, next] = useState(0);
  useLayoutEffect(() => { // an effect that waits for the browser to paint would ask a frame later
    const abort = new AbortController();
    set((old) => (old.loading ? old : { ...old, loading: true }));
    load(abort.signal).then(
      (data) => abort.signal.aborted || set({ data, loading: false }),
      (error) => abort.signal.aborted || set((old) => ({ data: old.data, error: asProblem(error), loading: false })),
    );
    return () => abort.abort();
  }, [...inputs, turn]);
  const again = useCallback(() => next((n) => n + 1), []);
  useLive(kinds, again);
  return { ...state, again };
}

/** A module of `pages/`, as `useLoad` gives what it loads. @param {string} file */
export function useModule(file) {
  const [failed, set] = useState(/** @type {{ file?: string, error?: Problem }} */ ({}));
  const module = loaded(file);
  useLayoutEffect(() => {
    if (!module) load(file).then(() => set({}), (error) => set({ file, error: asProblem(error) }));
  }, [file]);
  const error = failed.file === file ? failed.error : undefined;
  return { data: module, error, loading: !module && !error };
}

/**
 * Loads a list page by page. `more()` appends the next page; `next` says whether there is one.
 * @template T
 * @param {(cursor: string | undefined, signal: AbortSignal) => Promise<{ items: T[], next_cursor?: string | null }>} load
 * @param {unknown[]} inputs
 * @param {string[]} [kinds] of records; the list loads again when one of them changes, unless more than a page is shown
 */
export function usePages(load, inputs, kinds = []) {
  const first = useLoad((signal) => load(undefined, signal), inputs);
  const [rest, setRest] = useState(/** @type {{ of: unknown, items: T[], next: string | null }} */ ({
    of: null, items: [], next: null,
  }));
  const [problem, setProblem] = useState(/** @type {Problem | undefined} */ (undefined));
  const busy = useRef(false);
  const current = rest.of === first.data ? rest : { of: first.data, items: [], next: first.data?.next_cursor ?? null };
  useLive(kinds, () => { if (!current.items.length) first.again(); });
  const more = async () => {
    if (busy.current || !current.next) return;
    busy.current = true;
    try {
      const page = await load(current.next, new AbortController().signal);
      setRest({ of: current.of, items: [...current.items, ...page.items], next: page.next_cursor ?? null });
      setProblem(undefined);
    } catch (error) {
      setProblem(asProblem(error));
    } finally {
      busy.current = false;
    }
  };
  const items = useMemo(() => first.data && [...first.data.items, ...current.items], [first.data, rest]); // the same until more is loaded
  return {
    items,
    next: Boolean(current.next), loading: first.loading, error: first.error ?? problem, more, again: first.again,
  };
}

/** @param {unknown} error @returns {Problem} */
export function asProblem(error) {
  if (error instanceof Problem) return error;
  console.error(error);
  return new Problem(0, "console", `The console failed: ${error instanceof Error ? error.message : error}`, "");
}

/** A record that is missing is no fault: null. @template T @param {Promise<T>} call of `ask` @returns {Promise<T | null>} */
export const orNull = (call) => call.catch((problem) => {
  if (problem.status === 404) return null;
  throw problem;
});

/** @typedef {{ tenant: string, key_id: string, verbs: string[], agents: string[] | null, users: string[] | null, language_model: boolean }} Caller */

/** Whether the caller may use a verb. Buttons that it may not use are not drawn.
 * @param {Caller | undefined} caller @param {"read" | "write" | "admin"} verb */
export const may = (caller, verb) => caller?.verbs.includes(verb) ?? false;

/** Asked as soon as this module runs, before there is a frame that wants to know. @type {Promise<Caller> | undefined} */
let first = ask(api.GET("/v1/whoami"));
first.catch(() => {}); // whoever calls `whoami` gets it

/** Who asks. @returns {Promise<Caller>} */
export function whoami() {
  const caller = first ?? ask(api.GET("/v1/whoami"));
  first = undefined;
  return caller;
}
