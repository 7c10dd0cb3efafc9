/** How the importance of a memory fades: the formula of docs/contributing/architecture.md, for a curve. Times are in milliseconds. */

/** @typedef {{ factor: number, grace_days: number, floor: number }} Decay */
/** @typedef {{ base: number, anchor: number, pinned: boolean, decay: Decay }} Fading */

export const DEFAULT_DECAY = { factor: 0.95, grace_days: 30, floor: 0.1 };
export const DAY = 86_400_000;
const MONTH = 30 * DAY;

/** The importance at a time. @param {Fading} fading @param {number} now */
export function importanceAt({ base, anchor, pinned, decay }, now) {
  if (pinned) return base;
  const months = Math.max(0, now - anchor - decay.grace_days * DAY) / MONTH;
  return Math.max(Math.min(base, decay.floor), base * decay.factor ** months);
}

/**
 * The time from which a memory fades: its last access or creation, or later if its importance was set since. That is not
 * told, so it is found from the importance of now.
 * @param {{ base_importance: number, importance: number, last_accessed: string | null, created_at: string, pinned: boolean }} memory
 * @param {Decay} decay @param {number} now
 */
export function anchorOf(memory, decay, now) {
  const known = Date.parse(memory.last_accessed ?? memory.created_at);
  const { base_importance: base, importance, pinned } = memory;
  const expected = importanceAt({ base, anchor: known, pinned, decay }, now);
  if (pinned || decay.factor >= 1 || decay.factor <= 0 || importance <= expected + 1e-6) return known;
  const months = importance < base ? Math.log(importance / base) / Math.log(decay.factor) : 0;
  return Math.max(known, now - decay.grace_days * DAY - months * MONTH);
}

/** When the importance falls to a value; null if it never does. @param {Fading} fading @param {number} value */
export function whenAt({ base, anchor, pinned, decay }, value) {
  if (pinned || decay.factor >= 1 || value < Math.min(base, decay.floor)) return null;
  if (value >= base) return anchor;
  return anchor + decay.grace_days * DAY + (Math.log(value / base) / Math.log(decay.factor)) * MONTH;
}
