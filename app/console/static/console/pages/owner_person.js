/** What is known of a person: who it is, what holds now, what changed lately and what is to decide, each with its source. */
import { html } from "../ui.js";
import { BASE, api, ask, key, may, orNull, useLoad } from "../api.js";
import { ContradictedBy, DisputeOf, FieldValue, FindingOf, againstField, claimsOf, idOf } from "../parts/doubts.js";
import { Empty, Loaded, ProblemBox, Waiting, WaitingRows, useAction } from "../parts/feedback.js";
import { Sources, contentOf } from "../parts/records.js";
import { replacementOf } from "../parts/since.js";
import { Tag, Text, Time, bare, curl, span, statement, typeOf, visible } from "../parts/text.js";
import { to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["Memory"]} Memory */
/** @typedef {Schemas["Fact"]} Fact */
/** @typedef {Schemas["ReflectionFinding"]} Finding */
/** @typedef {{ profile: Schemas["StoredProfile"] | null, facts: Fact[], memories: Memory[], findings: Finding[], coming: Schemas["UpcomingItem"][], cut: boolean }} Known */
/** What was and from when to when, what is in its place and since when, and where it comes from.
 * @typedef {{ id: string, was: string, held: string, is: string, at: string, href: string, source: Memory["source"] }} Change */

const MOST = 100;
const ROWS = 10;
/** Below it a fact is unsure, though nothing contradicts it. */
const SURE = 0.5;
/** Turns and summaries are what was said; the rest is what was made of it. */
const SAID = new Set(["message", "summary"]);

/** @param {string} user_id @param {AbortSignal} signal @returns {Promise<Known>} */
async function load(user_id, signal) {
  const [profile, facts, memories, findings, coming] = await Promise.all([
    orNull(ask(api.GET("/v1/users/{user_id}/profile", { params: { path: { user_id } }, signal }))),
    ask(api.GET("/v1/facts", { params: { query: { user_id, timeline: true, status: "any", limit: MOST } }, signal })),
    ask(api.GET("/v1/memories", { params: { query: { user_id, status: "any", limit: MOST } }, signal })),
    ask(api.GET("/v1/findings", { params: { query: { user_id, status: "open", limit: ROWS } }, signal })),
    ask(api.GET("/v1/upcoming", { params: { query: { user_id, limit: ROWS } }, signal })),
  ]);
  return { profile, facts: facts.items, memories: memories.items, findings: findings.items, coming: coming.items, cut: Boolean(facts.next_cursor ?? memories.next_cursor) };
}

/** @param {Fact} fact @param {number} now */
const holds = (fact, now) => fact.status === "active" && (!fact.valid_from || Date.parse(fact.valid_from) <= now) && (!fact.valid_until || Date.parse(fact.valid_until) > now);

/** What a fact is about: the person may be called by the name. @param {Fact} fact @param {string | null | undefined} name */
const about = ({ subject, predicate }, name) => `${subject.toLowerCase() === name?.toLowerCase() ? "@user" : subject.toLowerCase()} ${predicate}`;

/** The facts that hold beside another value of the same, where one value at a time was said to hold; by the id of each, another of them.
 * @param {Fact[]} present @param {string | null | undefined} name @returns {Map<string, Fact>} */
function divided(present, name) {
  const alike = Map.groupBy(present, (fact) => about(fact, name));
  const several = [...alike.values()].filter((facts) => facts.some((fact) => fact.cardinality === "one") && new Set(facts.map((fact) => fact.object.toLowerCase())).size > 1);
  return new Map(several.flatMap((facts) => facts.flatMap((fact) => {
    const other = facts.find((rival) => rival.object.toLowerCase() !== fact.object.toLowerCase());
    return other ? [/** @type {[string, Fact]} */ ([fact.fact_id, other])] : [];
  })));
}

/** The latest first. @param {Fact} one @param {Fact} other */
const byTime = (one, other) => (other.valid_from ?? "").localeCompare(one.valid_from ?? "");

/** When what a memory says was so. @param {Memory} memory */
const when = (memory) => memory.event_at ?? memory.created_at;

/** Values that ended, each beside the one that followed, and memories that were replaced; the latest first.
 * @param {Known} known @param {(fact: Fact) => string} address @param {(fact: Fact) => string} told @returns {Change[]} */
