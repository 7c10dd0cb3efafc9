/** One HTTP call: URL, headers, time limit, retries, and errors with a code. */
import { Problem, RecalldError, Unreachable } from "./errors.js";
export const DEFAULT_URL = "http://127.0.0.1:8000";
/** Milliseconds: more than the service gives one call of its language model. */
export const DEFAULT_TIMEOUT = 90_000;
const RETRIED = new Set([429, 502, 503, 504]);
const FIRST_PAUSE = 250; // milliseconds; doubles with each try
const LONGEST_PAUSE = 8_000;
const LONGEST_RETRY_AFTER = 60_000; // a service that asks for more is not waited for
export class Transport {
    url;
    headers;
    fetch;
    timeout;
    retries;
    constructor(options) {
        const url = options.url ?? environment("RECALLD_URL") ?? DEFAULT_URL;
        if (!/^https?:\/\/[^/]/.test(url)) {
            const shown = url.replace(/^.*@|\?.*$/gs, ""); // before and behind may be secrets
            throw new RecalldError("invalid_url", `url must begin with http:// or https:// and name a host, not "${shown}"`);
        }
        if (/^https?:\/\/[^/?#]*@/.test(url)) {
            throw new RecalldError("invalid_url", "url must hold no user and password: the key is RECALLD_KEY or the option key");
        }
        this.url = url.replace(/\/+$/, "");
        const key = options.key ?? environment("RECALLD_KEY");
        this.headers = { ...(key ? { authorization: `Bearer ${key}` } : {}), ...options.headers };
        this.fetch = options.fetch ?? ((...args) => globalThis.fetch(...args));
        this.timeout = options.timeout ?? DEFAULT_TIMEOUT;
        this.retries = options.retries ?? 3;
    }
    /** The parsed answer; throws Problem or Unreachable. */
    async call(method, template, call = {}) {
        const url = this.url + address(template, call);
        const init = this.init(method, call);
        const repeatable = method !== "PATCH" && call.ifMatch === undefined;
        for (let tried = 0;; tried++) {
            const last = tried >= (call.retries ?? this.retries);
            try {
                return await this.once(url, init, call);
            }
            catch (error) {
                // the try before deleted it, and its answer was lost
                if (method === "DELETE" && tried > 0 && error instanceof Problem && error.status === 404)
                    return undefined;
                if (last || call.signal?.aborted || !isTransient(error, repeatable))
                    throw error;
                await sleep(pause(tried, error), call.signal);
            }
        }
    }
    init(method, call) {
        const headers = { accept: "application/json", ...this.headers };
        if (call.body !== undefined)
            headers["content-type"] = "application/json";
        if (call.file !== undefined)
            headers["content-type"] = call.mediaType ?? "application/octet-stream";
        if (method === "POST")
            headers["idempotency-key"] = call.idempotencyKey ?? randomId();
        if (call.ifMatch !== undefined) {
            headers["if-match"] = typeof call.ifMatch === "number" ? `"${call.ifMatch}"` : call.ifMatch;
        }
        if (call.ifNoneMatch !== undefined)
            headers["if-none-match"] = call.ifNoneMatch;
        const body = call.file ?? (call.body === undefined ? undefined : JSON.stringify(call.body));
        return { method, headers, ...(body === undefined ? {} : { body: body }) };
    }
    async once(url, init, call) {
        const limit = call.timeout ?? this.timeout;
        const ending = new AbortController();
        const abort = () => ending.abort();
        let late = false;
        const timer = setTimeout(() => ((late = true), abort()), limit);
        call.signal?.addEventListener("abort", abort);
        try {
            call.signal?.throwIfAborted();
            const response = await this.fetch(url, { ...init, signal: ending.signal });
            return read(response, await response.text());
        }
        catch (error) {
            if (error instanceof RecalldError)
                throw error;
            if (call.signal?.aborted)
                throw call.signal.reason;
            if (late)
                throw new TimedOut(this.url, `${this.url} did not answer within ${limit / 1000} s`, error);
            throw new Unreachable(this.url, `cannot reach Recalld at ${this.url}: ${reason(error)}`, error);
        }
        finally {
            clearTimeout(timer);
            call.signal?.removeEventListener("abort", abort);
        }
    }
}
/** Not retried: the request may still run, and the caller has waited long enough. */
class TimedOut extends Unreachable {
}
function environment(name) {
    const { process } = globalThis;
    return process?.env?.[name] || undefined;
}
function address(template, { path = {}, query = {} }) {
    const where = template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(String(path[name])));
    const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const words = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return words ? `${where}?${words}` : where;
}
function read(response, text) {
    const isJson = /^application\/(\S+\+)?json/.test(response.headers.get("content-type") ?? "");
    if (response.ok)
        return text && isJson ? JSON.parse(text) : text || undefined;
    const after = Number(response.headers.get("retry-after") || NaN);
    const told = (isJson ? parsed(text) : {});
    throw new Problem(response.status, told["code"] ?? "unexpected_answer", told["detail"] ?? `${response.url} answered without a problem document`, told["errors"] ?? [], told["request_id"], Number.isFinite(after) ? after : undefined);
}
function parsed(text) {
    try {
        return JSON.parse(text) ?? {};
    }
    catch {
        return {}; // the status says enough
    }
}
function isTransient(error, repeatable) {
    if (error instanceof Unreachable)
        return repeatable && !(error instanceof TimedOut);
    if (!(error instanceof Problem))
        return false;
    if (error.status === 429)
        return true; // refused before anything was done
    return repeatable && (RETRIED.has(error.status) || error.code === "idempotency_in_progress");
}
/** Milliseconds before the next try: what the service asked for, else a random part of a span that doubles. */
function pause(tried, error) {
    if (error instanceof Problem && error.retryAfter !== undefined) {
        const asked = error.retryAfter * 1000;
        if (asked > LONGEST_RETRY_AFTER)
            throw error;
        return asked + Math.random() * FIRST_PAUSE;
    }
    return Math.random() * Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (tried + 1));
}
export function sleep(milliseconds, signal) {
    return new Promise((resolve, reject) => {
        const stop = () => (clearTimeout(timer), reject(signal?.reason));
        const timer = setTimeout(() => (signal?.removeEventListener("abort", stop), resolve()), milliseconds);
        signal?.addEventListener("abort", stop, { once: true });
    });
}
function reason(error) {
    const cause = error.cause;
    return cause?.code || cause?.message || (error instanceof Error ? error.message : String(error));
}
/** Unique, not secret. Node 18 has no global `crypto`. */
export function randomId() {
    const part = () => Math.random().toString(36).slice(2);
    return globalThis.crypto?.randomUUID?.() ?? `${Date.now().toString(36)}-${part()}${part()}`;
}
