/** Sessions: conversations as a chat, with what came of each turn. */
import { html } from "../ui.js";
import { BASE, api, ask, key, may, useLoad, usePages } from "../api.js";
import { Confirm, Empty, Loaded, More, ProblemBox, useAction, useToast } from "../parts/feedback.js";
import { useState } from "../ui.js";
import { RecordLink, Status, ended } from "../parts/records.js";
import { Icon, Tag, Text, Time, counted, curl, statement, words } from "../parts/text.js";
import { go, to } from "../route.js";

import { Chips, Order, orderOf } from "../parts/collection.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Memory"]} Memory */
/** @typedef {Schemas["Fact"]} Fact */

const TURNS = 50;
const RECORDS = 100;

/** @type {import("../console.js").Page} */
export default function Sessions({ route, caller }) {
  const [id] = route.rest;
  return id ? html`<${Conversation} key=${id} id=${id} route=${route} caller=${caller} />` : html`<${List} route=${route} />`;
}

/** @param {{ route: import("../route.js").Route }} props */
function List({ route }) {
  const { agent_id, user_id, status } = route.params;
  const query = { agent_id, user_id, status: /** @type {"active" | "ended" | undefined} */ (status || undefined) };
  const sessions = usePages(
    (cursor, signal) => ask(api.GET("/v1/sessions", { params: { query: { ...query, order: orderOf(route.params), cursor, limit: 30 } }, signal })),
    [agent_id, user_id, status, route.params.order], ["session", "message"],
  );
  const set = (/** @type {Record<string, string>} */ given) => go(to("sessions", [], { ...route.params, ...given }), { replace: true });
  const body = { agent_id: "support", user_id: "ada", messages: [{ role: "user", content: "I moved to Boston." }] };
  return html`<h1>Sessions</h1>
    <div class="filters"><label>Status <select value=${status ?? ""} onChange=${(/** @type {any} */ event) => set({ status: event.target.value })}>
        <option value="">any</option><option>active</option><option>ended</option></select></label><${Order} params=${route.params} set=${set} /></div>
    <${Chips} params=${route.params} set=${set} names=${{ status: "Status" }} />
    <${ProblemBox} problem=${sessions.error} />
    ${sessions.items?.length === 0 && html`<${Empty} title="No conversation. Append messages to begin one:"
      curl=${curl("POST", `${BASE}/v1/sessions/chat-1/messages`, body, Boolean(key.get()))} />`}
    ${(sessions.items?.length ?? 0) > 0 && html`<section class="box" aria-label="List of sessions"><ul class="list">${sessions.items?.map((session) => html`<li key=${session.session_id}>
      <a class="title text" href=${to("sessions", [session.session_id])}>${session.session_id}</a>
      <span class="small quiet">${session.agent_id} with ${session.user_id} · ${counted(session.message_count, "message")} · <${Time} at=${session.last_message_at} /></span> <${Status} of=${session.status} />
      ${session.summary && html`<div class="small"><${Text} text=${session.summary} long=${200} /></div>`}</li>`)}</ul>
    <${More} of=${sessions} /></section>`}`;
}

/** @param {string} session_id @param {number} from @param {AbortSignal} signal */
async function load(session_id, from, signal) {
  const path = { session_id };
  const [session, messages] = await Promise.all([
    ask(api.GET("/v1/sessions/{session_id}", { params: { path }, signal })),
    ask(api.GET("/v1/sessions/{session_id}/messages", { params: { path, query: { after_seq: from, limit: TURNS } }, signal })),
  ]);
  const before_seq = messages.items.length ? messages.items[messages.items.length - 1].seq + 1 : from + 1;
  const of = { session_id, limit: RECORDS, status: /** @type {const} */ ("any") };
  const [placed, learned, facts, operations] = await Promise.all([
    ask(api.GET("/v1/memories", { params: { query: { ...of, after_seq: from, before_seq } }, signal })),
    ask(api.GET("/v1/memories", { params: { query: { ...of, origin: "extraction" } }, signal })),
    ask(api.GET("/v1/facts", { params: { query: { ...of, timeline: true } }, signal })),
    ask(api.GET("/v1/operations", { params: { query: { session_id, limit: 20 } }, signal })),
  ]);
  return { session, messages, placed, learned, facts, operations, cut: [placed, learned, facts].some((page) => page.next_cursor) };
}

