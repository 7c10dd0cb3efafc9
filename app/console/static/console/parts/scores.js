/** The score of a hit and what it was made of. */
import { html } from "../ui.js";
import { Bar } from "./bars.js";

/** The features by what they say, in the order of the bar. Those that are not named here show by their own names. */
const NAMES = /** @type {Record<string, string>} */ ({
  kind: "kind of memory", vector_scaled: "meaning", vector_rank: "nearest in meaning", text_scaled: "words", coverage: "words covered", rerank: "second stage", when: "time asked for",
  latest: "latest", session: "same session", neighbour: "neighbouring turns", speaker: "speaker", number: "numbers",
  importance: "importance", recency: "recency", echo: "repeats the question", filler: "says little",
});
/** Raw values behind the features, on scales of their own. */
const RAW = new Set(["vector", "text"]);
/** The width of every bar, in log-odds: bars of several hits can be compared. */
const WHOLE = 24;

/** @param {string} name @param {number} value */
const part = (name, value) => ({ name: NAMES[name] ?? name.replaceAll("_", " "), value, title: name, tone: Math.max(0, Object.keys(NAMES).indexOf(name)) });

/** @param {{ score: number, scores?: Record<string, number> | null, contributions?: Record<string, number> | null, mode: string }} props */
export function Scores({ score, scores, contributions, mode }) {
  scores ??= {};
  const given = Object.entries(contributions ?? {}).map(([name, value]) => ({ ...part(name, value), value }))
    .sort((one, other) => Math.abs(other.value) - Math.abs(one.value));
  const sum = given.reduce((all, one) => all + one.value, 0);
  const against = given.filter((one) => one.value < 0).map((one) => ({ ...one, value: -one.value }));
  const named = Object.keys(NAMES).filter((name) => name in scores);
  const others = Object.keys(scores).filter((name) => !(name in NAMES) && !RAW.has(name));
  const said = { hybrid: "probability that it helps", vector: "cosine", text: "BM25" }[mode] ?? "score";
  return html`<div class="small"><b>${score.toFixed(3)}</b> <span class="quiet">${said}</span>
    ${given.length > 0 && html`<${Bar} label=${`What speaks for this hit: ${score.toFixed(3)}`} parts=${given.filter((one) => one.value > 0)} whole=${WHOLE} digits=${2} />`}
    ${against.length > 0 && html`<p class="quiet small">Against it</p><${Bar} label="What speaks against this hit" parts=${against} whole=${WHOLE} digits=${2} />`}
    ${named.length > 0 && html`<details><summary>All features</summary><p class="quiet">Above: the log-odds that each feature adds, ${sum.toFixed(2)} in all, which order the hits. Here: the features before their weights. Cosine ${scores.vector?.toFixed(3) ?? "none"}, BM25 ${scores.text?.toFixed(2) ?? "none"}.</p>
        <dl class="pairs">${[...named, ...others].map((name) => part(name, scores[name])).map((one) => html`<dt>${one.name}</dt><dd>${one.value.toFixed(4)}</dd>`)}</dl></details>`}</div>`;
}
