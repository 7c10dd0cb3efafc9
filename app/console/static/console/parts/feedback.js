/** What the console says back: problems, empty states, toasts, dialogs. */
import { createContext, html, useContext, useEffect, useRef, useState } from "../ui.js";
import { asProblem } from "../api.js";
import { Code, Icon } from "./text.js";

/** Shows a problem of the service with its code and the id of the request. `again`: asks once more, where that may help.
 * @param {{ problem?: import("../api.js").Problem, again?: () => void }} props */
export function ProblemBox({ problem, again }) {
  if (!problem) return null;
  return html`<div class="problem" role="alert">
    <p>${problem.message}</p>
    <p class="quiet small">${problem.status || "no answer"} ${problem.code}${problem.request && `, request ${problem.request}`}</p>
    ${again && problem.status !== 404 && html`<p><button type="button" class="small" onClick=${again}>Try again</button></p>`}
  </div>`;
}

/** An empty list: what it would hold, and a command that fills it and works as pasted.
 * @param {{ title: string, curl?: string, children?: unknown }} props */
export function Empty({ title, curl, children }) {
  return html`<div class="empty"><p><strong>${title}</strong></p>${curl && html`<${Code} text=${curl} />`}${children}</div>`;
}

/** Loading, problem or content. `data` undefined: nothing was loaded yet. `waiting`: the place of it, where some lines are not like it.
 * @param {{ of: { data?: any, error?: any, loading: boolean, again?: () => void }, waiting?: unknown, children: (data: any) => unknown }} props */
export function Loaded({ of, waiting, children }) {
  return html`<${ProblemBox} problem=${of.error} again=${of.again} />
    ${of.data !== undefined ? children(of.data) : of.loading && (waiting ?? html`<${Waiting} />`)}`;
}

/** The rows of a list before they are there: a title and a second line each. @param {{ of: { items?: unknown[], loading: boolean } }} props */
export const WaitingRows = ({ of }) => (!of.items && of.loading ? html`<div class="waiting rows" role="status" aria-label="Loading…">${Array.from({ length: ROWS_AWAITED }, () => html`<div><i></i><i></i></div>`)}</div>` : null);

const ROWS_AWAITED = 8;

/** The place of what is still asked for, as high as so many lines: what stands around it does not move when it comes. @param {{ lines?: number }} props */
export const Waiting = ({ lines = 3 }) => html`<div class="waiting" role="status" aria-label="Loading…">${Array.from({ length: lines }, () => html`<i class="line"></i>`)}</div>`;

/** A button that loads the next page of a list of `usePages`. @param {{ of: ReturnType<typeof import("../api.js").usePages> }} props */
export function More({ of }) {
  return of.next ? html`<p><button type="button" onClick=${of.more}>Show more</button></p>` : null;
}

/**
 * A dialog of the browser: Escape closes it, the focus stays inside and goes back afterwards.
 * `plain`: without a heading. @param {{ title: string, onClose: () => void, children: unknown, plain?: boolean }} props
 */
export function Dialog({ title, onClose, children, plain = false }) {
  const node = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => node.current?.showModal(), []);
  const close = () => { node.current?.close(); onClose(); };
  // `close` comes a moment later: by then ⌘K may have opened the next one, and this one is gone
  return html`<dialog ref=${node} class=${plain ? "plain" : ""} aria-label=${title} onClose=${() => node.current && onClose()}
    onCancel=${(/** @type {Event} */ event) => { event.preventDefault(); close(); }}>
    ${!plain && html`<header><h2>${title}</h2><button type="button" class="bare" aria-label="Close" onClick=${close}><${Icon} of="x" /></button></header>`}
    ${children}
  </dialog>`;
}

/**
 * Asks before something that cannot be taken back. `action` runs at the button; its problem shows in the dialog.
 * @param {{ title: string, button: string, action: () => Promise<unknown>, onClose: () => void, children: unknown }} props
 */
export function Confirm({ title, button, action, onClose, children }) {
  const run = useAction(async () => { await action(); onClose(); });
  return html`<${Dialog} title=${title} onClose=${onClose}>
    ${children}<${ProblemBox} problem=${run.error} />
    <footer><button type="button" onClick=${onClose}>Cancel</button>
      <button type="button" class="danger" disabled=${run.busy} onClick=${run.start}>${button}</button></footer>
  </${Dialog}>`;
}

/** A call that a button starts: `start()` runs it once at a time, `error` is its problem.
 * @param {(...given: any[]) => Promise<unknown>} action */
export function useAction(action) {
  const [state, set] = useState(/** @type {{ busy: boolean, error?: import("../api.js").Problem }} */ ({ busy: false }));
  const start = async (/** @type {any[]} */ ...given) => {
    if (state.busy) return;
    set({ busy: true });
    try {
      await action(...given);
      set({ busy: false });
    } catch (error) {
      set({ busy: false, error: asProblem(error) });
    }
  };
  return { ...state, start };
}

/**
 * `about`: the record that an undo would change. `gone`: the record that went; undoing an earlier change of it would fail.
 * @typedef {{ text: string, undo?: () => Promise<unknown>, bad?: boolean, about?: string, gone?: string }} Toast
 */
const Toasts = createContext(/** @type {(toast: Toast) => void} */ (() => {}));

/** Returns a function that shows a short message: `toast({ text: "Archived.", undo: async () => … })`. */
export const useToast = () => useContext(Toasts);

const SECONDS = 10;

/** Holds the messages at the foot of the page. @param {{ children: unknown }} props */
export function ToastArea({ children }) {
  const [toasts, set] = useState(/** @type {(Toast & { id: number })[]} */ ([]));
  const counter = useRef(0);
  const drop = (/** @type {number} */ id) => set((old) => old.filter((one) => one.id !== id));
  const add = useRef((/** @type {Toast} */ toast) => {
    const id = ++counter.current;
    set((old) => [...old.filter((one) => !toast.gone || one.about !== toast.gone).slice(-3), { ...toast, id }]);
    setTimeout(drop, SECONDS * 1000, id);
  }).current;
  const undo = async (/** @type {Toast & { id: number }} */ toast) => {
    drop(toast.id);
    try {
      await toast.undo?.();
      add({ text: "Undone." });
    } catch (error) {
      add({ text: asProblem(error).message, bad: true });
    }
  };
  return html`<${Toasts.Provider} value=${add}>${children}
    <div class="toasts" role="status" aria-live="polite">${toasts.map((toast) => html`
      <div key=${toast.id} class=${toast.bad ? "toast bad" : "toast"}><span>${toast.text}</span>
        ${toast.undo && html`<button type="button" onClick=${() => undo(toast)}>Undo</button>`}
        <button type="button" class="bare" aria-label="Dismiss" onClick=${() => drop(toast.id)}><${Icon} of="x" /></button></div>`)}
    </div></${Toasts.Provider}>`;
}
