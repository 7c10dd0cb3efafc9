/** The result of an operation: histograms before and after for decay, else its numbers. */
import { api } from "../api.js";
import { html, useEffect, useState } from "../ui.js";
import { Chart } from "./chart.js";
import { Value } from "./records.js";
import { Tag, Text, words } from "./text.js";

/** @typedef {import("schema").components["schemas"]["Operation"]} Operation */

/** How many memories have which importance, before and after. @param {{ before: number[], after: number[] }} props */
export function Histograms({ before, after }) {
  const x = before.map((_, bar) => bar / before.length);
  return html`<div class="grid">${[{ name: "before", values: before, tone: 7 }, { name: "after", values: after, tone: 0 }].map((one) => html`
    <${Chart} key=${one.name} label=${`Memories by importance, ${one.name}`} x=${x} time=${false} height=${140}
      range=${[0, Math.max(1, ...before, ...after)]} series=${[{ ...one, bars: true }]} />`)}</div>`;
}

/** @param {unknown} value @returns {value is number[]} */
const numbers = (value) => Array.isArray(value) && value.length > 0 && value.every((one) => typeof one === "number");

/** @param {{ operation: Operation }} props */
export function Result({ operation }) {
  const { result, error, progress } = operation;
  const { before, after, ...rest } = /** @type {Record<string, unknown>} */ (result ?? {});
  const drawn = numbers(before) && numbers(after);
  const shown = Object.entries(drawn ? rest : result ?? {});
  return html`${progress.total !== null && progress.done < (progress.total ?? 0)
      && html`<progress value=${progress.done} max=${progress.total} aria-label="Progress"></progress>`}
    ${drawn && html`<${Histograms} before=${before} after=${after} />`}
    ${shown.length > 0 && html`<${Value} of=${Object.fromEntries(shown)} />`}
    ${!result && !error && html`<p class="small quiet">No result yet.</p>`}
    ${error && html`<p class="problem"><${Value} of=${error} /></p>`}`;
}

const POLL_MS = 700;
export const TONE = /** @type {Record<string, string>} */ ({ succeeded: "good", failed: "bad" });
const ENDED = new Set(["succeeded", "failed"]);

/** The operation as it goes on: asks again until it has ended. @param {{ operation: Operation, onEnd?: () => void }} props */
export function Progress({ operation, onEnd }) {
  const [now, set] = useState(operation);
  useEffect(() => {
    if (ENDED.has(now.status)) {
      onEnd?.();
      return undefined;
    }
    const timer = setTimeout(async () => {
      const { data } = await api.GET("/v1/operations/{operation_id}", { params: { path: { operation_id: now.operation_id } } });
      set(data ? { ...data } : { ...now });
    }, POLL_MS);
    return () => clearTimeout(timer);
  }, [now]);
  return html`<div role="status"><p><b>${words(now.kind)}</b> <${Tag} of=${now.status} tone=${TONE[now.status] ?? ""} /></p><${Result} operation=${now} /></div>`;
}
