/** How well a hit fits: a word and a bar; what the score is made of comes when it is asked for. */
import { html } from "../ui.js";
import { Fold, percent, words } from "./text.js";

/** The features by what they say, in the order of the table. Those that are not named here show by their own names. */
const NAMES = /** @type {Record<string, string>} */ ({
  kind: "kind of memory", vector_scaled: "meaning", vector_rank: "nearest in meaning", text_scaled: "words", coverage: "words covered", rerank: "second stage", when: "time asked for",
  latest: "latest", present: "present value", session: "the rest of its session", neighbour: "neighbouring turns", speaker: "speaker", number: "numbers",
  importance: "importance", recency: "recency", echo: "repeats the question", repeats: "repeats the question", filler: "says little", length: "length",
});
/** Raw values behind the features, on scales of their own. */
const RAW = new Set(["vector", "text"]);

/** From which probability on a hit is called what. */
const STRONG = 0.5;
export const LIKELY = 0.2;
/** Hits below it are not listed unless they are asked for: one in a hundred of them helps, at most. */
export const LEAST_SHOWN = 0.01;

/** @param {number} probability */
export const strength = (probability) => (probability >= STRONG ? "strong" : probability >= LIKELY ? "likely" : "weak");

/** @param {string} name */
const named = (name) => NAMES[name] ?? words(name);
/** @param {number} value */
const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;

/** A probability as a bar, a word and a percentage: .51 is strong and .49 likely, which the bar alone does not show. @param {{ probability: number }} props */
export function Strength({ probability }) {
  const word = strength(probability);
  return html`<span class=${`strength ${word}`} title=${`The probability that it helps is ${probability.toFixed(3)}`}>
    <span class="measure" aria-hidden="true"><i class="share" style=${{ width: `${Math.max(4, Math.min(100, probability * 100))}%` }}></i></span>${word} <span class="small">${percent(probability)}</span></span>`;
}

/** @param {{ score: number, scores?: Record<string, number> | null, contributions?: Record<string, number> | null, mode: string }} props */
export function Scores({ score, scores, contributions, mode }) {
  if (mode !== "hybrid") return html`<div class="small quiet">${mode === "vector" ? "cosine" : "BM25"} ${score.toFixed(3)}</div>`;
  return html`<div class="score"><${Strength} probability=${score} />
    <${Fold} title="Why" small=${false}>${() => html`<${Parts} score=${score} scores=${scores ?? {}} contributions=${contributions ?? {}} />`}</${Fold}></div>`;
}

/** @param {{ score: number, scores: Record<string, number>, contributions: Record<string, number> }} props */
function Parts({ score, scores, contributions }) {
  const features = [...new Set([...Object.keys(contributions), ...Object.keys(scores)])].filter((name) => !RAW.has(name))
    .sort((one, other) => Math.abs(contributions[other] ?? 0) - Math.abs(contributions[one] ?? 0));
  const sum = Object.values(contributions).reduce((all, value) => all + value, 0);
  return html`<p class="quiet small">It helps with a probability of ${score.toFixed(3)}. Each feature speaks for it (+) or against it (−) with the log-odds below, ${signed(sum)} in all.
      Cosine ${scores.vector?.toFixed(3) ?? "none"}, BM25 ${scores.text?.toFixed(2) ?? "none"}.</p>
    <table class="parts"><thead><tr><th>Feature</th><th class="number">Adds</th><th class="number">Value</th></tr></thead>
      <tbody>${features.map((name) => html`<tr key=${name} title=${name}><td>${named(name)}</td><td class="number">${name in contributions ? signed(contributions[name]) : ""}</td>
        <td class="number">${scores[name]?.toFixed(2) ?? ""}</td></tr>`)}</tbody></table>`;
}
