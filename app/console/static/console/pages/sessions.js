/** Sessions, and one beside the list as a chat, with what came of each turn. */
import { html, useState } from "../ui.js";
import { BASE, api, ask, key, may, orNull, useLoad, usePages } from "../api.js";
import { Chips, ChosenFilter, DetailHead, Order, orderOf } from "../parts/collection.js";
import { Confirm, Empty, Loaded, More, ProblemBox, Waiting, WaitingRows, useAction, useToast } from "../parts/feedback.js";
import { RecordLink, Status, ended } from "../parts/records.js";
import { useNames } from "../parts/scope.js";
import { replacementOf } from "../parts/since.js";
import { Tag, Text, Time, counted, curl, statement, words } from "../parts/text.js";
import { Turn } from "../parts/turn.js";
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

/**
 * Sorts what came of the session by the message it names. What was learned names the memories of the messages that it
 * cites; the last one of these is its place. What has no place here belongs to the whole session.
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

/** @param {Memory | Fact} record @returns {boolean} whether it is the turn itself, kept as a memory */
const isTurn = (record) => "memory_id" in record && record.memory_type === "message";

/** What was made of a turn. That the turn itself is a memory, as most turns are, stands in the head of the turn.
 * @param {{ of: (Memory | Fact)[] | undefined, name: string }} props */
function CameOf({ of = [], name }) {
  const made = of.filter((record) => !isTurn(record));
  return html`<ul class="came">${made.map((record) => {
    const status = record.status !== "active" && html`<${Status} of=${record.status} />`;
    const gone = status ? "gone" : "";
    if ("fact_id" in record) {
      const text = html`<${Text} text=${statement(record, name)} long=${160} />`;
      return html`<li key=${record.fact_id} class=${gone}><${Tag} of="fact" />${status}${record.user_id ? html`<a href=${to("owners", ["users", record.user_id, "facts"], { fact: record.fact_id })}>${text}</a>` : text}</li>`;
    }
    return html`<li key=${record.memory_id} class=${gone}><${Tag} of=${record.memory_type} />${status}<a href=${to("memories", [record.memory_id])}><${Text} text=${record.content} long=${160} /></a></li>`;
  })}</ul>`;
}

/** The way to the memory that a turn is. @param {{ of: (Memory | Fact)[] | undefined }} props */
function KeptTurn({ of = [] }) {
  const turn = of.find(isTurn);
  return turn && "memory_id" in turn ? html` · <a href=${to("memories", [turn.memory_id])}>${turn.status === "active" ? "as a memory" : `as a memory, ${words(turn.status)}`}</a>` : null;
}

/** The way to the prompt behind an answer. @param {{ message: Schemas["Message"], session: Schemas["Session"] }} props */
const WhyAnswer = ({ message: { role, seq }, session: { session_id, agent_id, user_id } }) => (role === "assistant"
  ? html` · <a href=${to("prompt", [], { session_id, agent_id, user_id, turn: seq })}>Why did it say that?</a>` : null);

/** @param {{ id: string, from: number, params: Record<string, string>, caller: import("../api.js").Caller }} props */
function OneSession({ id, from, params, caller }) {
  const loaded = useLoad((signal) => load(id, from, signal), [id, from], ["session", "message", "memory", "fact"]);
  return html`<section aria-label="Session"><${DetailHead} title=${id} back=${to("sessions", [], params)} all="All sessions">
      ${loaded.data && may(caller, "write") && html`<${EndOrReopen} session=${loaded.data.session} again=${loaded.again} />`}</${DetailHead}>
    <${Loaded} of=${loaded}>${(/** @type {Awaited<ReturnType<typeof load>>} */ data) =>
      html`<${Details} data=${data} from=${from} params=${params} caller=${caller} again=${loaded.again} />`}</${Loaded}></section>`;
}