function changes({ facts, memories }, address, told) {
  const ended = facts.filter((fact) => fact.status === "active" && fact.valid_until && Date.parse(fact.valid_until) <= Date.now());
  const ofFacts = ended.map((fact) => {
    const next = replacementOf(fact, facts);
    return { id: fact.fact_id, was: told(fact), held: span(fact.valid_from, fact.valid_until), is: next ? told(next) : "", at: fact.valid_until ?? "", href: address(next ?? fact), source: (next ?? fact).source };
  });
  const ofMemories = memories.flatMap((memory) => {
    const next = memory.superseded_by && memories.find((one) => one.memory_id === memory.superseded_by);
    return next ? [{ id: memory.memory_id, was: memory.content, held: span(when(memory), when(next)), is: next.content, at: when(next), href: to("memories", [next.memory_id]), source: next.source }] : [];
  });
  const twice = new Set(ofFacts.map((change) => bare(change.is)));
  return [...ofFacts, ...ofMemories.filter((change) => !twice.has(bare(change.is)))].sort((one, other) => other.at.localeCompare(one.at));
}

/** The facts that a disputed one contradicts, as they stand now. @param {Fact} fact @param {Fact[]} facts */
function rivals(fact, facts) {
  const lineages = new Set(facts.filter((one) => fact.disputes.includes(one.fact_id)).map((one) => one.lineage_id));
  return facts.filter((one) => one.status === "active" && lineages.has(one.lineage_id));
}

/** What contradicts a fact or a note, by its id: what is disputed, an open finding, or another value that holds beside it.
 * @param {Known} known @param {Fact[]} present @param {(fact: Fact) => string} address @param {(fact: Fact) => string} told @param {() => string} person
 * @returns {Map<string, import("../parts/doubts.js").Challenge>} */
function challenges({ facts, memories, findings, profile }, present, address, told, person) {
  const beside = [...divided(present, profile?.name)].map(([fact_id, other]) => ({ of: fact_id, text: told(other), href: address(other) }));
  const found = findings.filter(({ kind }) => kind === "contradiction").flatMap((finding) => {
    const claims = claimsOf(finding, person);
    return claims.map(({ id }) => ({ of: id ?? "", text: claims.find((claim) => claim.id !== id)?.text ?? "", href: to("findings", [finding.finding_id]) }));
  });
  const disputed = facts.filter(({ status }) => status === "disputed").flatMap((fact) => rivals(fact, facts).map(({ fact_id }) => ({ of: fact_id, text: told(fact), href: address(fact) })));
  const notes = memories.filter(({ status }) => status === "disputed").flatMap(({ contradicts, content, memory_id }) => contradicts.map((of) => ({ of, text: content, href: to("memories", [memory_id]) })));
  return new Map([...beside, ...found, ...disputed, ...notes].map(({ of, ...challenge }) => [of, challenge])); // what is to be decided before what merely holds beside it
}

/** The boxes of the page before they are filled. */
const WAITING = html`<section class="box"><h2>Who</h2><${Waiting} lines=${2} /></section><div class="two">
  <section class="box"><h2>What holds now</h2><${WaitingRows} of=${{ loading: true }} /></section>
  <div><section class="box"><h2>What changed lately</h2><${Waiting} /></section><section class="box"><h2>What is uncertain</h2><${Waiting} lines=${5} /></section></div></div>`;

/** @param {import("./owners.js").PartProps} props */
export default function Person({ id, route, caller }) {
  const loaded = useLoad((signal) => load(id, signal), [id], ["memory", "fact", "profile", "finding"]);
  return html`<${Loaded} of=${loaded} waiting=${WAITING}>${(/** @type {Known} */ known) => html`<${Shown} id=${id} writes=${may(caller, "write")} known=${known} again=${loaded.again} />`}</${Loaded}>`;
}

