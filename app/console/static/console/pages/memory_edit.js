/** The forms that edit a memory, and that correct what a person said. */
import { html, useState } from "../ui.js";
import { Dialog, ProblemBox, useAction } from "../parts/feedback.js";
import { Text, typeOf } from "../parts/text.js";

/** @typedef {import("schema").components["schemas"]} Schemas */

const TYPES = ["fact", "preference", "instruction", "experience", "learned", "issue", "solution", "message", "summary"];

/** What the form changes in a memory: the fields that differ. @param {Schemas["Memory"]} memory @param {FormData} form */
function patchOf(memory, form) {
  const text = (/** @type {string} */ name) => String(form.get(name) ?? "");
  const tags = text("tags").split(",").map((tag) => tag.trim()).filter(Boolean);
  const given = /** @type {Record<string, unknown>} */ ({
    content: text("content"), memory_type: text("memory_type"), context: text("context") || null, key: text("key") || null, tags,
    trust: Number(text("trust")),
  });
  if (text("importance") !== memory.importance.toFixed(2)) given.importance = Number(text("importance"));
  const old = /** @type {Record<string, unknown>} */ (/** @type {unknown} */ (memory));
  const changed = Object.entries(given).filter(([name, value]) => JSON.stringify(value) !== JSON.stringify(old[name]));
  return /** @type {Schemas["MemoryPatch"]} */ (Object.fromEntries(changed));
}

/** @param {{ memory: Schemas["Memory"], onSave: (body: Schemas["MemoryPatch"]) => Promise<unknown>, onClose: () => void }} props */
export function EditMemory({ memory, onSave, onClose }) {
  const [importance, setImportance] = useState(memory.importance.toFixed(2));
  const save = useAction(async (/** @type {HTMLFormElement} */ form) => {
    const body = patchOf(memory, new FormData(form));
    if (Object.keys(body).length) await onSave(body);
    onClose();
  });
  return html`<${Dialog} title="Edit memory" onClose=${onClose}>
    <form class="stack" onSubmit=${(/** @type {any} */ event) => { event.preventDefault(); save.start(event.target); }}>
      <label>Text <textarea name="content" required maxlength="32000" dir="auto" defaultValue=${memory.content}></textarea></label>
      <label>Type <select name="memory_type">${TYPES.map((one) => html`<option value=${one} selected=${one === memory.memory_type}>${typeOf(one)}</option>`)}</select></label>
      <label>Importance ${importance} <input type="range" name="importance" min="0" max="1" step="0.01" value=${importance}
        onInput=${(/** @type {any} */ event) => setImportance(Number(event.target.value).toFixed(2))} /></label>
      <label>Trust <input type="number" name="trust" min="0" max="1" step="any" defaultValue=${memory.trust} /></label>
      <label>Tags, separated by commas <input name="tags" defaultValue=${memory.tags.join(", ")} /></label>
      <label>When it applies <input name="context" defaultValue=${memory.context ?? ""} /></label>
      <label>Key <input name="key" maxlength="256" defaultValue=${memory.key ?? ""} /></label>
      <${ProblemBox} problem=${save.error} />
      <footer><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="main" disabled=${save.busy}>Save</button></footer>
    </form></${Dialog}>`;
}

/** @param {{ memory: Schemas["Memory"], onSave: (content: string) => Promise<unknown>, onClose: () => void }} props */
export function CorrectMemory({ memory, onSave, onClose }) {
  const save = useAction(async (/** @type {HTMLFormElement} */ form) => {
    await onSave(String(new FormData(form).get("content")));
    onClose();
  });
  return html`<${Dialog} title="Correct what was said" onClose=${onClose}>
    <form class="stack" onSubmit=${(/** @type {any} */ event) => { event.preventDefault(); save.start(event.target); }}>
      <p class="quiet">What was said is not rewritten. Your correction is stored as a memory of its own, which takes its place in answers.</p>
      <blockquote><${Text} text=${memory.content} long=${300} /></blockquote>
      <label>What is right <textarea name="content" required maxlength="32000" dir="auto"></textarea></label>
      <${ProblemBox} problem=${save.error} />
      <footer><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="main" disabled=${save.busy}>Correct</button></footer>
    </form></${Dialog}>`;
}
