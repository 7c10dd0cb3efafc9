/** The service refused a call (RFC 9457). `code` is a stable word, such as `not_found`; compare it, not the text. */
export class RecalldError extends Error {
    code;
    detail;
    status;
    errors;
    requestId;
    retryAfter;
    name = "RecalldError";
    /**
     * @param code Stable word that says what went wrong.
     * @param detail Sentence for people.
     * @param status HTTP status; 0 when there was no answer.
     * @param errors The fields at fault, each with a JSON pointer.
     * @param requestId Id of the request in the service's log.
     * @param retryAfter Seconds to wait before the next try, if the service said so.
     */
    constructor(code, detail, status = 0, errors = [], requestId, retryAfter, options) {
        super(status ? `${status} ${code}: ${detail}` : detail, options);
        this.code = code;
        this.detail = detail;
        this.status = status;
        this.errors = errors;
        this.requestId = requestId;
        this.retryAfter = retryAfter;
    }
}
/** No answer came: the service is down, the URL is wrong, or it took too long. The message names the URL. */
export class RecalldConnectionError extends RecalldError {
    url;
    name = "RecalldConnectionError";
    constructor(url, detail, cause) {
        super("connection_failed", detail, 0, [], undefined, undefined, { cause });
        this.url = url;
    }
}