/** @param {{ id: string, writes: boolean, known: Known, again: () => void }} props */
function Shown({ id, writes, known, again }) {
  const address = (/** @type {Fact} */ fact) => to("owners", ["users", id, "facts"], { fact: fact.fact_id });
  const told = (/** @type {Fact} */ fact) => statement(fact, known.profile?.name);
  const now = Date.now();
  // The name stands in the heading.
  const present = known.facts.filter((fact) => holds(fact, now) && !(fact.subject === "@user" && fact.object === known.profile?.name)).sort(byTime);
  const facts = new Set(present.map((fact) => bare(told(fact)))); // a note that says no more than one of them is not listed again
  const noted = known.memories.filter((memory) => memory.status === "active" && !SAID.has(memory.memory_type) && !facts.has(bare(memory.content))).sort((one, other) => when(other).localeCompare(when(one)));
  const said = known.memories.filter((memory) => memory.status === "active" && SAID.has(memory.memory_type)).sort((one, other) => when(other).localeCompare(when(one)));
  const changed = changes(known, address, told);
  const loadedOf = (/** @type {(Fact | Memory)[]} */ sides) => (sides.length || !known.cut ? sides : undefined);
  const disputed = [
    ...known.facts.filter(({ status }) => status === "disputed").map((record) => ({ record, others: loadedOf(rivals(record, known.facts)) })),
    ...known.memories.filter(({ status }) => status === "disputed").map((record) => ({ record, others: loadedOf(known.memories.filter(({ memory_id }) => record.contradicts.includes(memory_id))) })),
  ];
  const person = () => known.profile?.name ?? id;
  const challenged = challenges(known, present, address, told, person);
  const message = (/** @type {Memory["source"]} */ source) => known.memories.find(({ memory_id }) => memory_id === source.memory_ids?.[0]);
  const deciding = { person, writes, message, onDone: again };
  const rows = { address, told, challenged, message };
  const { own = [], others = [] } = Object.groupBy(present, (fact) => (about(fact, known.profile?.name).startsWith("@user ") ? "own" : "others"));
  const ofOthers = others.slice(0, Math.max(0, ROWS - own.length));
  if (!known.profile && !known.facts.length && !known.memories.length) {
    return html`<${Empty} title="Nothing is known yet. This remembers one thing:"
      curl=${curl("POST", `${BASE}/v1/memories`, { user_id: id, content: "Prefers tea to coffee" }, Boolean(key.get()))} />`;
  }
  return html`<${Who} id=${id} profile=${known.profile} findings=${known.findings} facts=${known.facts} />
    <div class="two">
      <section class="box" aria-label="What holds now"><h2>What holds now</h2>
        ${!present.length && !noted.length && html`<p class="quiet">Nothing was made of what was said yet. What was said:</p>
          <ul class="list">${said.slice(0, ROWS).map((memory) => html`<li key=${memory.memory_id}><a class="title" href=${to("memories", [memory.memory_id])}><${Text} text=${contentOf(memory)} long=${200} /></a>
            <div class="small quiet"><${Time} at=${when(memory)} /> · <${Sources} of=${memory.source} said=${message(memory.source)} since=${when(memory)} /></div></li>`)}</ul>`}
        <${Facts} of=${own.slice(0, ROWS)} ...${rows} />
        ${ofOthers.length > 0 && html`<h3>About other people and things</h3><${Facts} of=${ofOthers} ...${rows} />`}
        ${present.length > ROWS && html`<p class="small"><a href=${to("owners", ["users", id, "facts"])}>All ${present.length} facts</a></p>`}
        ${noted.length > 0 && html`<h3>Notes, newest first</h3>`}
        <ul class="list">${noted.slice(0, ROWS).map((memory) => html`<li key=${memory.memory_id}><a class="title" href=${to("memories", [memory.memory_id])}><${Text} text=${contentOf(memory)} long=${200} /></a>
          <div class="small quiet"><${Tag} of=${typeOf(memory.memory_type)} /> ${challenged.has(memory.memory_id) && html`<${ContradictedBy} of=${challenged.get(memory.memory_id)} /> · `}<${Time} at=${when(memory)} day=${true} /> · <${Sources} of=${memory.source} said=${message(memory.source)} since=${when(memory)} /></div></li>`)}</ul>
        <p class="small"><a href=${to("memories")}>All memories</a> · <a href=${to("sessions")}>All sessions</a></p></section>
      <div>${known.coming.length > 0 && html`<section class="box" aria-label="What is coming"><h2>What is coming</h2>
        <ul class="list">${known.coming.map((item) => html`<${Coming} key=${`${item.kind}/${item.at}/${idOfComing(item)}`} item=${item} told=${told} writes=${writes} again=${again} />`)}</ul></section>`}
      <section class="box" aria-label="What changed lately"><h2>What changed lately</h2>
        ${!changed.length && html`<p class="quiet">Nothing that was known was replaced.</p>`}
        <ul class="list">${changed.slice(0, ROWS).map((change) => html`<li key=${change.id}><a class="title" href=${change.href}>${change.is
          ? html`<${Text} text=${change.is} long=${200} />` : html`<span class="quiet">No longer: </span><${Text} text=${change.was} long=${200} />`}</a>
          ${change.is && html`<div class="small quiet">before: <s><${Text} text=${change.was} long=${200} /></s> ${change.held}</div>`}
          <div class="small quiet">${change.is ? html`since <${Time} at=${change.at} day=${true} />` : change.held} · <${Sources} of=${change.source} said=${message(change.source)} since=${change.at} /></div></li>`)}</ul></section>
      <section class="box" aria-label="What is uncertain"><h2>What is uncertain</h2>
        ${known.findings.length + disputed.length === 0 && html`<p class="quiet">Nothing waits to be decided.</p>`}
        <ul class="list">${known.findings.map((finding) => html`<li key=${`${finding.finding_id}/${finding.version}`}><${FindingOf} finding=${finding} ...${deciding} /></li>`)}
          ${disputed.map((dispute) => html`<li key=${idOf(dispute.record)}><${DisputeOf} ...${dispute} ...${deciding} /></li>`)}</ul>
        ${known.findings.length === ROWS && html`<p class="small"><a href=${to("findings", [], { user_id: id })}>All that waits to be decided</a></p>`}</section></div></div>
    ${known.cut && html`<p class="quiet small">Of the newest ${MOST} facts and memories.</p>`}`;
}

