/** One memory: text, importance as a curve, source, chain, history, and what can be done with it. */
import { api, ask, asProblem, may, useLoad } from "../api.js";
import { html, useState } from "../ui.js";
import { ImportanceCurve } from "../parts/importance.js";
import { DisputeOf, sidesOf } from "../parts/doubts.js";
import { Diff, changes } from "../parts/diff.js";
import { DetailHead } from "../parts/collection.js";
import { Confirm, Loaded, ProblemBox, useAction, useToast } from "../parts/feedback.js";
import { Gone, Json, RecordLink, Status, contentOf } from "../parts/records.js";
import { useNames } from "../parts/scope.js";
import { ExactTime, Icon, Tag, Text, Time, counted, typeOf, visible, words } from "../parts/text.js";
import { to } from "../route.js";
import { CorrectMemory, EditMemory } from "./memory_edit.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Memory"]} Memory */
/** @typedef {Schemas["HistoryEntry"]} Version */

const CHAIN = 3;
const SIMILAR = 0.9;
const RELATED = 10;
const TIMES = new Set(["happened", "told", "planned", "due", "shown from", "done", "true from", "true until", "expires", "created"]);
const LINKS = new Set(["supersedes", "superseded_by", "contradicts", "made_from"]);

/** A text of at most so many characters is a heading. */
const HEADING = 160;
/** What it says is its heading, unless it is long. @param {string | undefined} content */
const headingOf = (content) => (content && content.length <= HEADING ? content : "Memory");

/** @param {string} memory_id */
const at = (memory_id) => ({ params: { path: { memory_id } } });

/** @param {string} id @param {AbortSignal} signal */
async function load(id, signal) {
  const [memory, history] = await Promise.all([
    ask(api.GET("/v1/memories/{memory_id}", { ...at(id), signal })),
    ask(api.GET("/v1/memories/{memory_id}/history", { params: { path: { memory_id: id }, query: { limit: 20 } }, signal })),
  ]);
  return { memory, versions: history.items, sides: memory.status === "disputed" ? await sidesOf(memory, signal) : [] };
}

/** The memories that a memory replaced, was replaced by or contradicts: the first few are loaded. @param {Memory} memory */
function chainOf(memory) {
  const links = [
    ...(memory.superseded_by ? [{ id: memory.superseded_by, how: "replaced by" }] : []),
    ...memory.supersedes.map((id) => ({ id, how: "replaces" })),
    ...memory.contradicts.map((id) => ({ id, how: "contradicts" })),
    ...(memory.source.memory_ids ?? []).map((id) => ({ id, how: "made from" })),
  ];
  return links;
}

/** @param {{ memory: Memory }} props */
function Chain({ memory }) {
  const links = chainOf(memory);
  const loaded = useLoad(async (signal) => Promise.all(links.slice(0, CHAIN).map(async ({ id }) =>
    ask(api.GET("/v1/memories/{memory_id}", { ...at(id), signal })).catch((error) => asProblem(error)))), [memory.memory_id, memory.version]);
  const [similar, setSimilar] = useState(/** @type {Schemas["Found"][] | undefined} */ (undefined));
  const look = useAction(async () => {
    const owner = { ...(memory.agent_id && { agent_id: memory.agent_id }), ...(memory.user_id && { user_id: memory.user_id }) };
    const found = await ask(api.POST("/v1/memories/search", { body: {
      query: memory.content, ...owner, include_shared: false, mode: "vector", min_similarity: SIMILAR, record_access: false, explain: false, top_k: 10 } }));
    setSimilar(found.items.filter((hit) => hit.memory.memory_id !== memory.memory_id));
  });
  return html`<section><h3>What it replaced and was made from</h3>
    ${links.length === 0 && html`<p class="quiet small">It replaced nothing, and nothing replaced it.</p>`}
    <ul class="list">${links.map(({ id, how }, index) => {
      const other = loaded.data?.[index];
      return html`<li key=${how + id}><a class="title" href=${to("memories", [id])}>
        ${other && "content" in other ? html`<${Text} text=${other.content} long=${160} />` : id}</a><div class="small quiet">${how}</div></li>`;
    })}</ul>
    ${(memory.agent_id || memory.user_id) && html`<p><button type="button" class="small" disabled=${look.busy} onClick=${look.start}>Find near-duplicates</button></p>`}
    <${ProblemBox} problem=${look.error} />
    ${similar?.length === 0 && html`<p class="quiet small">No other active memory has a cosine of ${SIMILAR} or more.</p>`}
    <ul class="list">${similar?.map((hit) => html`<li key=${hit.memory.memory_id}><a class="title" href=${to("memories", [hit.memory.memory_id])}><${Text} text=${hit.memory.content} long=${160} /></a>
      <div class="small quiet">cosine ${hit.score.toFixed(3)}</div></li>`)}</ul></section>`;
}

