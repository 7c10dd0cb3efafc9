/** What is known of an entity: names, facts, memories that mention it, actions. */
import { html, useState } from "../ui.js";
import { api, ask, may, useLoad } from "../api.js";
import { Loaded, ProblemBox, useAction, useToast } from "../parts/feedback.js";
import { takeBack } from "../parts/records.js";
import { useNames } from "../parts/scope.js";
import { Tag, Text, Time, statement } from "../parts/text.js";
import { to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {Schemas["EntityPage"]} Entity */
/** @typedef {{ page: Entity, proposed: Schemas["EntityAlias"][] }} Known */

const MOST = 20;

/** @param {import("./owners.js").PartProps} props */
export function EntityView({ id, owner, route, caller }) {
  const own = useNames().person(id);
  const name = route.params.entity ?? "";
  const found = useLoad((signal) => load(name, owner, signal), [name]);
  const back = to(route.page, route.rest, { ...route.params, entity: "" });
  return html`<p><a href=${back}>The graph</a></p>
    <${Loaded} of=${found}>${(/** @type {Known} */ { page, proposed }) => html`<h2>Entity <span class="text"><${Text} text=${page.name} long=${200} /></span></h2>
      <p class="quiet small">${page.first_seen ? html`First seen <${Time} at=${page.first_seen} day=${true} />, last <${Time} at=${page.last_seen} day=${true} />. ` : "Nothing is known under this name. "}
        ${page.neighbors.count}${page.neighbors.truncated ? " or more" : ""} neighbours. <a href=${to("findings", [], owner)}>Findings</a></p>
      <${Names} key=${page.key} page=${page} proposed=${proposed} owner=${owner} caller=${caller} again=${found.again} />
      <div class="two"><div>
        <${FactList} title="True now" known=${page.facts} route=${route} name=${owner.user_id && own} /><${FactList} title="Earlier" known=${page.earlier} route=${route} name=${owner.user_id && own} /></div><div>
        <section class="box"><h2>Memories that mention it</h2><ul class="list">${page.memories.items.map(({ memory }) => html`<li key=${memory.memory_id}>
          <a href=${to("memories", [memory.memory_id])}><${Text} text=${memory.content} long=${200} /></a> <span class="quiet small"><${Time} at=${memory.event_at ?? memory.created_at} day=${true} /></span></li>`)}</ul>
          <${Bound} of=${page.memories} /></section>
        <section class="box"><h2>Actions</h2><ul class="list">${page.actions.items.map((action) => html`<li key=${action.action_id}>
          <${Tag} of=${action.action_type} /> <${Text} text=${action.content} long=${200} /> <span class="quiet small"><${Time} at=${action.timestamp} day=${true} /></span></li>`)}</ul>
          <${Bound} of=${page.actions} /></section></div></div>`}</${Loaded}>`;
}

/** @param {string} name @param {import("./owners.js").Owner} owner @param {AbortSignal} signal @returns {Promise<Known>} */
async function load(name, owner, signal) {
  const path = { name };
  const [page, proposed] = await Promise.all([
    ask(api.GET("/v1/graph/entities/{name}", { params: { path, query: { ...owner, limit: MOST } }, signal })),
    ask(api.GET("/v1/graph/entities/{name}/aliases", { params: { path, query: { ...owner, status: "proposed" } }, signal })),
  ]);
  return { page, proposed: proposed.items };
}

/** Says that a list is empty, or that it is not whole. @param {{ of: { items: unknown[], truncated: boolean } }} props */
function Bound({ of }) {
  if (!of.items.length) return html`<p class="quiet small">None.</p>`;
  return of.truncated && html`<p class="quiet small">Only the latest ${of.items.length} are shown.</p>`;
}

/** @param {{ title: string, known: Schemas["KnownFacts"], route: import("../route.js").Route, name: string | undefined }} props */
function FactList({ title, known, route, name }) {
  return html`<section class="box"><h2>${title}</h2><ul class="list">${known.items.map((fact) => html`<li key=${fact.fact_id}>
      <a href=${to(route.page, [...route.rest.slice(0, 2), "facts"], { fact: fact.fact_id })}><${Text} text=${statement(fact, name)} long=${200} /></a>
      <span class="quiet small">${fact.valid_from && html` since <${Time} at=${fact.valid_from} day=${true} />`}${fact.valid_until && html` until <${Time} at=${fact.valid_until} day=${true} />`}</span></li>`)}</ul>
    <${Bound} of=${known} /></section>`;
}

/** Its names; declares and dismisses aliases of the owner of this page.
 * @param {Known & { owner: import("./owners.js").Owner, caller: import("../api.js").Caller, again: () => void }} props */
function Names({ page, proposed, owner, caller, again }) {
  const toast = useToast();
  const [alias, setAlias] = useState("");
  /** @param {Schemas["AliasesChanged"]} changed @param {string} text */
  const done = (changed, text) => {
    const id = changed.operation_id;
    again();
    toast({ text, undo: id ? async () => {
      await takeBack(id);
      again();
    } : undefined });
  };
  const declare = useAction(async (name, other) => {
    done(await ask(api.POST("/v1/graph/entities/{name}/aliases", { params: { path: { name } }, body: { ...owner, aliases: [other] } })), "Both names are one entity.");
    setAlias("");
  });
  const dismiss = useAction(async (name, other) => {
    done(await ask(api.DELETE("/v1/graph/entities/{name}/aliases", { params: { path: { name }, query: { ...owner, alias: other } } })), "They are two entities.");
  });
  const writes = may(caller, "write");
  const mine = (/** @type {Schemas["EntityAlias"]} */ one) => one.user_id === (owner.user_id ?? null) && one.agent_id === (owner.agent_id ?? null);
  return html`<section class="box"><h2>Names</h2><p>${page.names.map((name) => html`<${Tag} of=${name} /> `)}</p>
    <ul class="list">${page.aliases.filter((one) => writes && mine(one)).map((one) => html`<li key=${one.name + one.alias}><${Text} text=${one.alias} long=${80} /> is <${Text} text=${one.name} long=${80} />
        <span class="quiet small"> (${one.rule})</span> <button type="button" class="small" disabled=${dismiss.busy} onClick=${() => dismiss.start(one.name, one.alias)}>Not the same</button></li>`)}
      ${proposed.map((one) => html`<li key=${one.name + one.alias}>Is <${Text} text=${one.alias} long=${80} /> <${Text} text=${one.name} long=${80} />?
        ${writes && html` <button type="button" class="small" disabled=${declare.busy} onClick=${() => declare.start(one.name, one.alias)}>The same</button>
          <button type="button" class="small" disabled=${dismiss.busy} onClick=${() => dismiss.start(one.name, one.alias)}>Not the same</button>`}</li>`)}</ul>
    ${writes && html`<form class="filters" onSubmit=${(/** @type {Event} */ event) => { event.preventDefault(); declare.start(page.name, alias); }}>
      <label>Another name <input required maxlength="256" value=${alias} onInput=${(/** @type {any} */ event) => setAlias(event.target.value)} /></label>
      <button type="submit" disabled=${declare.busy || !alias.trim()}>Add</button></form>`}
    <${ProblemBox} problem=${declare.error ?? dismiss.error} /></section>`;
}
