/** Sessions, and one beside the list as a chat, with what came of each turn. */
import { html, useState } from "../ui.js";
import { BASE, api, ask, key, may, useLoad, usePages } from "../api.js";
import { Chips, ChosenFilter, DetailHead, Order, orderOf } from "../parts/collection.js";
import { fieldOf } from "../parts/doubts.js";
import { Confirm, Empty, Loaded, More, ProblemBox, WaitingRows, useAction, useToast } from "../parts/feedback.js";
import { RecordLink, Status, addressOf, ended } from "../parts/records.js";
import { useNames } from "../parts/scope.js";
import { replacementOf } from "../parts/since.js";
import { Fold, Tag, Text, Time, bare, counted, curl, statement, typeOf, words } from "../parts/text.js";
import { Turn, textOf } from "../parts/turn.js";
import { go, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Memory"]} Memory */
/** @typedef {Schemas["Fact"]} Fact */

const TURNS = 50;
const RECORDS = 100;
const STATUSES = /** @type {const} */ (["active", "ended"]);

/** @type {import("../console.js").Page} */
export default function Sessions({ route, caller }) {
  const { params: { from, ...params }, rest: [chosen] } = route;
  const { agent_id, user_id } = params;
  const status = STATUSES.find((one) => one === params.status);
  const query = { agent_id, user_id, status, order: orderOf(params), limit: 30 };
  const sessions = usePages((cursor, signal) => ask(api.GET("/v1/sessions", { params: { query: { ...query, cursor } }, signal })), [JSON.stringify(query)], ["session", "message"]);
  const set = (/** @type {Record<string, string>} */ given) => go(to("sessions", chosen ? [chosen] : [], { ...params, ...given }), { replace: true });
  const body = { agent_id: "support", user_id: "ada", messages: [{ role: "user", content: "I moved to Boston." }] };
  const filtered = Object.values(params).some(Boolean);
  return html`<h1>Sessions</h1>
    <form role="search" aria-label="Sessions" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
      <div class="filters"><${ChosenFilter} name="status" label="Status" params=${params} set=${set} options=${STATUSES} any="any status" /><${Order} params=${params} set=${set} /></div>
      <${Chips} params=${params} set=${set} names=${{ status: "Status" }} /></form>
    <${ProblemBox} problem=${sessions.error} again=${sessions.again} />
    <div class=${chosen ? "two detail wide" : ""}>
      ${(sessions.items ?? sessions.loading) && html`<section class="box" aria-label="List of sessions" aria-busy=${sessions.loading}>
        <${WaitingRows} of=${sessions} />
        ${sessions.items?.length === 0 && html`<${Empty} title=${filtered ? "No session is like this. Append messages to begin one:" : "No session. Append messages to begin one:"}
          curl=${curl("POST", `${BASE}/v1/sessions/chat-1/messages`, body, Boolean(key.get()))} />`}
        <ul class="list">${sessions.items?.map((session) => html`<${Row} key=${session.session_id} session=${session} params=${params} chosen=${session.session_id === chosen} />`)}</ul>
        <${More} of=${sessions} /></section>`}
      ${chosen && html`<${OneSession} key=${chosen} id=${chosen} from=${Number(from) || 0} params=${params} caller=${caller} />`}</div>`;
}

/** @param {{ session: Schemas["Session"], params: Record<string, string>, chosen: boolean }} props */
function Row({ session, params, chosen }) {
  const names = useNames();
  return html`<li class=${chosen ? "chosen" : ""}><a class="title text" href=${to("sessions", [session.session_id], params)} aria-current=${chosen ? "true" : undefined}>${session.session_id}</a>
    <div class="small quiet">${session.status === "active" && html`<${Status} of="active" /> `}${names.agent(session.agent_id)} with ${names.person(session.user_id)} · ${counted(session.message_count, "message")} · <${Time} at=${session.last_message_at} /></div>
    ${session.summary && html`<div class="small quiet"><${Text} text=${session.summary} long=${140} /></div>`}</li>`;
}

/** @param {string} session_id @param {number} from @param {AbortSignal} signal */
async function load(session_id, from, signal) {
  const path = { session_id };
  const of = { session_id, limit: RECORDS, status: /** @type {const} */ ("any") };
  const between = (/** @type {number} */ before_seq) => ask(api.GET("/v1/memories", { params: { query: { ...of, after_seq: from, before_seq } }, signal }));
  const [session, messages, all, facts, operations] = await Promise.all([
    ask(api.GET("/v1/sessions/{session_id}", { params: { path }, signal })),
    ask(api.GET("/v1/sessions/{session_id}/messages", { params: { path, query: { after_seq: from, limit: TURNS } }, signal })),
    ask(api.GET("/v1/memories", { params: { query: of }, signal })),
    ask(api.GET("/v1/facts", { params: { query: { ...of, timeline: true } }, signal })),
    ask(api.GET("/v1/operations", { params: { query: { session_id, limit: 20 } }, signal })),
  ]);
  if (!all.next_cursor) return { session, messages, placed: all, learned: all, facts, operations, cut: Boolean(facts.next_cursor) };
  // of a long session: what belongs to these turns, and what was learned. Where turns were deleted for good, a page of them goes on beyond the numbers that were expected
  const last = messages.items[messages.items.length - 1]?.seq ?? from;
  const [placed, learned] = await Promise.all([between(Math.max(last, from + TURNS) + 1), ask(api.GET("/v1/memories", { params: { query: { ...of, origin: "extraction" } }, signal }))]);
  return { session, messages, placed, learned, facts, operations, cut: [placed, learned, facts].some((page) => page.next_cursor) };
}

/** One record that came of a session, however it is stored. `note`: its type, or the field of the profile that it fills; `before`: what it took the
 * place of; `seq`: the turn that it came of, 0 for the whole session, and -1 for a turn of another page.
 * @typedef {{ key: string, kind: Kind, text: string, href?: string, status?: string, note?: string, before: { text: string, href?: string }[], seq: number }} Outcome */

const KINDS = /** @type {const} */ (["summary", "memory", "fact", "profile", "lesson"]);
/** @typedef {typeof KINDS[number]} Kind */
const MANY = /** @type {Record<Kind, [string, string]>} */ ({ summary: ["summary", "summaries"], memory: ["memory", "memories"], fact: ["fact", "facts"], profile: ["field of the profile", "fields of the profile"],
  lesson: ["lesson", "lessons"] });

/** A change of a profile, as the run that learned it reports it. @typedef {{ field: string, value: string, quote: string }} ProfileChange */

/** @param {Schemas["Operation"]} operation @param {"profile" | "experience"} part @returns {Record<string, any>} */
const partOf = ({ result }, part) => Object(Object(Object(result).parts)[part]);

/** The facts, each once: of one that was stated again, as when it ended, what is known of it now. @param {Fact[]} facts */
const known = (facts) => [...Map.groupBy(facts, (fact) => fact.lineage_id).values()].map((stated) => stated.find((fact) => fact.status !== "superseded") ?? stated[0]);

/**
 * All that came of a session, each once: memories that say more than a fact, facts, fields of the profile that no fact states, and lessons of the agent. What it took the place of is asked for when the rest is there.
 * @param {Awaited<ReturnType<typeof load>>} data @returns {Outcome[]}
 */
function useCame({ session: { session_id, user_id, agent_id, summary }, messages, placed, learned, facts, operations }) {
  const names = useNames();
  const person = names.person(user_id);
  const all = [...new Map([...placed.items, ...learned.items].map((memory) => [memory.memory_id, memory])).values()];
  /** @param {Memory} memory */
  const isSummary = (memory) => memory.memory_type === "summary" && memory.content === summary;
  const stated = known(facts.items);
  const twice = new Set(stated.map((fact) => bare(statement(fact, person))));
  const memories = all.filter((memory) => !isTurn(memory) && !isSummary(memory) && !twice.has(bare(memory.content)));
  const ran = operations.items.filter((operation) => operation.kind === "post_conversation" && operation.status === "succeeded");
  const fields = /** @type {ProfileChange[]} */ (ran.flatMap((operation) => partOf(operation, "profile").quotes ?? []));
  const learns = ran.some((operation) => partOf(operation, "experience").learned > 0);
  const replaces = memories.some((memory) => memory.supersedes.length > 0), ends = stated.some((fact) => fact.supersedes.length > 0);
  const more = useLoad(async (signal) => {
    const [old, ended, experience] = await Promise.all([
      replaces ? ask(api.GET("/v1/memories", { params: { query: { user_id, status: "superseded", limit: RECORDS } }, signal })) : undefined,
      ends && user_id ? ask(api.GET("/v1/facts", { params: { query: { user_id, timeline: true, limit: RECORDS } }, signal })) : undefined,
      learns ? ask(api.GET("/v1/agents/{agent_id}/experience", { params: { path: { agent_id } }, signal })).catch(() => undefined) : undefined, // a key that is bound to the person may not read it
    ]);
    const lists = Object.values(experience ?? {}).flatMap((list) => (Array.isArray(list) ? [...list] : []));
    const lessons = lists.filter((one) => "source" in one).filter((lesson) => lesson.source.session_id === session_id);
    return { old: old?.items ?? [], ended: ended?.items ?? [], lessons };
  }, [session_id, [...memories.map((memory) => memory.memory_id), ...stated.map((fact) => fact.fact_id)].join(), learns]);
  const { old, ended, lessons } = more.data ?? { old: [], ended: [], lessons: [] };

  const paged = messages.next_cursor || (messages.items[0]?.seq ?? 1) > 1;
  const said = new Map(all.filter(isTurn).map((memory) => [memory.memory_id, memory.source.message_seq ?? 0]));
  /** What was learned names the memories of the messages that it cites: the last one of these is its place. @param {Memory["source"]} source */
  const turnOf = ({ message_seq, memory_ids = [] }) => {
    const cited = memory_ids.map((id) => said.get(id) ?? 0).filter(Boolean);
    return message_seq ?? (cited.length ? Math.max(...cited) : memory_ids.length && paged ? -1 : 0);
  };
  /** @param {string | undefined} quote */
  const saidIn = (quote) => messages.items.find((message) => quote && textOf(message).includes(quote))?.seq ?? 0;
  /** @type {Outcome[]} */
  const records = memories.map((memory) => ({ key: memory.memory_id, kind: "memory", text: memory.content, href: to("memories", [memory.memory_id]), status: memory.status,
    note: typeOf(memory.memory_type), seq: turnOf(memory.source),
    before: memory.supersedes.map((id) => ({ text: old.find((other) => other.memory_id === id)?.content ?? "another memory", href: to("memories", [id]) })) }));
  if (summary) {
    const kept = all.find(isSummary);
    records.unshift({ key: "summary", kind: "summary", text: summary, href: kept && to("memories", [kept.memory_id]), status: kept?.status, before: [], seq: 0 });
  }
  for (const fact of stated) {
    const field = fieldOf(fact);
    const replaced = fact.supersedes.length ? ended.find((other) => other.fact_id !== fact.fact_id && replacementOf(other, [fact])) : undefined;
    const was = replaced ? [{ text: statement(replaced, person), href: addressOf(replaced) }] : [];
    records.push({ key: fact.fact_id, kind: "fact", text: statement(fact, person), href: addressOf(fact), status: fact.status, seq: turnOf(fact.source), before: was,
      note: [field && `${field} of the profile`, fact.valid_until && `ended ${fact.valid_until.slice(0, 10)}`].filter(Boolean).join(" · ") });
  }
  for (const { field, value, quote } of fields.filter((change) => !stated.some((fact) => fact.object === change.value))) {
    records.push({ key: `${field} ${value}`, kind: "profile", text: `${words(field)}: ${value}`, href: to("owners", ["users", user_id, "profile"]), seq: saidIn(quote), before: [] });
  }
  for (const lesson of lessons) records.push({ key: lesson.text, kind: "lesson", text: lesson.text, href: to("owners", ["agents", agent_id, "experience"]), note: `of ${names.agent(agent_id)}`, before: [], seq: 0 });
  return records;
}

/** @param {Memory} memory @returns {boolean} whether it is the turn itself, kept as a memory */
const isTurn = (memory) => memory.memory_type === "message";

/** What came of a turn, each with what it took the place of. @param {{ of: Outcome[] }} props */
const CameOf = ({ of }) => html`<ul class="came">${of.map(({ key, kind, text, href, status, note, before }) => {
  const gone = status && status !== "active";
  return html`<li key=${key} class=${gone ? "gone" : ""}><${Tag} of=${kind} />${gone && html`<${Status} of=${status} />`}<div>${href ? html`<a href=${href}><${Text} text=${text} long=${160} /></a>` : html`<${Text} text=${text} long=${160} />`}
    ${(note || before.length > 0) && html`<div class="small quiet">${note}${before.map((was) => html`${note && " · "}in place of ${was.href ? html`<a key=${was.href} href=${was.href}><${Text} text=${was.text} long=${160} /></a>` : html`<${Text} text=${was.text} long=${160} />`}`)}</div>`}</div></li>`;
})}</ul>`;

/** How much came of it, by kind: "1 summary, 3 memories, 3 facts, 1 lesson". @param {Outcome[]} came */
const countedBy = (came) => KINDS.map((kind) => ({ kind, count: came.filter((record) => record.kind === kind).length })).filter(({ count }) => count)
  .map(({ kind, count }) => counted(count, ...MANY[kind])).join(", ");

/** The way to the memory that a turn is. @param {{ of: Memory | undefined }} props */
const KeptTurn = ({ of }) => (of ? html` · <a href=${to("memories", [of.memory_id])}>${of.status === "active" ? "as a memory" : `as a memory, ${words(of.status)}`}</a>` : null);

/** The way to the prompt behind an answer. @param {{ message: Schemas["Message"], session: Schemas["Session"] }} props */
const WhyAnswer = ({ message: { role, seq }, session: { session_id, agent_id, user_id } }) => (role === "assistant"
  ? html` · <a href=${to("prompt", [], { session_id, agent_id, user_id, turn: seq })}>Why did it say that?</a>` : null);

/** @param {{ id: string, from: number, params: Record<string, string>, caller: import("../api.js").Caller }} props */
function OneSession({ id, from, params, caller }) {
  const loaded = useLoad((signal) => load(id, from, signal), [id, from], ["session", "message", "memory", "fact"]);
  return html`<section aria-label="Session"><${DetailHead} title=${id} back=${to("sessions", [], params)} all="All sessions">
      ${loaded.data && may(caller, "write") && html`<${EndOrReopen} session=${loaded.data.session} caller=${caller} again=${loaded.again} />`}</${DetailHead}>
    <${Loaded} of=${loaded}>${(/** @type {Awaited<ReturnType<typeof load>>} */ data) =>
      html`<${Details} data=${data} from=${from} params=${params} caller=${caller} again=${loaded.again} />`}</${Loaded}></section>`;
}

/** @param {{ data: Awaited<ReturnType<typeof load>>, from: number, params: Record<string, string>, caller: import("../api.js").Caller, again: () => void }} props */
function Details({ data, from, params, caller, again }) {
  const { session, messages } = data;
  const names = useNames();
  const came = useCame(data);
  const shown = new Set(messages.items.map((message) => message.seq));
  const ofAll = came.filter(({ seq }) => seq === 0), elsewhere = came.filter(({ seq }) => seq !== 0 && !shown.has(seq));
  const replacing = came.filter(({ before }) => before.length).length;
  const last = messages.items.length ? messages.items[messages.items.length - 1].seq : from;
  const turns = (/** @type {number | ""} */ after) => to("sessions", [session.session_id], { ...params, from: after });
  return html`<p><${Status} of=${session.status} /> <span class="quiet">${names.agent(session.agent_id)} with <a href=${to("owners", ["users", session.user_id])}>${names.person(session.user_id)}</a>, begun <${Time} at=${session.created_at} day=${true} />, ${counted(session.message_count, "message")}, ${counted(session.token_count, "token")}</span></p>
    <section class="box" aria-label="Summary">${session.summary ? html`<p><${Text} text=${session.summary} /></p>`
      : html`<p class="quiet">${caller.language_model ? "No summary yet. It is written when the session ends." : "No summary: that needs a language model, and so does learning from the session when it ends."}</p>`}
      ${came.length > 0 && html`<p><span class="quiet">What came of it:</span> ${countedBy(came)}${replacing > 0 && `; ${replacing} of them in place of what was known before`}.</p>`}
      <${Learned} data=${data} replaced=${replacing} caller=${caller} again=${again} /></section>
    <section aria-label="Turns">
      <div class="heads small quiet"><span>What was said</span><span>What came of it</span></div>
      ${data.cut && html`<p class="quiet small">Only the newest ${RECORDS} memories and facts are drawn beside these turns.</p>`}
      ${messages.items.map((message) => html`<div class="turn" key=${message.seq} id=${`turn-${message.seq}`}>
        <${Turn} message=${message}><${KeptTurn} of=${data.placed.items.find((memory) => isTurn(memory) && memory.source.message_seq === message.seq)} /><${WhyAnswer} message=${message} session=${session} /></${Turn}>
        <${CameOf} of=${came.filter(({ seq }) => seq === message.seq)} /></div>`)}
      ${!messages.items.length && html`<p class="quiet">No messages here.</p>`}
    </section>
    <p class="row">${from > 0 && html`<a href=${turns(Math.max(0, from - TURNS) || "")}>Earlier turns</a>`}
      ${messages.next_cursor && html`<a href=${turns(last)}>Later turns</a>`}</p>
    ${ofAll.length > 0 && html`<section class="box" aria-label="Of the whole session"><h2>Of the whole session</h2><${CameOf} of=${ofAll} /></section>`}
    ${elsewhere.length > 0 && html`<${Fold} title=${`Of turns that are not on this page (${elsewhere.length})`} kind="box" small=${false}>${() => html`<${CameOf} of=${elsewhere} />`}</${Fold}>`}`;
}

/** Ends a session, which learns from it; one that has ended takes messages again. @param {{ session: Schemas["Session"], caller: import("../api.js").Caller, again: () => void }} props */
function EndOrReopen({ session, caller, again }) {
  const toast = useToast();
  const path = { session_id: session.session_id };
  const end = useAction(async () => {
    const done = await ended(await ask(api.POST("/v1/sessions/{session_id}/end", { params: { path } })));
    toast({ text: caller.language_model ? `Ended; learning ${done.status}.` : "Ended." });
    again();
  });
  const reopen = useAction(async () => {
    await ask(api.POST("/v1/sessions/{session_id}/reopen", { params: { path } }));
    toast({ text: "It takes messages again." });
    again();
  });
  const act = session.status === "active" ? end : reopen;
  return html`<button type="button" disabled=${act.busy} onClick=${act.start}>${session.status === "active" ? (caller.language_model ? "End and learn" : "End") : "Reopen"}</button><${ProblemBox} problem=${act.error} />`;
}

/** @param {{ data: Awaited<ReturnType<typeof load>>, replaced: number, caller: import("../api.js").Caller, again: () => void }} props `replaced`: how many values what came of the session took the place of */
function Learned({ data, replaced, caller, again }) {
  const toast = useToast();
  const [undoing, setUndoing] = useState(/** @type {Schemas["Operation"] | undefined} */ (undefined));
  const undo = async (/** @type {Schemas["Operation"]} */ operation) => {
    const one = { operation_id: operation.operation_id };
    const done = await ended(await ask(api.POST("/v1/operations/{operation_id}/undo", { params: { path: one } })));
    toast({ text: undone(done), bad: done.status === "failed" });
    again();
  };
  const writes = may(caller, "write");
  if (!data.operations.items.length) return caller.language_model && html`<p class="quiet small">Nothing was learned yet: the service learns when the session ends.</p>`;
  const models = [...new Set(data.learned.items.flatMap(({ source }) => (source.origin === "extraction" && source.model ? [source.model] : [])))];
  return html`<ul class="list">${data.operations.items.map((operation) => html`<li key=${operation.operation_id} class="row apart"><span class="small quiet">
      ${operation.kind === "post_conversation" && operation.status === "succeeded" ? "Learned" : html`<${Status} of=${operation.status} /> ${words(operation.kind)}`} <${Time} at=${operation.updated_at} />${told(operation, models)} · <${RecordLink} id=${operation.operation_id} /></span>
      ${writes && operation.can_undo && html` <button type="button" class="small" title="Replaced values come back" onClick=${() => setUndoing(operation)}>Undo what was learned</button>`}</li>`)}</ul>
    ${undoing && html`<${Confirm} title="Undo what was learned?" button="Undo it" action=${() => undo(undoing)} onClose=${() => setUndoing(undefined)}>
      <p>Memories, facts, lessons and the summary of this run go, and the values that they took the place of come back${replaced > 0 && `: ${counted(replaced, "value")} of this session`}. Records that were changed since stay.</p></${Confirm}>`}`;
}

/** What an undo did, as a sentence. @param {Schemas["Operation"]} operation */
function undone(operation) {
  const { restored, not_restored } = Object(operation.result);
  if (restored === undefined) return `The undo is ${operation.status}.`;
  return `Undone: ${restored} records are as before, replaced values are back${not_restored ? `, ${not_restored} changed since and stay` : ""}.`;
}

/** By what a run learned and at which cost, and its parts that were not done: " by a script, no model, 2 calls, 310 tokens; facts: failed".
 * @param {Schemas["Operation"]} operation @param {string[]} models */
function told({ kind, result }, models) {
  const { llm, parts } = Object(result);
  if (kind !== "post_conversation" || !parts) return "";
  const by = llm?.calls ? ` by ${models.join(" and ") || "a language model"}${llm.tokens ? `, ${counted(llm.calls, "call")}, ${counted(llm.tokens, "token")}` : ""}` : " by rules, without a language model";
  const undone = Object.entries(/** @type {Record<string, { status: string, reason?: string }>} */ (parts)).filter(([, { status }]) => status !== "done");
  return [by, ...undone.map(([name, { status, reason }]) => `${words(name)}: ${words(status)}${reason ? `, ${reason}` : ""}`)].join("; ");
}