/** Memories that have to do with it, each with the reasons, but for those of the chain. @param {{ memory: Memory }} props */
function Related({ memory }) {
  const found = useLoad((signal) => ask(api.GET("/v1/memories/{memory_id}/related",
    { params: { path: { memory_id: memory.memory_id }, query: { limit: RELATED } }, signal })), [memory.memory_id, memory.version]);
  return html`<section aria-label="Related memories"><h3>Related</h3><${Loaded} of=${found}>${(/** @type {Schemas["RelatedMemories"]} */ { items: all, warnings }) => {
    const items = all.filter((one) => !one.reasons.some(({ reason }) => LINKS.has(reason)));
    return html`
    ${!items.length && html`<p class="quiet small">No other memory has to do with it.</p>`}
    ${warnings.map((one) => html`<p class="quiet small">${one.detail}</p>`)}
    <ul class="list">${items.map((one) => html`<li key=${one.memory.memory_id}><a class="title" href=${to("memories", [one.memory.memory_id])}><${Text} text=${one.memory.content} long=${160} /></a>
      <div class="small quiet">${one.reasons.map(because).join("; ")}</div></li>`)}</ul>`;
  }}</${Loaded}></section>`;
}

/** @param {Schemas["RelatedBecause"]} reason */
function because({ reason, score, names }) {
  if (reason === "similar") return `similar, cosine ${(score ?? 0).toFixed(3)}`;
  return reason === "shared_entity" ? `both mention ${names.map(visible).join(", ")}` : "near it in the same session";
}

/** Where it comes from, with a link to the very message. @param {{ source: Memory["source"] }} props */
function SourceOf({ source }) {
  const seq = source.message_seq ?? undefined;
  const rows = Object.entries({
    said: source.quote && `“${source.quote}”`, origin: source.origin, speaker: source.speaker, role: source.role, model: source.model, note: source.note,
    "prompt version": source.prompt_version, "API key": source.api_key_id, address: source.url,
  }).filter(([, value]) => value);
  return html`<section><h3>Source</h3><dl class="pairs">
    ${source.session_id && html`<dt>session</dt><dd><a href=${to("sessions", [source.session_id], { from: seq && Math.max(0, seq - 1) })}>
      ${visible(source.session_id)}${seq && `, message ${seq}`}</a></dd>`}
    ${rows.map(([name, value]) => html`<dt>${name}</dt><dd><${Text} text=${String(value)} long=${300} /></dd>`)}
    ${source.action_ids && source.action_ids.length > 0 && html`<dt>actions</dt><dd>${source.action_ids.map((id) => html`<${RecordLink} key=${id} id=${id} /> `)}</dd>`}</dl></section>`;
}

/** @param {{ memory: Memory, versions: Version[] }} props */
function History({ memory, versions }) {
  if (versions.length === 0) return html`<section><h3>History</h3><p class="quiet small">It has not changed since it was made.</p></section>`;
  const newer = (/** @type {number} */ index) => (index === 0 ? memory : versions[index - 1]?.record) ?? {};
  return html`<section><h3>History</h3><ol class="list">${versions.map((version, index) => {
    const now = /** @type {Record<string, unknown>} */ (newer(index));
    const fields = changes(version.record, now);
    return html`<li key=${version.version}><div class="small quiet">version ${version.version} → ${version.version + 1}, <${Time} at=${version.changed_at} day=${true} />
        ${version.changed_by && ` by key ${version.changed_by}`}</div>
      ${fields.length === 0 && html`<span class="quiet small">Nothing that shows.</span>`}
      ${fields.map((name) => html`<div><b class="small">${name}</b> <${Diff} old=${version.record[name]} now=${now[name]} /></div>`)}</li>`;
  })}</ol></section>`;
}

