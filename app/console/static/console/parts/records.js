/** What pages of owned records share: links to records, operations that go on in the background. */
import { html, useLayoutEffect, useRef } from "../ui.js";
import { Problem, api, ask, key, may } from "../api.js";
import { Empty } from "./feedback.js";
import { to } from "../route.js";
import { Copy, Fold, Tag, Text, Time, counted, visible, words } from "./text.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Operation"]} Operation */

/** An id that the service made; its end tells one from another. */
const MADE = /^[a-z]+_[0-9a-f]{32}$/;

/** Kinds of records as the pages call them, where the store has another word. */
const KINDS = /** @type {Record<string, string>} */ ({ agent_memories: "memories", conversation_sessions: "sessions", action_logs: "actions", task_states: "tasks", users: "people" });

/** A kind of records as the pages call it: `conversation_sessions` is "sessions". @param {string} kind */
export const kindOf = (kind) => KINDS[kind] ?? words(kind);

/** The address of a record by the beginning of an id that the service made. Facts, procedures and actions stand on the page of whose they are, which `pages/record.js` asks for. */
const PLACES = /** @type {Record<string, (id: string) => string>} */ ({
  mem: (id) => to("memories", [id]), sess: (id) => to("sessions", [id]), task: (id) => to("tasks", [id]), op: (id) => to("operations", [], { operation: id }),
  agent: (id) => to("owners", ["agents", id]), fact: (id) => to("record", [id]), proc: (id) => to("record", [id]), act: (id) => to("record", [id]),
});

/** The address of a record whose id a caller gave, by the kind of records that it is among. */
const GIVEN = /** @type {[string, (id: string) => string][]} */ ([
  ["conversation_sessions", (id) => to("sessions", [id])], ["task_states", (id) => to("tasks", [id])],
  ["users", (id) => to("owners", ["users", id])], ["agents", (id) => to("owners", ["agents", id])],
]);

/** The address of a record by its id, or undefined where no page shows its kind. An id that a caller gave does not say
 * what it is of: "lisbon-wheels" is a task where `kinds` has `task_states`.
 * @param {string} id @param {string[]} [kinds] the kinds of records that it may be of, as the store calls them */
export function place(id, kinds = []) {
  const made = PLACES[MADE.test(id) ? id.slice(0, id.indexOf("_")) : ""];
  return made ? made(id) : GIVEN.find(([kind]) => kinds.includes(kind))?.[1](id);
}

/** The address of a fact or memory: a fact stands on the page of whose it is. @param {Schemas["Fact"] | Schemas["Memory"]} record */
export const addressOf = (record) => ("memory_id" in record ? to("memories", [record.memory_id])
  : to("owners", [...(record.user_id ? ["users", record.user_id] : ["agents", record.agent_id ?? ""]), "facts"], { fact: record.fact_id }));

/** What a memory says; a solution says what it solved, too: "Solved: Cannot log in → Cleared the cache". @param {Schemas["Memory"]} memory */
export function contentOf({ memory_type, content, context, metadata }) {
  if (memory_type !== "solution") return content;
  const { problem = context, fix = content } = metadata;
  return `Solved: ${[problem, fix].filter(Boolean).join(" → ")}`;
}

/** An id, as a link where a page shows the record. One that the service made is shortened; its title is the whole, and a button copies it.
 * @param {{ id: string, kinds?: string[], own?: boolean }} props `kinds`: as for `place`; `own`: of the record that the page shows, which is no link */
export function RecordLink({ id, kinds, own = false }) {
  const address = own ? undefined : place(id, kinds);
  const short = MADE.test(id) ? `${id.slice(0, id.indexOf("_") + 1)}…${id.slice(-6)}` : id;
  return html`<span class="id">${address ? html`<a href=${address} title=${id}><code>${short}</code></a>` : html`<code title=${id}>${short}</code>`}<${Copy} text=${id} /></span>`;
}

