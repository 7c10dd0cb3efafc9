/** What lists of records share: the order, filters as chips, a form that adds a record, and work on several at once. */
import { html, useState } from "../ui.js";
import { asProblem } from "../api.js";
import { Dialog, ProblemBox, useAction, useToast } from "./feedback.js";
import { Icon, counted, valueOf, visible } from "./text.js";

/** @typedef {Record<string, string>} Params */

const ANY = "any";

/** The order of the address as the API takes it. @param {Params} params @returns {"asc" | "desc" | undefined} */
export const orderOf = (params) => (params.order === "asc" ? "asc" : undefined);

/** @param {{ params: Params, set: (given: Params) => void }} props */
export function Order({ params, set }) {
  return html`<label>Sort <select value=${params.order ?? ""} onChange=${(/** @type {any} */ event) => set({ order: event.target.value })}>
    <option value="">newest first</option><option value="asc">oldest first</option></select></label>`;
}

/** The filters that are set, each with a button that takes it away; "any" leaves nothing out and is none. A filter that is a switch has no value to show.
 * @param {{ params: Params, set: (given: Params) => void, names: Record<string, string>, switches?: string[] }} props `names`: the word of each filter */
export function Chips({ params, set, names, switches = [] }) {
  const given = Object.keys(names).filter((name) => params[name] && params[name] !== ANY);
  if (!given.length) return null;
  const none = Object.fromEntries(given.map((name) => [name, ""]));
  return html`<ul class="chips" aria-label="Filters">${given.map((name) => html`<li key=${name} class="chip"><span>${names[name]}${!switches.includes(name) && html`: <b>${visible(valueOf(name, params[name]))}</b>`}</span>
      <button type="button" class="bare" aria-label=${`Remove the filter ${names[name]}`} onClick=${() => set({ [name]: "" })}><${Icon} of="x" /></button></li>`)}
    ${given.length > 1 && html`<li><button type="button" class="plain small" onClick=${() => set(none)}>Remove all</button></li>`}</ul>`;
}

/** A filter that is typed: the name of an entity, a tag. @param {{ name: string, label: string, params: Params, set: (given: Params) => void, hint?: string }} props */
export function TypedFilter({ name, label, params, set, hint = "" }) {
  return html`<label>${label} <input size="12" key=${params[name]} placeholder=${hint} defaultValue=${params[name] ?? ""}
    onChange=${(/** @type {any} */ event) => set({ [name]: event.target.value.trim() })} /></label>`;
}

/** A filter that is chosen; `any` is the word for none. @param {{ name: string, label: string, params: Params, set: (given: Params) => void, options: readonly string[], any: string }} props */
export function ChosenFilter({ name, label, params, set, options, any }) {
  return html`<label>${label} <select value=${params[name] ?? ""} onChange=${(/** @type {any} */ event) => set({ [name]: event.target.value })}>
    <option value="">${any}</option>${options.map((one) => html`<option value=${one}>${valueOf(name, one)}</option>`)}</select></label>`;
}

/** @typedef {{ name: string, label: string, value?: string, options?: readonly string[], long?: boolean, optional?: boolean, number?: boolean, hint?: string }} Field */

/** A form of a new record or of one that is changed. `save` gets what was typed, without what was left empty.
 * @param {{ fields: Field[], button: string, save: (given: Record<string, string>) => Promise<unknown>, onClose: () => void }} props */
export function Form({ fields, button, save, onClose }) {
  const run = useAction(async (/** @type {HTMLFormElement} */ form) => {
    const given = [...new FormData(form)].map(([name, value]) => [name, String(value).trim()]).filter(([, value]) => value);
    await save(Object.fromEntries(given));
    onClose();
  });
  const control = (/** @type {Field} */ field) => {
    const same = { name: field.name, required: !field.optional, maxlength: 32_000 };
    if (field.options) return html`<select name=${field.name} value=${field.value}>${field.options.map((one) => html`<option value=${one}>${valueOf(field.name, one)}</option>`)}</select>`;
    return field.long ? html`<textarea ...${same} dir="auto" defaultValue=${field.value ?? ""}></textarea>` : html`<input ...${same} type=${field.number ? "number" : undefined} min=${field.number ? 0 : undefined} defaultValue=${field.value ?? ""} placeholder=${field.hint ?? ""} />`;
  };
  return html`<form class="stack" onSubmit=${(/** @type {any} */ event) => { event.preventDefault(); run.start(event.target); }}>
    ${fields.map((field) => html`<label key=${field.name}>${field.label} ${control(field)}</label>`)}<${ProblemBox} problem=${run.error} />
    <footer><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="main" disabled=${run.busy}>${button}</button></footer></form>`;
}

/** A button that opens a form for a new record. @param {{ title: string, fields: Field[], save: (given: Record<string, string>) => Promise<unknown> }} props */
export function Add({ title, fields, save }) {
  const [open, setOpen] = useState(false);
  const close = () => setOpen(false);
  return html`<button type="button" onClick=${() => setOpen(true)}><${Icon} of="plus" /> ${title}</button>
    ${open && html`<${Dialog} title=${title} onClose=${close}><${Form} fields=${fields} button="Add" save=${save} onClose=${close} /></${Dialog}>`}`;
}

/** The lines of a text, without empty ones. @param {string} text */
export const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

/** The head of a record beside its list: what it is, and the way back; where the list has no room beside it, back to all.
 * @param {{ title: string, back: string, all: string, children?: unknown }} props `all`: "All memories"; `children`: what can be done with the record as a whole */
export const DetailHead = ({ title, back, all, children }) => html`<a class="back up" href=${back}><${Icon} of="chevron-left" /> ${all}</a>
  <div class="row apart"><h2 class="text">${visible(title)}</h2><div class="row">${children}<a class="back close" href=${back}><${Icon} of="x" /> Close</a></div></div>`;

/** The ids that are chosen in a list, and a function that chooses one or no more. @returns {[Set<string>, (id: string) => void, () => void]} */
export function useChosen() {
  const [chosen, set] = useState(/** @type {Set<string>} */ (new Set()));
  const turn = (/** @type {string} */ id) => set((old) => new Set(old.has(id) ? [...old].filter((one) => one !== id) : [...old, id]));
  return [chosen, turn, () => set(new Set())];
}

/**
 * Does the same with several records, one after the other, and offers to take it back. What could not be done is said.
 * @template T
 * @param {{ does: (record: T) => Promise<unknown>, undoes: (record: T) => Promise<unknown>, noun: [string, string], done: string, onDone: () => void }} how `done`: "archived"
 */
export function useBulk({ does, undoes, noun, done, onDone }) {
  const toast = useToast();
  return useAction(async (/** @type {T[]} */ records) => {
    /** @type {T[]} */
    const changed = [];
    let problem = "";
    for (const record of records) {
      try {
        await does(record);
        changed.push(record);
      } catch (error) {
        problem = asProblem(error).message;
      }
    }
    onDone();
    const failed = records.length - changed.length;
    toast({ text: `${counted(changed.length, ...noun)} ${done}.${failed ? ` ${failed} could not be: ${problem}` : ""}`, bad: failed > 0,
      undo: changed.length ? async () => {
        for (const record of changed) await undoes(record);
        onDone();
      } : undefined });
  });
}