/** @param {{ data: Awaited<ReturnType<typeof load>>, from: number, params: Record<string, string>, caller: import("../api.js").Caller, again: () => void }} props */
function Details({ data, from, params, caller, again }) {
  const { session, messages } = data;
  const names = useNames();
  const person = names.person(session.user_id);
  const memories = [...new Map([...data.placed.items, ...data.learned.items].map((one) => [one.memory_id, one])).values()];
  const places = bySeq(memories, data.facts.items);
  // the summary stands above, and is a memory, too
  const ofAll = (places.get(0) ?? []).filter((record) => !("memory_id" in record && record.memory_type === "summary" && record.content === session.summary));
  const last = messages.items.length ? messages.items[messages.items.length - 1].seq : from;
  const turns = (/** @type {number | ""} */ after) => to("sessions", [session.session_id], { ...params, from: after });
  return html`<p><${Status} of=${session.status} /> <span class="quiet">${names.agent(session.agent_id)} with <a href=${to("owners", ["users", session.user_id])}>${person}</a>, begun <${Time} at=${session.created_at} />, ${counted(session.message_count, "message")}, ${counted(session.token_count, "token")}</span></p>
    <section class="box"><h2>Summary</h2>${session.summary ? html`<${Text} text=${session.summary} />`
      : html`<p class="quiet">None yet. It is written when the session ends.</p>`}</section>
    <${Changed} data=${data} memories=${memories} person=${person} />
    <section aria-label="Turns">
      <div class="heads small quiet"><span>What was said</span><span>What it left behind</span></div>
      ${data.cut && html`<p class="quiet small">Only the newest ${RECORDS} memories and facts are drawn beside these turns.</p>`}
      ${messages.items.map((message) => html`<div class="turn" key=${message.seq} id=${`turn-${message.seq}`}>
        <${Turn} message=${message}><${KeptTurn} of=${places.get(message.seq)} /><${WhyAnswer} message=${message} session=${session} /></${Turn}>
        <${CameOf} of=${places.get(message.seq)} name=${person} /></div>`)}
      ${!messages.items.length && html`<p class="quiet">No messages here.</p>`}
    </section>
    <p class="row">${from > 0 && html`<a href=${turns(Math.max(0, from - TURNS) || "")}>Earlier turns</a>`}
      ${messages.next_cursor && html`<a href=${turns(last)}>Later turns</a>`}</p>
    ${ofAll.length > 0 && html`<section class="box"><h2>Of the whole session</h2><${CameOf} of=${ofAll} name=${person} /></section>`}
    <${Learned} data=${data} caller=${caller} again=${again} />`;
}

/** A change of a profile, as the run that learned it reports it. @typedef {{ field: string, value: string, quote: string, before?: string | number | null }} ProfileChange */

/** @param {Schemas["Operation"]} operation @param {"profile" | "experience"} part @returns {Record<string, any>} */
const partOf = ({ result }, part) => Object(Object(Object(result).parts)[part]);

/** What the session changed of what was known before: fields of the profile, facts and memories, each with what it replaced, and lessons
 * of the agent. @param {{ data: Awaited<ReturnType<typeof load>>, memories: Memory[], person: string }} props */
