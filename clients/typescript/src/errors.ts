/** What a call throws. `RecalldError` is the root; `RecalldConnectionError` means that no answer came. */
import type { Schemas } from "./types.js";

/** The service refused a call (RFC 9457). `code` is a stable word, such as `not_found`; compare it, not the text. */
export class RecalldError extends Error {
  override name = "RecalldError";
  /**
   * @param code Stable word that says what went wrong.
   * @param detail Sentence for people.
   * @param status HTTP status; 0 when there was no answer.
   * @param errors The fields at fault, each with a JSON pointer.
   * @param requestId Id of the request in the service's log.
   * @param retryAfter Seconds to wait before the next try, if the service said so.
   */
  constructor(
    readonly code: string,
    readonly detail: string,
    readonly status = 0,
    readonly errors: Schemas["ProblemError"][] = [],
    readonly requestId?: string,
    readonly retryAfter?: number,
    options?: { cause?: unknown },
  ) {
    super(status ? `${status} ${code}: ${detail}` : detail, options);
  }
}

/** No answer came: the service is down, the URL is wrong, or it took too long. The message names the URL. */
export class RecalldConnectionError extends RecalldError {
  override name = "RecalldConnectionError";
  constructor(
    readonly url: string,
    detail: string,
    cause?: unknown,
  ) {
    super("connection_failed", detail, 0, [], undefined, undefined, { cause });
  }
}