/**
 * Sorts what came of the conversation by the message it names. What was learned names the memories of the messages that it
 * cites; the last one of these is its place. What has no place here belongs to the whole conversation.
 * @param {Memory[]} memories @param {Fact[]} facts
 */
function bySeq(memories, facts) {
  const said = new Map(memories.filter((memory) => memory.memory_type === "message").map((memory) =>
    [memory.memory_id, memory.source.message_seq ?? 0]));
  /** @type {Map<number, (Memory | Fact)[]>} */
  const places = new Map();
  for (const record of [...memories, ...facts]) {
    const cited = (record.source.memory_ids ?? []).map((id) => said.get(id) ?? 0);
    const seq = record.source.message_seq ?? Math.max(0, ...cited);
    places.set(seq, [...(places.get(seq) ?? []), record]);
  }
  return places;
}

/** @param {{ of: (Memory | Fact)[] | undefined }} props */
function CameOf({ of = [] }) {
  return html`<ul class="came">${of.map((record) => "memory_id" in record
    ? html`<li key=${record.memory_id} class=${record.status === "active" ? "" : "gone"}><${Tag} of=${record.memory_type} />${" "}
      ${record.status !== "active" && html` <${Status} of=${record.status} />`}
      <a href=${to("memories", [record.memory_id])}>${record.memory_type === "message" ? "stored as a memory" : html`<${Text} text=${record.content} long=${160} />`}</a></li>`
    : html`<li key=${record.fact_id} class=${record.status === "active" ? "" : "gone"}><${Tag} of="fact" />
      ${record.status !== "active" && html` <${Status} of=${record.status} />`}
      <span> <${Text} text=${statement(record)} long=${160} /></span></li>`)}</ul>`;
}

/** The text of a message, whatever form it came in. @param {Schemas["Message"]} message */
function said(message) {
  if (typeof message.content === "string") return message.content;
  const parts = (message.content ?? []).map((part) => part.text ?? `[${part.type}]`);
  const calls = (message.tool_calls ?? []).map((call) => `→ ${JSON.stringify(call)}`);
  return [...parts, ...calls, message.result === null ? "" : JSON.stringify(message.result)].filter(Boolean).join("\n");
}

/** @param {{ id: string, route: import("../route.js").Route, caller: import("../api.js").Caller }} props */
function Conversation({ id, route, caller }) {
  const from = Number(route.params.from) || 0;
  const loaded = useLoad((signal) => load(id, from, signal), [id, from], ["session", "message", "memory", "fact"]);
  return html`<p><a class="back" href=${to("sessions")}><${Icon} of="chevron-left" /> All sessions</a></p>
    <h1 class="text">${id}</h1>
    <${Loaded} of=${loaded}>${(/** @type {Awaited<ReturnType<typeof load>>} */ data) =>
      html`<${Details} data=${data} from=${from} caller=${caller} again=${loaded.again} />`}</${Loaded}>`;
}

/** @param {{ data: Awaited<ReturnType<typeof load>>, from: number, caller: import("../api.js").Caller, again: () => void }} props */
function Details({ data, from, caller, again }) {
  const { session, messages } = data;
  const memories = [...new Map([...data.placed.items, ...data.learned.items].map((one) => [one.memory_id, one])).values()];
  const places = bySeq(memories, data.facts.items);
  const last = messages.items.length ? messages.items[messages.items.length - 1].seq : from;
  return html`<p><${Status} of=${session.status} /> <span class="quiet">${session.agent_id} with <a href=${to("owners", ["users", session.user_id])}>${session.user_id}</a>, begun <${Time} at=${session.created_at} />, ${counted(session.message_count, "message")}, ${counted(session.token_count, "token")}</span></p>
    <section class="box"><h2>Summary</h2>${session.summary ? html`<${Text} text=${session.summary} />`
      : html`<p class="quiet">None yet. It is written when the session ends.</p>`}</section>
    <${Learned} data=${data} caller=${caller} again=${again} />
    <section aria-label="Conversation">
      ${data.cut && html`<p class="quiet small">Only the newest ${RECORDS} memories and facts are drawn beside these turns.</p>`}
      ${messages.items.map((message) => html`<div class="turn" key=${message.seq} id=${`turn-${message.seq}`}>
        <div class=${`bubble ${message.role}`}><div class="small quiet">#${message.seq} ${message.name ?? message.role}, <${Time} at=${message.timestamp} />${message.edited_at && ", edited"}</div>
          ${message.deleted_at ? html`<i class="quiet">deleted</i>` : html`<${Text} text=${said(message)} />`}</div>
        <${CameOf} of=${places.get(message.seq)} /></div>`)}
      ${!messages.items.length && html`<p class="quiet">No messages here.</p>`}
    </section>
    <p class="row">${from > 0 && html`<a href=${to("sessions", [session.session_id], { from: Math.max(0, from - TURNS) || "" })}>Earlier turns</a>`}
      ${messages.next_cursor && html`<a href=${to("sessions", [session.session_id], { from: last })}>Later turns</a>`}</p>
    ${places.has(0) && html`<section class="box"><h2>Of the whole conversation</h2><${CameOf} of=${places.get(0)} /></section>`}`;
}

