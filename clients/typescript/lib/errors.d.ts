/**
 * What a call throws.
 *
 * RecalldError
 * ├── Problem        the service answered, and says by `code` why it did not do it
 * └── Unreachable    the service did not answer; the message names its URL
 */
import type { Schemas } from "./types.js";
/** Root of all errors of this client. `code` is a stable word; compare it, not the text. */
export declare class RecalldError extends Error {
    readonly code: string;
    name: string;
    constructor(code: string, message: string, options?: {
        cause?: unknown;
    });
}
/** The service's answer to a request that it did not fulfil (RFC 9457). */
export declare class Problem extends RecalldError {
    readonly status: number;
    readonly detail: string;
    readonly errors: Schemas["ProblemError"][];
    readonly requestId: string | undefined;
    readonly retryAfter: number | undefined;
    name: string;
    /**
     * @param status HTTP status.
     * @param code Stable word, for example `not_found`.
     * @param detail Sentence for people.
     * @param errors The fields at fault, each with a JSON pointer.
     * @param requestId Id of the request in the service's log.
     * @param retryAfter Seconds to wait before the next try, if the service said so.
     */
    constructor(status: number, code: string, detail: string, errors: Schemas["ProblemError"][], requestId: string | undefined, retryAfter: number | undefined);
}
/** No answer came: the service is down, the URL is wrong, or it took too long. `code` is `unreachable`. */
export declare class Unreachable extends RecalldError {
    readonly url: string;
    name: string;
    constructor(url: string, message: string, cause?: unknown);
}
