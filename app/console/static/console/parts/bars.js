/** Bars of named parts: the parts of a score, the sections of a budget; and a rate on its interval. */
import { html } from "../ui.js";
import { percent } from "./text.js";

/** @typedef {{ name: string, value: number, title?: string, tone?: number }} Part `tone`: 0 to 7, the colour. */

/** @param {Part} part @param {Part[]} parts */
const tone = (part, parts) => `tone-${(part.tone ?? parts.indexOf(part)) % 8}`;

/**
 * A bar of parts, each as wide as its value, with a legend that says the numbers: colour is not the only sign.
 * Parts of 0 and less are in the legend only.
 * @param {{ parts: Part[], whole?: number, label: string, digits?: number, unit?: string }} props
 *   `whole`: the value of the full width; by default the sum of the parts.
 */
export function Bar({ parts, whole, label, digits = 3, unit = "" }) {
  const seen = parts.filter((part) => part.value > 0);
  const full = whole || seen.reduce((sum, part) => sum + part.value, 0) || 1;
  const number = (/** @type {number} */ value) => `${value.toFixed(digits)}${unit}`;
  return html`<div class="bar" role="group" aria-label=${label}>
    <div class="track" aria-hidden="true">${seen.map((part) => html`
      <span class=${`part ${tone(part, parts)}`} title=${`${part.name} ${number(part.value)}`}
        style=${{ width: `${Math.min(100, (part.value / full) * 100)}%` }}></span>`)}</div>
    <ul class="legend">${parts.map((part) => html`<li title=${part.title ?? ""}>
      <i class=${tone(part, parts)}></i>${part.name} <b>${number(part.value)}</b></li>`)}</ul>
  </div>`;
}

const Z = 1.96;

/** The 95 % Wilson interval of a rate. @param {number} successes @param {number} total @returns {{ low: number, high: number }} */
export function wilson(successes, total) {
  if (!total) return { low: 0, high: 1 };
  const rate = successes / total;
  const middle = (rate + (Z * Z) / (2 * total)) / (1 + (Z * Z) / total);
  const half = (Z / (1 + (Z * Z) / total)) * Math.sqrt((rate * (1 - rate)) / total + (Z * Z) / (4 * total * total));
  return { low: Math.max(0, middle - half), high: Math.min(1, middle + half) };
}

/** A rate as a mark on its interval, with both in figures. @param {{ value: number, low: number, high: number }} props */
export function Interval({ value, low, high }) {
  return html`<div class="interval" role="img" aria-label=${`${percent(value)}, between ${percent(low)} and ${percent(high)}`}>
      <i style=${{ left: `${low * 100}%`, width: `${(high - low) * 100}%` }}></i><b style=${{ left: `${Math.min(99, value * 100)}%` }}></b></div>
    <span class="small">${percent(value)} <span class="quiet">(${percent(low)} – ${percent(high)})</span></span>`;
}
