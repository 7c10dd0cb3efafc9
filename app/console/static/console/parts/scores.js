/** The score of a hit and the features that it was made of. */
import { html } from "../ui.js";
import { Bar } from "./bars.js";

/** The features by what they say, in the order of the bar. Those that are not named here show by their own names. */
const NAMES = /** @type {Record<string, string>} */ ({
  vector_scaled: "meaning", text_scaled: "words", coverage: "words covered", rerank: "second stage", when: "time asked for",
  latest: "latest", session: "same session", neighbour: "neighbouring turns", speaker: "speaker", number: "numbers",
  importance: "importance", recency: "recency", echo: "repeats the question", filler: "says little",
});
/** Raw values behind the features, on scales of their own. */
const RAW = new Set(["vector", "text"]);
/** The width of every bar, in features that are 1: bars of several hits can be compared. */
const WHOLE = 8;

/** @param {{ score: number, scores?: Record<string, number>, mode: string }} props */
export function Scores({ score, scores = {}, mode }) {
  const named = Object.keys(NAMES).filter((name) => name in scores);
  const others = Object.keys(scores).filter((name) => !(name in NAMES) && !RAW.has(name));
  const part = (/** @type {string} */ name) => ({ name: NAMES[name] ?? name.replaceAll("_", " "), value: scores[name] ?? 0, title: name, tone: Math.max(0, Object.keys(NAMES).indexOf(name)) });
  const said = { hybrid: "probability that it helps", vector: "cosine", text: "BM25" }[mode] ?? "score";
  return html`<div class="small"><b>${score.toFixed(3)}</b> <span class="quiet">${said}</span>
    ${named.length > 0 && html`<${Bar} label=${`Features of the score ${score.toFixed(3)}`} parts=${named.map(part).filter((one) => one.value !== 0)} whole=${WHOLE} digits=${2} />
      <details><summary>All features</summary><p class="quiet">Values before their weights. Cosine ${scores.vector?.toFixed(3) ?? "none"}, BM25 ${scores.text?.toFixed(2) ?? "none"}.</p>
        <dl class="pairs">${[...named, ...others].map(part).map((one) => html`<dt>${one.name}</dt><dd>${one.value.toFixed(4)}</dd>`)}</dl></details>`}</div>`;
}
