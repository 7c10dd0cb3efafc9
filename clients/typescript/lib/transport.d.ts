import type { CallOptions, Method } from "./types.js";
export declare const DEFAULT_URL = "http://127.0.0.1:8000";
/** Milliseconds: more than the service gives one call of its language model. */
export declare const DEFAULT_TIMEOUT = 90000;
export interface Options {
    /** Where the service is; default: the environment's RECALLD_URL, else http://127.0.0.1:8000. */
    url?: string;
    /** API key; default: the environment's RECALLD_KEY. */
    key?: string;
    /** Milliseconds for each try; default 90,000. */
    timeout?: number;
    /** Further tries after a lost connection, 429, 502, 503 or 504; default 3. */
    retries?: number;
    /** Sent with every request. */
    headers?: Record<string, string>;
    /** Another `fetch`, for a proxy or a test. */
    fetch?: typeof fetch;
}
export interface Call extends CallOptions {
    path?: Record<string, unknown>;
    query?: Record<string, unknown>;
    body?: unknown;
    file?: Uint8Array | Blob | string;
    mediaType?: string;
}
export declare class Transport {
    readonly url: string;
    private readonly headers;
    private readonly fetch;
    private readonly timeout;
    private readonly retries;
    constructor(options: Options);
    /** The parsed answer; throws Problem or Unreachable. */
    call(method: Method, template: string, call?: Call): Promise<unknown>;
    private init;
    private once;
}
export declare function sleep(milliseconds: number, signal?: AbortSignal): Promise<void>;
/** Unique, not secret. Node 18 has no global `crypto`. */
export declare function randomId(): string;
