/** Charts of uPlot in the colours of the page, each with its numbers as a table for those who cannot see it. */
import { html, useEffect, useRef } from "../ui.js";
import { Fold } from "./text.js";

/** The library with its rules, which the rows of a page need not wait for. @type {Promise<typeof import("../vendor/uplot.mjs").default> | undefined} */
let library;

/** @returns {NonNullable<typeof library>} */
function fetched() {
  library ??= Promise.all([import("../vendor/uplot.mjs"), new Promise((resolve) => {
    const href = new URL("../vendor/uplot.css", import.meta.url).href;
    document.head.append(Object.assign(document.createElement("link"), { rel: "stylesheet", href, onload: resolve, onerror: resolve }));
  })]).then(([module]) => module.default);
  return library;
}

/** @param {HTMLElement} near @param {string} name a custom property @returns {string} a colour that a canvas takes */
export function colour(near, name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  near.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const DAY_SECONDS = 86_400;
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** @typedef {{ name: string, values: (number | null)[], tone?: number, dash?: number[], fill?: boolean, bars?: boolean, points?: boolean }} Series */

/**
 * @param {{ x: number[], series: Series[], label: string, height?: number, time?: boolean, range?: [number, number],
 *   digits?: number, table?: boolean }} props
 *   `x`: seconds since 1970 with `time`, any numbers without. `range`: of the y-axis.
 */
export function Chart({ x, series, label, height = 180, time = true, range, digits = 0, table = true }) {
  const node = useRef(/** @type {HTMLDivElement | null} */ (null));
  useEffect(() => {
    const box = node.current;
    if (!box || !x.length) return undefined;
    /** @type {import("../vendor/uplot.mjs").default | undefined} */
    let drawn;
    let gone = false;
    const again = async () => {
      const uPlot = await fetched();
      if (gone) return;
      drawn?.destroy();
      drawn = plot(uPlot, box, { x, series, height, time, range });
    };
    again();
    const resized = new ResizeObserver(() => drawn?.setSize({ width: box.clientWidth, height }));
    resized.observe(box);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", again);
    addEventListener("theme", again);
    return () => {
      gone = true;
      resized.disconnect();
      scheme.removeEventListener("change", again);
      removeEventListener("theme", again);
      drawn?.destroy();
    };
  }, [JSON.stringify([x, series, height, time, range])]);
  const at = (/** @type {number} */ value) => (time ? new Date(value * 1000).toISOString().slice(0, 10) : value);
  const said = (/** @type {number | null} */ value) => (value === null ? "" : value.toFixed(digits));
  return html`<figure class="chart"><figcaption>${label}</figcaption>
    <div ref=${node} aria-hidden="true" style=${{ minHeight: `${x.length ? height : 0}px` }}></div>
    ${table && html`<${Fold} title="Numbers">${() => html`<div class="scroll" tabindex="0" role="region" aria-label=${`Numbers of ${label}`}><table>
      <thead><tr><th>${time ? "Day" : "From"}</th>${series.map((one) => html`<th>${one.name}</th>`)}</tr></thead>
      <tbody>${x.map((value, index) => html`<tr><th>${at(value)}</th>${series.map((one) => html`<td>${said(one.values[index])}</td>`)}</tr>`)}</tbody>
    </table></div>`}</${Fold}>`}
  </figure>`;
}

/** @param {typeof import("../vendor/uplot.mjs").default} uPlot @param {HTMLDivElement} box @param {{ x: number[], series: Series[], height: number, time: boolean, range?: [number, number] }} given */
function plot(uPlot, box, { x, series, height, time, range }) {
  const days = (/** @type {unknown} */ _, /** @type {number[]} */ splits) => {
    const year = (/** @type {number} */ at) => new Date(at * 1000).getUTCFullYear();
    const years = year(x[0]) !== year(x[x.length - 1]);  // then the first day and the first one of each year say theirs
    const named = splits.map((at, index) => `${DAY.format(at * 1000)}${years && year(at) !== year(splits[index - 1]) ? `\n${year(at)}` : ""}`);
    return named.map((name, index) => (name === named[index - 1] ? "" : name));
  };
  const axis = { stroke: colour(box, "--quiet"), grid: { stroke: colour(box, "--line"), width: 1 }, ticks: { show: false } };
  const lines = series.map((one, index) => {
    const stroke = colour(box, `--tone-${one.tone ?? index % 8}`);
    return {
      label: one.name, stroke, width: 2, dash: one.dash, points: { show: one.points ?? false },
      fill: one.fill || one.bars ? `color-mix(in srgb, ${stroke} 25%, transparent)` : undefined,
      paths: one.bars ? uPlot.paths.bars?.({ size: [0.7, 60] }) : undefined,
    };
  });
  // half of a bar or a point stands on each side of its place: the first and the last one need room there
  const step = Math.min(time ? DAY_SECONDS : Infinity, ...x.slice(1).map((at, index) => at - x[index]));
  const room = series.some((one) => one.bars || one.points) && x.length && Number.isFinite(step) ? step * 0.6 : 0;
  const across = /** @type {[number, number]} */ ([x[0] - room, x[x.length - 1] + room]);
  const options = {
    width: box.clientWidth || 300, height, legend: { show: series.length > 1, live: false }, cursor: { drag: { x: false, y: false } },
    scales: { x: { time, ...(room ? { range: across } : {}) }, y: range ? { range } : {} }, axes: [{ ...axis, size: x.length && time && new Date(x[0] * 1000).getUTCFullYear() !== new Date(x[x.length - 1] * 1000).getUTCFullYear() ? 48 : 32, gap: 10, ...(time ? { values: days } : {}) }, { ...axis, size: 44 }], series: [{}, ...lines],
  };
  return new uPlot(options, [x, ...series.map((one) => one.values)], box);
}
