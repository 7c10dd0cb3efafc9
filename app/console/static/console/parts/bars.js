/** Bars of named parts: the parts of a score, the sections of a budget. */
import { html } from "../ui.js";

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
