/** What ⌘K opens: finds people, agents, sessions, memories and pages, and goes there. */
import { api, ask, useLoad } from "../api.js";
import { html, useEffect, useRef, useState } from "../ui.js";
import { scopeOf, to } from "../route.js";
import { Dialog } from "./feedback.js";
import { called, useKnown } from "./scope.js";
import { Strength } from "./scores.js";
import { Icon, visible } from "./text.js";

/** @typedef {{ group: string, label: string, hint?: unknown, href?: string, run?: () => void }} Item */

const TYPING_MS = 200;
const MOST = 6;
/** People and agents that show before anything is typed: the commands below them are in view. */
const MOST_UNTYPED = 3;
const LEAST_LETTERS = 2;

/** What is typed, a little later: each letter would be a search. @param {string} typed */
function useLate(typed) {
  const [late, set] = useState(typed);
  useEffect(() => {
    const timer = setTimeout(set, TYPING_MS, typed);
    return () => clearTimeout(timer);
  }, [typed]);
  return late.trim();
}

/** @param {string} text @param {string} typed */
const has = (text, typed) => text.toLowerCase().includes(typed.trim().toLowerCase());

/** @param {{ route: import("../route.js").Route, commands: Item[], onClose: () => void }} props */
export default function Palette({ route, commands, onClose }) {
  const known = useKnown();
  const [typed, type] = useState("");
  const [at, move] = useState(0);
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const late = useLate(typed);
  const { user_id, agent_id } = scopeOf(route);
  const whose = [user_id, agent_id].filter(Boolean).join(" · ");
  const sessions = useLoad(async (signal) => (late ? (await ask(api.GET("/v1/sessions", { params: { query: { user_id, agent_id, limit: 100 } }, signal }))).items : []), [Boolean(late)]);
  const hits = useLoad(async (signal) => {
    if (late.length < LEAST_LETTERS || !whose) return [];
    const body = { query: late, ...(user_id && { user_id }), ...(agent_id && { agent_id }), top_k: MOST, record_access: false };
    return (await ask(api.POST("/v1/memories/search", { body, signal }))).items;
  }, [late]);
  useEffect(() => known.again(), []);
  const most = typed ? MOST : MOST_UNTYPED;
  const items = /** @type {Item[]} */ ([
    ...(typed ? commands.filter((one) => has(one.label, typed)).slice(0, MOST) : []),
    ...known.users.filter((user) => has(`${user.user_id} ${user.name ?? ""}`, typed)).slice(0, most)
      .map((user) => ({ group: "People", label: called(user.user_id, user.name), href: to("owners", ["users", user.user_id]) })),
    ...known.agents.filter((agent) => has(`${agent.agent_id} ${agent.name}`, typed)).slice(0, most)
      .map((agent) => ({ group: "Agents", label: called(agent.agent_id, agent.name), href: to("owners", ["agents", agent.agent_id]) })),
    ...(typed ? sessions.data ?? [] : []).filter((session) => has(`${session.session_id} ${session.summary ?? ""}`, typed)).slice(0, MOST)
      .map((session) => ({ group: "Sessions", label: visible(session.session_id), hint: visible(session.user_id), href: to("sessions", [session.session_id]) })),
    ...(late === typed.trim() ? hits.data ?? [] : []).map((hit) => ({ group: `Memories of ${visible(whose)}`, label: visible(hit.memory.content ?? ""),
      hint: html`<${Strength} probability=${hit.score} />`, href: to("memories", [hit.memory.memory_id]) })),
    ...(typed ? [] : commands),
    ...(typed.trim() ? [{ group: "Search", label: `Search memories for “${visible(typed.trim())}”`, hint: whose ? "" : "asks whose", href: to("memories", [], { query: typed.trim() }) }] : []),
  ]);
  const chosen = Math.min(at, items.length - 1);
  const open = (/** @type {Item | undefined} */ item) => {
    if (!item) return;
    onClose();
    if (item.href) location.hash = item.href;
    item.run?.();
  };
  const pressed = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) move((chosen + step + items.length) % Math.max(1, items.length));
    else if (event.key === "Enter") open(items[chosen]);
    else return;
    event.preventDefault();
  };
  useEffect(() => list.current?.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }), [chosen, items.length]);
  return html`<${Dialog} title="Find" onClose=${onClose} plain=${true}>
    <div class="finding"><input type="search" role="combobox" aria-expanded="true" aria-controls="found" aria-activedescendant=${items.length ? `found-${chosen}` : undefined} aria-label="Find people, memories, sessions and pages"
      placeholder=${whose ? `Find people, pages, sessions, and memories of ${whose}` : "Find people, pages and sessions"} autofocus value=${typed} maxlength="1000"
      onInput=${(/** @type {any} */ event) => { type(event.target.value); move(0); }} onKeyDown=${pressed} />
      <button type="button" class="bare" aria-label="Close" onClick=${onClose}><${Icon} of="x" /></button></div>
    <div class="found" id="found" role="listbox" aria-label="Found" ref=${list} tabindex="-1">${items.map((item, index) => html`
      ${item.group !== items[index - 1]?.group && html`<div class="group" role="presentation" key=${`group ${item.group}`}>${item.group}</div>`}
      <div class="option" role="option" id=${`found-${index}`} key=${`${item.group} ${item.href ?? item.label}`} aria-selected=${index === chosen ? "true" : "false"}
        onClick=${() => open(item)} onMouseMove=${() => index !== chosen && move(index)}><span class="text" dir="auto">${item.label}</span><span class="quiet small">${item.hint}</span></div>`)}</div>
    ${!whose && typed && html`<p class="quiet small">Choose a person or an agent in the frame to find memories, too.</p>`}</${Dialog}>`;
}
