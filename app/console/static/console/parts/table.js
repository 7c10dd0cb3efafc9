/** A table of records. On a phone each row is a card, so that no column is out of view. */
import { html } from "../ui.js";

/** A column; figures stand at the right. @typedef {string | { figure: string }} Head */

/** @param {Head} head */
const named = (head) => (typeof head === "string" ? { name: head, kind: undefined } : { name: head.figure, kind: "number" });

/**
 * The first column names the row.
 * @example html`<${Table} label="Jobs" heads=${["Job", { figure: "Runs" }]} rows=${[{ key: "decay", cells: ["decay", 7] }]} />`
 * @param {{ label: string, heads: Head[], rows: { key: string, cells: unknown[] }[] }} props
 */
export function Table({ label, heads, rows }) {
  const columns = heads.map(named);
  return html`<div class="scroll cards" tabindex="0" role="region" aria-label=${label}><table>
    <thead><tr>${columns.map(({ name, kind }) => html`<th key=${name} scope="col" class=${kind}>${name}</th>`)}</tr></thead>
    <tbody>${rows.map(({ key, cells: [first, ...rest] }) => html`<tr key=${key}><th scope="row">${first}</th>
      ${rest.map((cell, index) => html`<td class=${columns[index + 1].kind} data-head=${columns[index + 1].name}><div>${cell}</div></td>`)}</tr>`)}</tbody></table></div>`;
}
