/** For admin keys: the keys of the tenant, who did what, and the settings in force. */
import { api, ask, useLoad, usePages } from "../api.js";
import { html, useState } from "../ui.js";
import { Confirm, Dialog, Empty, Loaded, More, ProblemBox, useAction, useToast } from "../parts/feedback.js";
import { RecordLink, kindOf } from "../parts/records.js";
import { useNames } from "../parts/scope.js";
import { Table } from "../parts/table.js";
import { Code, Fold, Tag, Text, Time, counted, words } from "../parts/text.js";
import { go, to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */

const VERBS = /** @type {const} */ (["read", "write", "admin"]);
const DAY_SECONDS = 86_400;

/** @param {FormData} form @returns {Schemas["KeyCreate"]} */
function keyOf(form) {
  const list = (/** @type {string} */ name) => String(form.get(name) ?? "").split(",").map((one) => one.trim()).filter(Boolean);
  const days = Number(form.get("days"));
  return { name: String(form.get("name")), verbs: VERBS.filter((verb) => form.get(verb)), agents: list("agents"), users: list("users"),
    no_admin: Boolean(form.get("no_admin")), ...(days > 0 && { expires_in: Math.round(days * DAY_SECONDS) }) };
}

/** @param {{ first: boolean, onClose: () => void, onMade: (made: Schemas["CreatedKey"]) => void }} props `first`: there is no key yet */
function NewKey({ first, onClose, onMade }) {
  const make = useAction(async (/** @type {HTMLFormElement} */ form) => {
    onMade(await ask(api.POST("/v1/keys", { body: keyOf(new FormData(form)) })));
    onClose();
  });
  return html`<${Dialog} title="New key" onClose=${onClose}><form class="stack" onSubmit=${(/** @type {any} */ event) => { event.preventDefault(); make.start(event.target); }}>
    <label>Name <input name="name" required maxlength="200" /></label>
    <fieldset><legend>Verbs</legend>${VERBS.map((verb) => html`<label><input type="checkbox" name=${verb} defaultChecked=${first || verb === "read"} /> ${verb}</label> `)}</fieldset>
    ${first && html`<p class="quiet small">The first key must administer: from then on every request needs a key.</p>
      <label><input type="checkbox" name="no_admin" /> No key shall administer</label>`}
    <label>Only these agents, separated by commas <input name="agents" /></label><label>Only these people <input name="users" /></label>
    <label>Expires after <input name="days" type="number" min="0" max="3660" step="any" /> days</label><${ProblemBox} problem=${make.error} />
    <footer><button type="button" onClick=${onClose}>Cancel</button><button type="submit" class="main" disabled=${make.busy}>Make key</button></footer></form></${Dialog}>`;
}

/** @param {Schemas["ApiKey"]} key */
const state = (key) => (key.revoked_at ? "revoked" : key.expires_at && Date.parse(key.expires_at) < Date.now() ? "expired" : "valid");

function Keys() {
  const keys = usePages(async (cursor, signal) => {
    const page = await ask(api.GET("/v1/keys", { params: { query: { limit: 50, cursor } }, signal }));
    return { items: page.items, next_cursor: page.next_cursor ?? null };
  }, []);
  const [open, setOpen] = useState("");
  const [made, setMade] = useState(/** @type {Schemas["CreatedKey"] | undefined} */ (undefined));
  const toast = useToast();
  const revoke = async () => {
    await ask(api.POST("/v1/keys/{key_id}/revoke", { params: { path: { key_id: open } }, body: {} }));
    toast({ text: "Revoked." });
    keys.again();
  };
  const rotate = useAction(async (key_id) => {
    setMade(await ask(api.POST("/v1/keys/{key_id}/rotate", { params: { path: { key_id } }, body: {} })));
    keys.again();
  });
  return html`<section class="box"><div class="row apart"><h2>Keys</h2><button type="button" class="main" onClick=${() => setOpen("new")}>New key</button></div>
    ${made && html`<div class="empty"><p>This is the key “${made.name}”. It is shown this once:</p><${Code} text=${made.key ?? ""} />
      <button type="button" onClick=${() => setMade(undefined)}>I have it</button></div>`}
    <${ProblemBox} problem=${keys.error ?? rotate.error} />
    ${keys.items?.length === 0 && html`<${Empty} title="There are no keys.">
      <p>Without one the service answers this machine only. From the first key on, every request needs one: make an admin key first.</p></${Empty}>`}
    ${(keys.items?.length ?? 0) > 0 && html`<${Table} label="Keys" heads=${["Name", "Verbs", "Bound to", "State", "Made", "Actions"]} rows=${keys.items?.map((key) => ({ key: key.id, cells: [
      html`<${Text} text=${key.name} /><div class="quiet small">${key.id}</div>`, key.verbs.join(", "), [...key.agents, ...key.users].join(", ") || "nothing",
      html`<${Tag} of=${state(key)} tone=${state(key) === "valid" ? "good" : "bad"} />`, html`<${Time} at=${key.created_at} />`,
      state(key) === "valid" && html`<button type="button" class="small" aria-label=${`Rotate ${key.name}`} onClick=${() => rotate.start(key.id)}>Rotate</button>
        <button type="button" class="small danger" aria-label=${`Revoke ${key.name}`} onClick=${() => setOpen(key.id)}>Revoke</button>`] })) ?? []} />`}
    <${More} of=${keys} />
    ${open === "new" && html`<${NewKey} first=${keys.items?.length === 0} onClose=${() => setOpen("")} onMade=${(/** @type {Schemas["CreatedKey"]} */ key) => { setMade(key); keys.again(); }} />`}
    ${open && open !== "new" && html`<${Confirm} title="Revoke this key?" button="Revoke" action=${revoke} onClose=${() => setOpen("")}>
      <p>The next request with it is refused. This cannot be undone.</p></${Confirm}>`}</section>`;
}

const CHANGES = /** @type {Record<string, string>} */ ({ insert: "added", update: "changed", delete: "removed" });
/** Records of an entry that are named at once. */
const NAMED = 3;

/** "1 memory added", of the insert in agent_memories. @param {string} kind @param {string} what @param {number} count */
function changed(kind, what, count) {
  const many = kindOf(kind);
  const noun = many === "people" ? "person" : many.endsWith("ies") ? `${many.slice(0, -3)}y` : many.endsWith("s") ? many.slice(0, -1) : many;
  return `${counted(count, noun, many)} ${CHANGES[what] ?? words(what)}`;
}

/** Who calls without a key, by what the audit has in its place: `recalld demo` fills its store in the process itself. */
const CALLERS = /** @type {Record<string, string>} */ ({ anonymous: "without a key", demo: "by the demo" });

/** @param {{ entry: Schemas["AuditEntry"] }} props */
function Entry({ entry }) {
  const names = useNames();
  const by = CALLERS[entry.key_id] ?? `by key ${entry.key_id}`;
  const set = (/** @type {string} */ kind, /** @type {string} */ what) => (what === "update" && entry.fields[kind]?.length ? ` (${entry.fields[kind].map(words).join(", ")})` : "");
  const told = Object.entries(entry.changes).flatMap(([kind, made]) => Object.entries(made).map(([what, count]) => changed(kind, what, Number(count)) + set(kind, what)));
  const link = (/** @type {string} */ id) => html`<${RecordLink} key=${id} id=${id} kinds=${id === entry.user_id ? ["users"] : Object.keys(entry.changes)} /> `;
  const more = entry.records.slice(NAMED);
  return html`<li><b title=${entry.action}>${words(entry.action)}</b> <span class="quiet small">${by}${(entry.user_id || entry.user_hash) && `, about ${entry.user_id ? names.person(entry.user_id) : "an erased person"}`}, <${Time} at=${entry.created_at} /></span>
    <div class="small">${told.join(", ")}${entry.records.length > 0 && html` <span class="quiet">${told.length > 0 && "· "}${entry.records.slice(0, NAMED).map(link)}</span>
      ${more.length > 0 && html`<${Fold} title=${`${more.length} more`} small=${false}>${() => more.map(link)}</${Fold}>`}`}</div></li>`;
}

const FIELDS = /** @type {Record<string, string>} */ ({ key_id: "Key", action: "Action", user_id: "Person", record_id: "Record" });

/** @param {{ params: Record<string, string> }} props */
function Audit({ params }) {
  const entries = usePages(async (cursor, signal) => {
    const { key_id, user_id, record_id } = params;
    const action = params.action?.trim().replaceAll(" ", "_");
    const page = await ask(api.GET("/v1/audit", { params: { query: { key_id, action, user_id, record_id, limit: 30, cursor } }, signal }));
    return { items: page.items, next_cursor: page.next_cursor ?? null };
  }, [JSON.stringify(params)]);
  const field = (/** @type {string} */ name) => html`<label>${FIELDS[name]} <input size="14" key=${params[name]} defaultValue=${params[name] ?? ""}
    onChange=${(/** @type {any} */ event) => go(to("operations", ["audit"], { ...params, [name]: event.target.value.trim() }), { replace: true })} /></label>`;
  return html`<section class="box"><h2>Audit</h2><div class="filters">${Object.keys(FIELDS).map(field)}</div><${ProblemBox} problem=${entries.error} />
    ${entries.items?.length === 0 && html`<${Empty} title="No entry is like this." />`}
    <ul class="list">${entries.items?.map((entry) => html`<${Entry} key=${entry.audit_id} entry=${entry} />`)}</ul><${More} of=${entries} /></section>`;
}

/** Settings that share the first word of their name are a group, from this many on; the others are the first group. */
const GROUP = 3;

/** @param {Schemas["SettingInForce"][]} items @returns {[string, Schemas["SettingInForce"][]][]} */
function grouped(items) {
  const word = (/** @type {Schemas["SettingInForce"]} */ { name }) => name.split("_").slice(0, 2).join("_");
  const sizes = Map.groupBy(items, word);
  const groups = Map.groupBy(items, (one) => ((sizes.get(word(one))?.length ?? 0) >= GROUP ? `${word(one)}_…` : ""));
  return [...groups].sort(([one], [other]) => one.localeCompare(other));
}

/** The name of a group: `RECALLD_LLM_…` is "LLM", `RECALLD_TRUST_…` "Trust". @param {string} name */
const groupName = (name) => {
  const word = name.split("_")[1] ?? name;
  return ["LLM", "OIDC"].includes(word) ? word : `${word[0]}${word.slice(1).toLowerCase()}`;
};

const MEBI = 1024 * 1024;

/** A value as one reads it: 268435456 bytes are 256 MiB, True is on. @param {Schemas["SettingInForce"]} one @param {string} value */
function readable({ name, description, secret, changed }, value) {
  if (secret && changed) return "set; its value is not shown";
  if (!value) return "empty";
  if (value === "True" || value === "False") return value === "True" ? "on" : "off";
  const bytes = /\bbytes\b/i.test(`${name.replaceAll("_", " ")} ${description}`) && /^\d+$/.test(value) ? Number(value) : 0;
  return bytes >= MEBI && bytes % MEBI === 0 ? `${(bytes / MEBI).toLocaleString("en")} MiB (${value})` : value;
}

/** A description with what stands between backticks as code. @param {{ text: string }} props */
const Described = ({ text }) => html`${text.split("`").map((part, index) => (index % 2 ? html`<code>${part}</code>` : part))}`;

/** @param {{ items: Schemas["SettingInForce"][], keyless: boolean }} props `keyless`: there is no API key yet */
function SettingTable({ items, keyless }) {
  return html`<dl class="settings">${items.map((one) => html`<div key=${one.name}>
    <dt><code>${one.name}</code> ${one.changed && html`<${Tag} of="changed" />`}</dt>
    <dd><b class="text">${readable(one, one.value)}</b>${one.changed && !one.secret && html` <span class="quiet">default: ${readable(one, one.default)}</span>`}<div class="small quiet"><${Described} text=${one.description} />${one.name === "RECALLD_AUTH" && one.value === "on" && keyless
      && " Keys are asked for as soon as there is one. There is none yet: this machine alone is answered."}</div></dd></div>`)}</dl>`;
}

/** @param {{ caller: import("../api.js").Caller }} props */
function SettingList({ caller }) {
  const settings = useLoad((signal) => ask(api.GET("/v1/settings", { signal })), []);
  const [changed, setChanged] = useState(false);
  const [typed, type] = useState("");
  const sought = typed.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (/** @type {Schemas["SettingInForce"]} */ one) => (one.changed || !changed)
    && sought.every((word) => `${one.name} ${one.name.replaceAll("_", " ")} ${one.description}`.toLowerCase().includes(word));
  return html`<section class="box"><h2>Settings in force</h2>
    <div class="filters"><input type="search" aria-label="Search settings" placeholder="Search settings ( / )" value=${typed} onInput=${(/** @type {any} */ event) => type(event.target.value)} />
      <label><input type="checkbox" checked=${changed} onChange=${(/** @type {any} */ event) => setChanged(event.target.checked)} /> only those that differ from the default</label></div>
    <${Loaded} of=${settings}>${(/** @type {Schemas["SettingsInForce"]} */ { items }) => {
      const groups = grouped(items).map(([name, all]) => ({ name, all, shown: all.filter(fits) })).filter((group) => group.shown.length);
      const narrowed = changed || sought.length > 0;
      return html`${!groups.length && html`<p class="quiet">No setting is like this.</p>`}
        ${groups.map(({ name, all, shown }) => html`<${Fold} kind="settings" small=${false} key=${`${name} ${narrowed}`} open=${narrowed || !name}
          title=${html`${name ? groupName(name) : "The service"} <span class="quiet small">${shown.length < all.length ? `${shown.length} of ${all.length}` : all.length}${all.some((one) => one.changed) && `, ${all.filter((one) => one.changed).length} changed`}</span>`}>
          ${() => html`<${SettingTable} items=${shown} keyless=${caller.key_id === "anonymous"} />`}</${Fold}>`)}`;
    }}</${Loaded}></section>`;
}

/** @type {import("../console.js").Page} */
export default function Administration({ route, caller }) {
  const [tab] = route.rest;
  if (tab === "keys") return html`<${Keys} />`;
  return tab === "audit" ? html`<${Audit} params=${route.params} />` : html`<${SettingList} caller=${caller} />`;
}
