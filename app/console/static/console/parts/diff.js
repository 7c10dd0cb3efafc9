/** What changed between two versions of a record. */
import { diffWordsWithSpace } from "../vendor/diff.mjs";
import { html } from "../ui.js";
import { visible } from "./text.js";

const TIMEOUT_MS = 200;

/** @param {unknown} value */
const shown = (value) => (value === null || value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

/** Two texts, word by word; other values, and texts where that takes too long, whole. @param {{ old: unknown, now: unknown }} props */
export function Diff({ old, now }) {
  const [before, after] = [shown(old), shown(now)];
  const texts = typeof old === "string" && typeof now === "string";
  const pieces = (texts && diffWordsWithSpace(before, after, { timeout: TIMEOUT_MS }))
    || [{ value: before, removed: true, added: false }, { value: after, added: true, removed: false }];
  return html`<span class="text" dir="auto">${pieces.map(({ value, added, removed }) =>
    added ? html`<ins>${visible(value)}</ins>` : removed ? html`<del>${visible(value)}</del>` : visible(value))}</span>`;
}

/** The fields in which two versions differ, without those that each change moves.
 * @param {Record<string, unknown>} old @param {Record<string, unknown>} now */
export function changes(old, now) {
  const quiet = new Set(["version", "updated_at", "embedding", "importance", "last_accessed", "access_count"]);
  return Object.keys({ ...old, ...now }).filter((name) => !quiet.has(name) && name in old && name in now
    && JSON.stringify(old[name]) !== JSON.stringify(now[name]));
}
