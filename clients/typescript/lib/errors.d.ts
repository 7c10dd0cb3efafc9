/** What a call throws. `RecalldError` is the root; `RecalldConnectionError` means that no answer came. */
import type { Schemas } from "./types.js";
/** The service refused a call (RFC 9457). `code` is a stable word, such as `not_found`; compare it, not the text. */
export declare class RecalldError extends Error {
    readonly code: string;
    readonly detail: string;
    readonly status: number;
    readonly errors: Schemas["ProblemError"][];
    readonly requestId?: string | undefined;
    readonly retryAfter?: number | undefined;
    name: string;
    /**
     * @param code Stable word that says what went wrong.
     * @param detail Sentence for people.
     * @param status HTTP status; 0 when there was no answer.
     * @param errors The fields at fault, each with a JSON pointer.
     * @param requestId Id of the request in the service's log.
     * @param retryAfter Seconds to wait before the next try, if the service said so.
     */
    constructor(code: string, detail: string, status?: number, errors?: Schemas["ProblemError"][], requestId?: string | undefined, retryAfter?: number | undefined, options?: {
        cause?: unknown;
    });
}
/** No answer came: the service is down, the URL is wrong, or it took too long. The message names the URL. */
export declare class RecalldConnectionError extends RecalldError {
    readonly url: string;
    name: string;
    constructor(url: string, detail: string, cause?: unknown);
}