/** Where it comes from: the words that were said, or the session. @param {{ of: Schemas["Source"] }} props */
export function SourceLink({ of }) {
  if (!of.session_id) return html`<span>${of.origin === "api" ? "through the API" : words(of.origin)}</span>`;
  const from = of.message_seq ? Math.max(0, of.message_seq - 1) : undefined;
  return html`<a href=${to("sessions", [of.session_id], { from })}>${of.quote ? `“${visible(of.quote)}”` : visible(of.session_id)}</a>`;
}

/** The first source of a record in a line: who said it, when, and the words, which lead to the session. What else it was made from is one click away.
 * @param {{ of: Schemas["Source"], said?: Schemas["Memory"], who?: string, since?: string | null }} props
 *   `said`: the memory of the message that it was learned from, where it is there; `who`: whose words a quote is, where that message is not there; `since`: the day that stands before, which is not said twice */
export function Sources({ of, said, who, since }) {
  const speaker = said?.source.speaker ?? said?.source.role ?? of.speaker ?? of.role ?? (of.quote ? who : undefined);
  const at = said && (said.event_at ?? said.created_at);
  const more = [...(of.memory_ids ?? []).slice(of.session_id ? 1 : 0), ...of.action_ids ?? []];
  return html`${speaker && html`${visible(speaker)}${at && at.slice(0, 10) !== since?.slice(0, 10) && html` on <${Time} at=${at} day=${true} />`}: `}<${SourceLink} of=${of} />
    ${more.length > 0 && html` <${Fold} title=${counted(more.length, "more source")} kind="sources" small=${false}>${() => more.map((id) => html`<${RecordLink} key=${id} id=${id} /> `)}</${Fold}>`}`;
}

/** A record that is not there, and what the audit trail says of it. @param {{ noun: string, id: string, caller: import("../api.js").Caller, children?: unknown }} props `children`: where one may look instead */
export const Gone = ({ noun, id, caller, children }) => html`<${Empty} title=${`${noun} ${visible(id)} is gone or was never here${key.get() ? ", or the key may not see it" : ""}.`}>
  <p>${children}${may(caller, "admin") && html`${children && " · "}<a href=${to("operations", ["audit"], { record_id: id, user_id: "", agent_id: "" })}>What the audit trail says of it</a>`}</p></${Empty}>`;

const LOOKS = 40;
const PAUSE = 250;
const UNDER_WAY = ["queued", "running"];

/** Waits until an operation has ended, ten seconds at most. Returns it as it was seen last.
 * @param {Operation} begun @returns {Promise<Operation>} */
export async function ended(begun) {
  let operation = begun;
  for (let look = 0; look < LOOKS && UNDER_WAY.includes(operation.status); look++) {
    await new Promise((resolve) => { setTimeout(resolve, PAUSE); });
    const path = { operation_id: begun.operation_id };
    operation = await ask(api.GET("/v1/operations/{operation_id}", { params: { path } }));
  }
  return operation;
}

/** Undoes an operation. Throws where what it changed was changed since. @param {string} operation_id */
export async function takeBack(operation_id) {
  const { status, error } = await ended(await ask(api.POST("/v1/operations/{operation_id}/undo", { params: { path: { operation_id } } })));
  if (status === "partial" || status === "failed") throw new Problem(409, "conflict", error || "It was undone in part: some of what it changed was changed since.", "");
}

const TONES = /** @type {Record<string, string>} */ ({
  succeeded: "good", completed: "good", active: "good", success: "good", failed: "bad", disputed: "bad", failure: "bad", cancelled: "bad",
});

/** A status in its colour. @param {{ of: string }} props */
export const Status = ({ of }) => html`<${Tag} of=${words(of)} tone=${TONES[of] ?? ""} />`;

/** @param {unknown} value */
const isEmpty = (value) => value === null || value === undefined || value === "" || (typeof value === "object" && !Object.keys(value).length);

/** @param {unknown} value */
const isId = (value) => typeof value === "string" && MADE.test(value);

