/**
 * What a call throws.
 *
 * RecalldError
 * ├── Problem        the service answered, and says by `code` why it did not do it
 * └── Unreachable    the service did not answer; the message names its URL
 */
import type { Schemas } from "./types.js";

/** Root of all errors of this client. `code` is a stable word; compare it, not the text. */
export class RecalldError extends Error {
  override name = "RecalldError";
  constructor(
    readonly code: string,
    message: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
  }
}

/** The service's answer to a request that it did not fulfil (RFC 9457). */
export class Problem extends RecalldError {
  override name = "Problem";
  /**
   * @param status HTTP status.
   * @param code Stable word, for example `not_found`.
   * @param detail Sentence for people.
   * @param errors The fields at fault, each with a JSON pointer.
   * @param requestId Id of the request in the service's log.
   * @param retryAfter Seconds to wait before the next try, if the service said so.
   */
  constructor(
    readonly status: number,
    code: string,
    readonly detail: string,
    readonly errors: Schemas["ProblemError"][],
    readonly requestId: string | undefined,
    readonly retryAfter: number | undefined,
  ) {
    super(code, `${status} ${code}: ${detail}`);
  }
}

/** No answer came: the service is down, the URL is wrong, or it took too long. `code` is `unreachable`. */
export class Unreachable extends RecalldError {
  override name = "Unreachable";
  constructor(
    readonly url: string,
    message: string,
    cause?: unknown,
  ) {
    super("unreachable", message, { cause });
  }
}