function Changed({ data, memories, person }) {
  const { session_id, user_id, agent_id } = data.session;
  const operations = data.operations.items;
  const names = useNames();
  const ran = operations.filter((operation) => operation.kind === "post_conversation" && operation.status === "succeeded");
  const profile = /** @type {ProfileChange[]} */ (ran.flatMap((operation) => partOf(operation, "profile").quotes ?? []));
  const newer = memories.filter((memory) => memory.supersedes.length > 0);
  const learns = ran.some((operation) => partOf(operation, "experience").learned > 0);
  const before = useLoad(async (signal) => (newer.length ? (await ask(api.GET("/v1/memories", { params: { query: { user_id, status: "superseded", limit: RECORDS } }, signal }))).items : []), [newer.map((memory) => memory.memory_id).join()]);
  const lessons = useLoad(async (signal) => {
    const experience = learns ? await orNull(ask(api.GET("/v1/agents/{agent_id}/experience", { params: { path: { agent_id } }, signal }))) : null;
    return Object.values(experience ?? {}).flatMap((list) => (Array.isArray(list) ? list : [])).filter((lesson) => lesson.source.session_id === session_id);
  }, [agent_id, learns]);
  const facts = data.facts.items.filter((fact) => fact.status === "active" && fact.valid_from);
  const ended = useLoad(async (signal) => (user_id && facts.some((fact) => fact.supersedes.length) ? (await ask(api.GET("/v1/facts", { params: { query: { user_id, timeline: true, limit: RECORDS } }, signal }))).items : []), [user_id, facts.map(({ fact_id }) => fact_id).join()]);
  const followed = facts.flatMap((fact) => (ended.data ?? []).filter((other) => replacementOf(other, [fact])).map((old) => ({ fact, old }))).filter(({ fact }) => !profile.some((change) => change.value === fact.object));
  if (!profile.length && !newer.length && !learns && !followed.length) return null;
  const old = (/** @type {string} */ id) => {
    const memory = before.data?.find((known) => known.memory_id === id);
    return html` before: <a key=${id} href=${to("memories", [id])}>${memory ? html`<${Text} text=${memory.content} long=${160} />` : "another memory"}</a>`;
  };
  return html`<section class="box" aria-label="What it changed"><h2>What it changed</h2><ul class="list">
    ${profile.map((change) => html`<li key=${`${change.field} ${change.value}`}><a class="title" href=${to("owners", ["users", user_id ?? "", "profile"])}>${person} · ${words(change.field)}: <${Text} text=${change.value} long=${160} /></a>
      <div class="small quiet"><${Tag} of="profile" />${change.before ? html` before: <${Text} text=${String(change.before)} long=${160} /> ·` : ""} “<${Text} text=${change.quote} long=${160} />”</div></li>`)}
    ${followed.map(({ fact, old }) => html`<li key=${fact.fact_id}><a class="title" href=${to("owners", ["users", user_id ?? "", "facts"], { fact: fact.fact_id })}><${Text} text=${statement(fact, person)} long=${160} /></a>
      <div class="small quiet"><${Tag} of="fact" /> before: <${Text} text=${statement(old, person)} long=${160} />${fact.source.quote && html` · “<${Text} text=${fact.source.quote} long=${160} />”`}</div></li>`)}
    ${newer.map((memory) => html`<li key=${memory.memory_id}><a class="title" href=${to("memories", [memory.memory_id])}><${Text} text=${memory.content} long=${160} /></a><div class="small quiet"><${Tag} of=${memory.memory_type} />${memory.supersedes.map(old)}</div></li>`)}
    ${(lessons.data ?? []).map((lesson) => html`<li key=${lesson.text}><a class="title" href=${to("owners", ["agents", agent_id, "experience"])}><${Text} text=${lesson.text} long=${160} /></a>
      <div class="small quiet"><${Tag} of="lesson" /> of ${names.agent(agent_id)}</div></li>`)}</ul>
    ${learns && !lessons.data && html`<${Loaded} of=${lessons} waiting=${html`<${Waiting} lines=${1} />`}>${() => null}</${Loaded}>`}
    ${learns && lessons.data?.length === 0 && html`<p class="quiet small">The lessons that were learned from it are gone, or were learned again from a later session.</p>`}</section>`;
}

/** Ends a session, which learns from it; one that has ended takes messages again. @param {{ session: Schemas["Session"], again: () => void }} props */
function EndOrReopen({ session, again }) {
  const toast = useToast();
  const path = { session_id: session.session_id };
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
  const act = session.status === "active" ? end : reopen;
  return html`<button type="button" disabled=${act.busy} onClick=${act.start}>${session.status === "active" ? "End and learn" : "Reopen"}</button><${ProblemBox} problem=${act.error} />`;
}

/** @param {{ data: Awaited<ReturnType<typeof load>>, caller: import("../api.js").Caller, again: () => void }} props */
function Learned({ data, caller, again }) {
  const toast = useToast();
  const [undoing, setUndoing] = useState(/** @type {Schemas["Operation"] | undefined} */ (undefined));
  const undo = async (/** @type {Schemas["Operation"]} */ operation) => {
    const one = { operation_id: operation.operation_id };
    const done = await ended(await ask(api.POST("/v1/operations/{operation_id}/undo", { params: { path: one } })));
    toast({ text: undone(done), bad: done.status === "failed" });
    again();
  };
  const writes = may(caller, "write");
  return html`<section class="box"><h2>What was learned</h2>
    ${!data.operations.items.length && html`<p class="quiet">Nothing yet: the service learns when the session ends.</p>`}
    <ul class="list">${data.operations.items.map((operation) => html`<li key=${operation.operation_id}>
      <${Status} of=${operation.status} /> ${words(operation.kind)}, <${Time} at=${operation.updated_at} /> <span class="small quiet"><${RecordLink} id=${operation.operation_id} /></span>
      <${Parts} result=${operation.result} />
      ${writes && operation.can_undo && html` <button type="button" onClick=${() => setUndoing(operation)}>Undo what was learned</button>`}</li>`)}</ul>
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