/** A value of JSON to read: names with their values, lists as lists, ids that the service made as links. Fields that hold nothing are left out. @param {{ of: unknown }} props */
export function Value({ of }) {
  if (isEmpty(of)) return html`<span class="quiet">nothing</span>`;
  if (isId(of)) return html`<${RecordLink} id=${String(of)} />`;
  if (Array.isArray(of) && of.every(isId)) return html`${of.map((id) => html`<${RecordLink} key=${id} id=${id} /> `)}`;
  if (Array.isArray(of)) {
    return of.every((one) => typeof one !== "object") ? html`<${Text} text=${of.join(", ")} long=${400} />`
      : html`<ul class="values">${of.map((one) => html`<li><${Value} of=${one} /></li>`)}</ul>`;
  }
  if (typeof of === "object") {
    return html`<dl class="pairs">${Object.entries(/** @type {object} */ (of)).filter(([, value]) => !isEmpty(value)).map(([name, value]) => html`
      <dt>${words(name)}</dt><dd><${Value} of=${value} /></dd>`)}</dl>`;
  }
  return html`<${Text} text=${of === true ? "yes" : of === false ? "no" : String(of)} long=${400} />`;
}

/** Pairs of a name and a value; empty ones are left out. @param {{ pairs: [string, unknown][] }} props */
export function Pairs({ pairs }) {
  const shown = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "" && !(Array.isArray(value) && !value.length));
  return html`<dl class="pairs">${shown.map(([name, value]) => html`<dt>${name}</dt><dd>${Array.isArray(value)
    ? value.map((one) => html`<div><${Text} text=${String(one)} /></div>`) : html`<${Text} text=${String(value)} />`}</dd>`)}</dl>`;
}

/** What a record holds in a field of its own form, or nothing where it is empty. @param {{ value: unknown, title: string }} props */
export function Json({ value, title }) {
  return isEmpty(value) ? null : html`<${Fold} title=${title}>${() => html`<${Value} of=${value} />`}</${Fold}>`;
}

/** Scrolls a row so that a tab of it stands in the middle. @param {HTMLElement} tab */
function centre(tab) {
  const row = tab.parentElement;
  if (row) row.scrollLeft = tab.offsetLeft - (row.clientWidth - tab.offsetWidth) / 2;
}

/** Says at which sides a row goes on beyond its edge; a pixel is lost where widths are no whole ones. @param {HTMLElement} row */
function mark(row) {
  row.classList.toggle("before", row.scrollLeft > 1);
  row.classList.toggle("after", row.scrollLeft + row.clientWidth < row.scrollWidth - 1);
}

/** Links that show a part of a record each, in one row; where it is wider than the window, the chosen one and the one with the focus are scrolled into the middle,
 * and an arrow over a fade stands at each side where there are more.
 * @param {{ label: string, tabs: { name: string, title: string, href: string }[], current: string }} props */
export function Tabs({ label, tabs, current }) {
  const row = useRef(/** @type {HTMLElement | null} */ (null)), chosen = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    const box = row.current;
    if (!box) return undefined;
    let centred = false;
    const look = () => mark(box);
    const resized = new ResizeObserver(() => { // its first call comes once the browser has laid the page out, before it paints: asking for a width here would have it do so twice
      if (!centred && chosen.current) centre(chosen.current);
      centred = true;
      look();
    });
    resized.observe(box);
    box.addEventListener("scroll", look, { passive: true });
    return () => { resized.disconnect(); box.removeEventListener("scroll", look); };
  }, [tabs.length, current]);
  return html`<nav class="tabs" aria-label=${label} ref=${row}>${tabs.map((tab) => html`<a key=${tab.name} href=${tab.href} ref=${tab.name === current ? chosen : undefined}
    aria-current=${tab.name === current ? "page" : undefined} onFocus=${(/** @type {any} */ event) => centre(event.currentTarget)}>${tab.title}</a>`)}</nav>`;
}
