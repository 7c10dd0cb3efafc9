/** The importance of a memory over time: what was stored, what decay makes of it, and when it falls out of sight. */
import { api, ask, useLoad } from "../api.js";
import { html } from "../ui.js";
import { Chart } from "./chart.js";
import { counted } from "./text.js";
import { DAY, DEFAULT_DECAY, anchorOf, importanceAt, whenAt } from "./decay.js";

/** @typedef {import("schema").components["schemas"]} Schemas */

/** Days ahead that are drawn: twice the past, within these. What lies behind a memory of three days would be no line beside a year. */
const AHEAD = /** @type {const} */ ([60, 365]);
/** Behind it lies less than this share of the chart: no line, and no name in the legend. */
const SEEN = 0.02;
const STEPS = 48;

/** The decay of an agent: its settings, or the defaults if it is not registered. An agent is asked for only if the list of
 * agents is not whole. @param {string | null} agent_id @param {import("./scope.js").Known} owners */
function useDecay(agent_id, owners) {
  return useLoad(async (signal) => {
    const listed = owners.agents.find((one) => one.agent_id === agent_id);
    if (!agent_id || (!listed && owners.every)) return { decay: DEFAULT_DECAY, least: 0 };
    const { settings } = listed ?? await ask(api.GET("/v1/agents/{agent_id}", { params: { path: { agent_id } }, signal }));
    return { decay: { ...DEFAULT_DECAY, ...settings.decay }, least: settings.min_importance ?? 0 };
  }, [agent_id]);
}

/** Past and future in one series of times: null where a series has no value.
 * @param {Schemas["Memory"]} memory @param {Schemas["HistoryEntry"][]} versions
 * @param {import("./decay.js").Decay} decay @param {number} now */
function curve(memory, versions, decay, now) {
  const fading = { base: memory.base_importance, anchor: anchorOf(memory, decay, now), pinned: memory.pinned, decay };
  const start = Math.min(Date.parse(memory.created_at), fading.anchor);
  const past = versions.map((version) => ({ at: Date.parse(version.changed_at), value: Number(version.record.importance) }))
    .filter((point) => point.at < fading.anchor && Number.isFinite(point.value));
  const first = past.length ? [] : [{ at: start, value: memory.base_importance }];
  const earlier = [...first, ...past].filter((point) => point.at < fading.anchor).sort((one, other) => one.at - other.at);
  const since = Array.from({ length: STEPS + 1 }, (_, step) => fading.anchor + ((now - fading.anchor) * step) / STEPS);
  const future = Math.max(AHEAD[0] * DAY, Math.min(AHEAD[1] * DAY, 2 * (now - start)));
  const ahead = Array.from({ length: STEPS }, (_, step) => now + (future * (step + 1)) / STEPS);
  const times = [...earlier.map((point) => point.at), ...since, ...ahead];
  const known = times.map((at) => (at > now ? null : earlier.find((point) => point.at === at)?.value ?? importanceAt(fading, at)));
  const coming = times.map((at) => (at < now ? null : importanceAt(fading, at)));
  return { fading, x: times.map((at) => at / 1000), known, coming, past: (now - start) / (now - start + future) >= SEEN };
}

/** @param {number} at */
const day = (at) => new Date(at).toISOString().slice(0, 10);

/** When nobody is shown it any more. @param {Schemas["Memory"]} memory @param {import("./decay.js").Fading} fading @param {number} least @param {number} now */
function ending(memory, fading, least, now) {
  if (memory.expires_at) return `It is forgotten at ${memory.expires_at.slice(0, 16).replace("T", " ")}, when it expires.`;
  if (memory.pinned) return "It is pinned: it does not fade, and no policy forgets it.";
  const hidden = least > 0 ? whenAt(fading, least) : null;
  if (hidden !== null) {
    return hidden <= now ? `Searches of this agent leave it out since ${day(hidden)}: its least importance is ${least}.`
      : `If nobody recalls it, searches of this agent leave it out from ${day(hidden)} on: its least importance is ${least}.`;
  }
  const floor = whenAt(fading, fading.decay.floor);
  return floor === null || floor <= now ? "It does not fade further. A policy of retention may forget it."
    : `If nobody recalls it, it fades until ${day(floor)} and stays at ${fading.decay.floor}. A policy of retention may forget it.`;
}

/** @param {{ memory: Schemas["Memory"], versions: Schemas["HistoryEntry"][], owners: import("./scope.js").Known }} props */
export function ImportanceCurve({ memory, versions, owners }) {
  const found = useDecay(memory.agent_id, owners);
  const { decay, least } = found.data ?? { decay: DEFAULT_DECAY, least: 0 };
  if (!found.data && found.loading) return html`<p class="quiet">Loading…</p>`;
  const now = Math.floor(Date.now() / 60_000) * 60_000;
  const { fading, x, known, coming, past: hasPast } = curve(memory, versions, decay, now);
  const accessed = memory.last_accessed ? `, last recalled ${memory.last_accessed.slice(0, 10)}` : "";
  return html`<section><h3>Importance</h3>
    <${Chart} label=${`Importance ${memory.importance.toFixed(2)} now; recalled ${counted(memory.access_count, "time")}${accessed}`} x=${x} range=${[0, 1]} digits=${3} height=${150}
      series=${[...(hasPast ? [{ name: "so far", values: known, tone: 0 }] : []), { name: "if nobody recalls it", values: coming, dash: [6, 4], tone: 1 },
        ...(least > 0 ? [{ name: "least shown", values: x.map(() => least), dash: [2, 4], tone: 7 }] : [])]} />
    <p class="small quiet">${ending(memory, fading, least, now)}</p></section>`;
}
