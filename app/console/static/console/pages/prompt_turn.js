/** The prompt behind an answer, built again as of the moment before the question: what was sent is not kept. */
import { html } from "../ui.js";
import { Problem, api, ask, useLoad } from "../api.js";
import { SourceLink } from "../parts/records.js";
import { Text, Time, counted, visible } from "../parts/text.js";
import { Turn, textOf } from "../parts/turn.js";
import { to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Message"]} Message */
/** An answer, the question before it, and the moment that the prompt is built for. `alike`: earlier turns have the time of the question.
 * @typedef {{ answer: Message, question?: Message, at: string, alike: boolean }} Asked */

/** So many turns before an answer the question is looked for: calls of tools may stand between them. */
const BEFORE = 20;
const MOST = 100;

/** The time before a question: its own turn, and an answer that was stored with the same time, are no part of the prompt. @param {string} time */
const before = (time) => new Date(Date.parse(time) - 1).toISOString();

/** The answer of a session with its question. @param {string} session_id @param {number} seq @param {AbortSignal} signal @returns {Promise<Asked>} */
export async function askedBefore(session_id, seq, signal) {
  const query = { after_seq: Math.max(0, seq - 1 - BEFORE), limit: BEFORE + 1 };
  const { items } = await ask(api.GET("/v1/sessions/{session_id}/messages", { params: { path: { session_id }, query }, signal }));
  const answer = items.find((message) => message.seq === seq);
  if (!answer) throw new Problem(404, "not_found", "The session has no such turn.", "");
  const question = items.filter((message) => message.role === "user" && message.seq < answer.seq && !message.deleted_at).pop();
  const time = question?.timestamp ?? answer.timestamp;
  return { answer, question, at: before(time), alike: items.some((message) => message.seq < (question?.seq ?? 0) && message.timestamp >= time) };
}

/** What the body of a prompt for that moment has beside what the address says. @param {Asked} asked */
export const asOf = ({ question, at }) => ({ query: question ? textOf(question) : "", now: at, as_of: at, known_at: at });

/** The question and the answer, and how far the prompt below is the one that was sent. @param {{ asked: Asked, session_id: string }} props */
export function AskedTurn({ asked: { answer, question, at, alike }, session_id }) {
  return html`<section class="box" aria-label="The answer">
    <div class="row apart"><h2 class="text">Turn ${answer.seq} of ${visible(session_id)}</h2><a href=${to("sessions", [session_id], { from: Math.max(0, answer.seq - 1 - BEFORE) })}>The session</a></div>
    ${question && html`<${Turn} message=${question} />`}<${Turn} message=${answer} />
    ${question ? html`<p><b>Built again as of <${Time} at=${at} whole=${true} /> UTC; what was sent is not kept.</b></p>
      ${alike && html`<p>Earlier turns of the session were stored with the same time as the question, so they are missing below.</p>`}
      <details><summary class="small">How near it is to what was sent</summary><ul class="values small quiet">
        <li>Turns, memories, facts, lessons and actions are those that were known a moment before the question.</li>
        <li>Memories that were replaced, archived or deleted since are missing. Those that were replaced stand under <i>Replaced since</i>.</li>
        <li>The task, procedures, what somebody wrote into the agent's knowledge, and the lists of the profile are those of now. A memory that was edited since has the words of now.</li>
        <li>Budget, sections and limits are those that you set below, or the defaults; the agent may have asked for others, or for no prompt at all.</li></ul></details>`
      : html`<p class="quiet">No turn of a person that could be asked again stands before it.</p>`}</section>`;
}

/** Memories that held at that moment and were replaced since: the prompt may have had them.
 * @param {{ at: string, owner: { user_id?: string, agent_id?: string } }} props */
export function ReplacedSince({ at, owner: { user_id, agent_id } }) {
  const loaded = useLoad(async (signal) => {
    const page = await ask(api.GET("/v1/memories", { params: { query: { user_id, status: "superseded", limit: MOST } }, signal }));
    return page.items.filter((memory) => memory.created_at <= at && memory.updated_at > at && (!memory.agent_id || memory.agent_id === agent_id));
  }, [user_id, agent_id, at]);
  if (!loaded.data?.length) return null;
  return html`<section class="box" aria-label="Replaced since"><h2>Replaced since (${loaded.data.length})</h2>
    <p class="small quiet">${counted(loaded.data.length, "memory", "memories")} that held then. The prompt may have had ${loaded.data.length === 1 ? "it" : "them"}.</p>
    <ul class="list">${loaded.data.map((memory) => html`<li key=${memory.memory_id}><a class="title" href=${to("memories", [memory.memory_id])}><${Text} text=${memory.content} long=${200} /></a>
      <div class="small quiet">replaced <${Time} at=${memory.updated_at} /> · <${SourceLink} of=${memory.source} /></div></li>`)}</ul></section>`;
}