/** @param {Schemas["UpcomingItem"]} item */
const idOfComing = ({ memory, task, fact }) => memory?.memory_id ?? task?.task_id ?? fact?.fact_id ?? "";

/** A plan, what is due or what ceases to hold. A memory that is due can be done here.
 * @param {{ item: Schemas["UpcomingItem"], told: (fact: Fact) => string, writes: boolean, again: () => void }} props */
function Coming({ item, told, writes, again }) {
  const { at, kind, memory, task, fact } = item;
  const done = useAction(async () => {
    await ask(api.PATCH("/v1/memories/{memory_id}", { params: { path: { memory_id: memory?.memory_id ?? "" } }, body: { done_at: new Date().toISOString() } }));
    again();
  });
  const href = memory ? to("memories", [memory.memory_id]) : task ? to("tasks", [task.task_id]) : undefined;
  const text = memory ? contentOf(memory) : task ? task.goal : fact ? told(fact) : "";
  return html`<li><a class="title" href=${href}><${Text} text=${text} long=${200} /></a>
    <div class="small quiet"><${Tag} of=${kind} /> <${Time} at=${at} />${memory?.rrule && html` · <code>${visible(memory.rrule)}</code>`}
      ${writes && memory && kind === "due" && html` · <button type="button" disabled=${done.busy} onClick=${() => done.start()}>Done</button>`}</div>
    <${ProblemBox} problem=${done.error} /></li>`;
}

/** @param {{ of: Fact[], address: (fact: Fact) => string, told: (fact: Fact) => string, challenged: ReturnType<typeof challenges>, message: (source: Memory["source"]) => Memory | undefined }} props */
const Facts = ({ of, address, told, challenged, message }) => html`<ul class="list">${of.map((fact) => html`<li key=${fact.fact_id}><a class="title" href=${address(fact)}><${Text} text=${told(fact)} long=${200} /></a>
  <div class="small quiet">${challenged.has(fact.fact_id) && html`<${ContradictedBy} of=${challenged.get(fact.fact_id)} /> · `}${fact.confidence < SURE && html`<${Tag} of="unsure" /> `}${fact.valid_from && html`since <${Time} at=${fact.valid_from} day=${true} /> · `}<${Sources} of=${fact.source} said=${message(fact.source)} since=${fact.valid_from} /></div></li>`)}</ul>`;

/** @param {{ id: string, profile: Schemas["StoredProfile"] | null, findings: Finding[], facts: Fact[] }} props */
function Who({ id, profile, findings, facts }) {
  const pairs = /** @type {[string, string, string | number | null | undefined][]} */ ([
    ["Lives in", "home", profile?.home], ["Works as", "occupation", profile?.occupation], ["Age", "age", profile?.age],
    ["Interests", "interests", profile?.interests?.join(", ")], ["How to talk", "conversation_preferences", profile?.conversation_preferences?.join(", ")],
  ]).filter(([, , value]) => value);
  return html`<section class="box" aria-label="Who"><h2>Who</h2>
    <dl class="facts"><div><dt>Id</dt><dd><code>${visible(id)}</code></dd></div>${pairs.map(([name, field, value]) => html`<div key=${name}><dt>${name}</dt><dd><${FieldValue} value=${String(value)} by=${againstField(findings, id, field)} names=${[id, profile?.name ?? id]} facts=${facts} /></dd></div>`)}
      ${profile?.updated_at && html`<div><dt>Profile changed</dt><dd><${Time} at=${profile.updated_at} /></dd></div>`}</dl></section>`;
}
