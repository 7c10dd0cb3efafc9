/** Root of all errors of this client. `code` is a stable word; compare it, not the text. */
export class RecalldError extends Error {
    code;
    name = "RecalldError";
    constructor(code, message, options) {
        super(message, options);
        this.code = code;
    }
}
/** The service's answer to a request that it did not fulfil (RFC 9457). */
export class Problem extends RecalldError {
    status;
    detail;
    errors;
    requestId;
    retryAfter;
    name = "Problem";
    /**
     * @param status HTTP status.
     * @param code Stable word, for example `not_found`.
     * @param detail Sentence for people.
     * @param errors The fields at fault, each with a JSON pointer.
     * @param requestId Id of the request in the service's log.
     * @param retryAfter Seconds to wait before the next try, if the service said so.
     */
    constructor(status, code, detail, errors, requestId, retryAfter) {
        super(code, `${status} ${code}: ${detail}`);
        this.status = status;
        this.detail = detail;
        this.errors = errors;
        this.requestId = requestId;
        this.retryAfter = retryAfter;
    }
}
/** No answer came: the service is down, the URL is wrong, or it took too long. `code` is `unreachable`. */
export class Unreachable extends RecalldError {
    url;
    name = "Unreachable";
    constructor(url, message, cause) {
        super("unreachable", message, { cause });
        this.url = url;
    }
}