/** @param {{ memory: Memory, onDone: () => void, onGone: () => void }} props */
function Actions({ memory, onDone, onGone }) {
  const toast = useToast();
  const [open, setOpen] = useState("");
  const patch = async (/** @type {Schemas["MemoryPatch"]} */ body) => {
    await ask(api.PATCH("/v1/memories/{memory_id}", { ...at(memory.memory_id), body }));
    onDone();
  };
  /** Changes fields, and offers to set back what they were. */
  const change = useAction(async (body, text) => {
    await patch(body);
    const before = Object.fromEntries(Object.keys(body).map((name) => [name, /** @type {any} */ (memory)[name]]));
    toast({ text, about: memory.memory_id, undo: () => patch(before) });
  });
  /** What a person said stays as it was said; what is right stands in its place as a memory of its own. */
  const correct = async (/** @type {string} */ content) => {
    const { agent_id, user_id, source } = memory;
    const made = await ask(api.POST("/v1/memories", { body: { agent_id, user_id, content, memory_type: "fact", supersedes: [memory.memory_id], deduplicate: false,
      source: { session_id: source.session_id ?? null, message_seq: source.message_seq ?? null, note: "A correction of what was said." } } }));
    onDone();
    toast({ text: "Corrected. What was said stays in the history.", undo: async () => {
      await ask(api.DELETE("/v1/memories/{memory_id}", { params: { path: { memory_id: made.memory_id }, query: { predecessors: "restore" } } }));
      onDone();
    } });
  };
  const feedback = useAction(async (helpful) => {
    const { items: [result] } = await ask(api.POST("/v1/memories/feedback", { body: { items: [{ memory_id: memory.memory_id, helpful }] } }));
    onDone();
    toast({ text: result?.applied ? "Feedback noted." : `Nothing changed: ${words(result?.reason ?? "unknown")}.`, about: memory.memory_id,
      undo: result?.applied ? async () => {
        await ask(api.POST("/v1/memories/feedback", { body: { items: [{ memory_id: memory.memory_id, helpful: !helpful }] } }));
        onDone();
      } : undefined });
  });
  const archived = memory.status === "archived";
  const button = (/** @type {string} */ text, /** @type {() => void} */ act, icon = "", tone = "") =>
    html`<button type="button" class=${tone} disabled=${change.busy || feedback.busy} onClick=${act}>${icon && html`<${Icon} of=${icon} /> `}${text}</button>`;
  return html`<div class="actions">
      ${memory.memory_type !== "message" ? button("Edit", () => setOpen("edit"), "pencil") : memory.status === "active" && button("Correct", () => setOpen("correct"), "pencil")}
      ${button(memory.pinned ? "Unpin" : "Pin", () => change.start({ pinned: !memory.pinned }, memory.pinned ? "Unpinned." : "Pinned."), memory.pinned ? "pin-off" : "pin")}
      ${["active", "archived"].includes(memory.status)
        && button(archived ? "Bring back" : "Archive", () => change.start({ status: archived ? "active" : "archived" }, archived ? "Brought back." : "Archived."), archived ? "archive-restore" : "archive")}
      ${button("It helped", () => feedback.start(true))}${button("It misled", () => feedback.start(false))}
      ${button("Delete", () => setOpen("delete"), "trash-2", "danger")}</div>
    <${ProblemBox} problem=${change.error ?? feedback.error} />
    ${open === "edit" && html`<${EditMemory} memory=${memory} onClose=${() => setOpen("")}
      onSave=${async (/** @type {Schemas["MemoryPatch"]} */ body) => { await patch(body);
        const before = Object.fromEntries(Object.keys(body).map((name) => [name, /** @type {any} */ (memory)[name]]));
        toast({ text: "Saved.", about: memory.memory_id, undo: () => patch(before) }); }} />`}
    ${open === "correct" && html`<${CorrectMemory} memory=${memory} onClose=${() => setOpen("")} onSave=${correct} />`}
    ${open === "delete" && html`<${Confirm} title="Delete this memory?" button="Delete" onClose=${() => setOpen("")}
      action=${async () => { await ask(api.DELETE("/v1/memories/{memory_id}", at(memory.memory_id))); onGone(); toast({ text: "Deleted.", gone: memory.memory_id }); }}>
      <p><${Text} text=${memory.content} long=${300} /></p>
      <p>Its history goes, too, and this cannot be undone. Memories that it replaced come back. To keep it out of answers only, archive it.</p></${Confirm}>`}`;
}

