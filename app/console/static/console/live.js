/**
 * Follows the changes of the service (`GET /v1/changes`) in one stream for the tab, so that what is in view is loaded again
 * when it changes. The stream opens when a page has what it asked for, and closes while nobody looks. It goes on from where
 * the log of changes ended before the page asked, so nothing is missed in between. Where the service
 * refuses it (too many streams, a proxy without streams), pages stay as they are until they are loaded again.
 */

/** So long nothing was asked before the stream opens. */
const QUIET_MS = 1000;
/** Until a stream that broke is opened again. */
const AGAIN_MS = 10_000;
/** Changes of this time are one; a view is loaded again every three seconds at most. */
const GATHER_MS = 300;
const PACE_MS = 3000;

/** @typedef {{ kinds: string[], act: () => void, timer?: ReturnType<typeof setTimeout>, last: number }} Listener */

/** A stream that broke so long ago that the log does not reach back to it. */
const LOST = 410;

/** @param {() => Promise<string | undefined>} end asks where the log ends now; undefined where the service does not say
 * @param {(after: string, signal: AbortSignal) => Promise<Response>} open asks for the stream of what changed after that */
export function follow(end, open) {
  /** Where the stream goes on. @type {Promise<string | undefined> | undefined} */
  let after;
  /** @type {Set<Listener>} */
  const listeners = new Set();
  /** @type {AbortController | undefined} */
  let stream;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let refused = false;

  /** @param {string} [kind] any, where it is not said @returns {void} */
  function tell(kind) {
    for (const listener of listeners) {
      if (listener.timer || (kind && !listener.kinds.includes(kind))) continue;
      listener.timer = setTimeout(() => {
        listener.timer = undefined;
        listener.last = Date.now();
        listener.act();
      }, Math.max(GATHER_MS, listener.last + PACE_MS - Date.now()));
    }
  }

  /** @param {ReadableStream<Uint8Array>} body */
  async function hear(body) {
    const reader = body.pipeThrough(/** @type {any} */ (new TextDecoderStream())).getReader();
    let rest = "";
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (rest + part.value).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) {
        if (line.startsWith("data:")) tell(JSON.parse(line.slice(5)).kind);
        else if (line.startsWith("id:")) after = Promise.resolve(line.slice(3).trim());
      }
    }
  }

  async function begin() {
    if (refused || stream || document.hidden || !listeners.size) return;
    const mine = stream = new AbortController();
    try {
      const response = await open((await after) ?? "now", mine.signal);
      refused = !response.ok && response.status !== LOST;
      if (response.status === LOST) anew();
      if (response.ok && response.body) await hear(response.body);
    } catch {
      // The network broke, or nobody looks any more.
    }
    if (stream === mine) stream = undefined;
    if (!mine.signal.aborted) later(AGAIN_MS);
  }

  /** All is loaded again, and the stream goes on from before that. */
  function anew() {
    after = end();
    after.then(() => tell());
  }

  /** @param {number} pause */
  function later(pause) {
    clearTimeout(timer);
    timer = setTimeout(begin, pause);
  }

  function close() {
    stream?.abort();
    stream = undefined;
    after = undefined;
    refused = false;
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) close();
    else if (listeners.size) {
      anew();
      later(QUIET_MS);
    }
  });
  return {
    /** Something is asked: the stream waits until that is over, and begins before it. */
    asked: () => {
      after ??= end();
      if (!stream) later(QUIET_MS);
    },
    close,
    /** Calls `act` after changes of records of these kinds. Returns what ends it. @param {string[]} kinds @param {() => void} act */
    on(kinds, act) {
      const listener = /** @type {Listener} */ ({ kinds, act, last: 0 });
      listeners.add(listener);
      return () => {
        clearTimeout(listener.timer);
        listeners.delete(listener);
      };
    },
  };
}