/** @param {{ data: Awaited<ReturnType<typeof load>>, caller: import("../api.js").Caller, again: () => void }} props */
function Learned({ data, caller, again }) {
  const toast = useToast();
  const [undoing, setUndoing] = useState(/** @type {Schemas["Operation"] | undefined} */ (undefined));
  const path = { session_id: data.session.session_id };
  const end = useAction(async () => {
    const done = await ended(await ask(api.POST("/v1/sessions/{session_id}/end", { params: { path } })));
    toast({ text: `Ended; learning ${done.status}.` });
    again();
  });
  const reopen = useAction(async () => {
    await ask(api.POST("/v1/sessions/{session_id}/reopen", { params: { path } }));
    toast({ text: "It takes messages again." });
    again();
  });
  const undo = async (/** @type {Schemas["Operation"]} */ operation) => {
    const one = { operation_id: operation.operation_id };
    const done = await ended(await ask(api.POST("/v1/operations/{operation_id}/undo", { params: { path: one } })));
    toast({ text: undone(done), bad: done.status === "failed" });
    again();
  };
  const writes = may(caller, "write");
  return html`<section class="box"><div class="row apart"><h2>What was learned</h2>
      ${writes && (data.session.status === "active"
        ? html`<button type="button" disabled=${end.busy} onClick=${end.start}>End and learn</button>`
        : html`<button type="button" disabled=${reopen.busy} onClick=${reopen.start}>Reopen</button>`)}</div>
    <${ProblemBox} problem=${end.error ?? reopen.error} />
    ${!data.operations.items.length && html`<p class="quiet">Nothing yet: the service learns when the session ends.</p>`}
    <ul class="list">${data.operations.items.map((operation) => html`<li key=${operation.operation_id}>
      <${Status} of=${operation.status} /> ${operation.kind === "post_conversation" ? "learned from the conversation" : words(operation.kind)}, <${Time} at=${operation.updated_at} />
      <${Parts} result=${operation.result} />
      ${writes && operation.can_undo && html` <button type="button" onClick=${() => setUndoing(operation)}>Undo what was learned</button>`}
      <span class="small"> <${RecordLink} id=${operation.operation_id} /></span></li>`)}</ul>
    ${undoing && html`<${Confirm} title="Undo what was learned?" button="Undo it" action=${() => undo(undoing)} onClose=${() => setUndoing(undefined)}>
      <p>Memories, facts, lessons and the summary of this run go; what they replaced comes back. Records that were changed since stay.</p></${Confirm}>`}
  </section>`;
}

/** What an undo did, as a sentence. @param {Schemas["Operation"]} operation */
function undone(operation) {
  const { restored, not_restored } = Object(operation.result);
  if (restored === undefined) return `The undo is ${operation.status}.`;
  return `Undone: ${restored} records are as before${not_restored ? `, ${not_restored} changed since and stay` : ""}.`;
}

/** The parts of a learning run: "memories (3 created, 2 superseded) · profile". @param {{ result: Schemas["Operation"]["result"] }} props */
function Parts({ result }) {
  const parts = /** @type {Record<string, Record<string, unknown>>} */ (Object(result).parts ?? {});
  return html`<p class="quiet">${Object.entries(parts).map(([name, { status, ...part }]) => {
    const told = Object.entries(part).filter(([, value]) => typeof value === "number" && value > 0).map(([field, value]) => `${value} ${words(field)}`);
    if (status !== "done") told.unshift(words(String(status)), ...(typeof part.detail === "string" ? [part.detail] : []));
    return `${words(name)}${told.length ? ` (${told.join(", ")})` : ""}`;
  }).join(" · ")}</p>`;
}