/** @param {{ id: string, caller: import("../api.js").Caller, owners: import("../parts/scope.js").Known,
 *   back: string, onChange: () => void }} props */
export default function MemoryView({ id, caller, owners, back, onChange }) {
  const found = useLoad((signal) => load(id, signal), [id], ["memory"]);
  const names = useNames();
  const done = () => { found.again(); onChange(); };
  const gone = () => { location.hash = back; onChange(); };
  if (found.error?.status === 404) {
    return html`<section class="box"><${DetailHead} title="No such memory" back=${back} all="All memories" /><${Gone} noun="Memory" id=${id} caller=${caller} /></section>`;
  }
  return html`<section class="box" aria-label="Memory"><${DetailHead} title=${headingOf(found.data && contentOf(found.data.memory))} back=${back} all="All memories" />
    <${Loaded} of=${found}>${(/** @type {Awaited<ReturnType<typeof load>>} */ { memory, versions, sides }) => html`
      ${headingOf(contentOf(memory)) !== contentOf(memory) && html`<p><${Text} text=${contentOf(memory)} /></p>`}${memory.context && html`<p class="quiet">When: <${Text} text=${memory.context} /></p>`}
      <p><${Tag} of=${typeOf(memory.memory_type)} />${memory.status !== "disputed" && html` <${Status} of=${memory.status} />`}
        ${memory.pinned && html` <${Tag} of="pinned" />`}${memory.tags.map((tag) => html` <a href=${to("memories", [], { tag })}><${Tag} of=${`#${tag}`} /></a>`)}</p>
      ${memory.status === "disputed" && html`<${DisputeOf} record=${memory} others=${sides} person=${names.person} writes=${may(caller, "write")} onDone=${done} />`}
      ${may(caller, "write") && html`<${Actions} memory=${memory} onDone=${done} onGone=${gone} />`}
      <${SourceOf} source=${memory.source} /><${Chain} memory=${memory} />
      ${!owners.loading && html`<${ImportanceCurve} memory=${memory} versions=${versions} owners=${owners} />`}
      <section><h3>Fields</h3><dl class="pairs">
        <dt>id</dt><dd><${RecordLink} id=${memory.memory_id} own=${true} /></dd>
        ${Object.entries({ agent: memory.agent_id, person: memory.user_id, key: memory.key, trust: memory.trust.toFixed(2),
          [memory.event_at && Date.parse(memory.event_at) > Date.now() ? "planned" : "happened"]: memory.event_at, told: memory.source.said_at, "exact to the": memory.event_at_precision === "instant" ? null : memory.event_at_precision,
          due: memory.due_at, "shown from": memory.surface_at, done: memory.done_at, recurs: memory.rrule, "true from": memory.valid_from, "true until": memory.valid_until, expires: memory.expires_at,
          recalled: counted(memory.access_count, "time"), helped: counted(memory.helpful_count, "time"), misled: counted(memory.misleading_count, "time"),
          version: String(memory.version), created: memory.created_at,
        }).filter(([, value]) => value).map(([name, value]) => html`<dt>${name}</dt><dd>${TIMES.has(name) ? html`<${ExactTime} at=${value} />` : html`<${Text} text=${String(value)} long=${300} />`}</dd>`)}</dl>
        <${Json} title="Metadata" value=${memory.metadata} /></section>
      <${Related} memory=${memory} /><${History} memory=${memory} versions=${versions} />
      <p class="small"><a href=${to("findings", [], { agent_id: memory.agent_id, user_id: memory.user_id })}>Findings of the same agent and person</a></p>`}
    </${Loaded}></section>`;
}
