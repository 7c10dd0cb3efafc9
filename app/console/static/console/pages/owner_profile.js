/** The profile of a person, and what was noted of the talks with them. */
import { html, useState } from "../ui.js";
import { BASE, api, ask, key, may, orNull, useLoad } from "../api.js";
import { Form, lines } from "../parts/collection.js";
import { Empty, Loaded, useToast } from "../parts/feedback.js";
import { Json, Pairs } from "../parts/records.js";
import { Icon, Tag, Text, Time, curl, words } from "../parts/text.js";
import { to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */

/** @param {import("./owners.js").PartProps} props */
export default function Profile({ id, caller }) {
  const [edits, setEdits] = useState(false);
  const path = { user_id: id };
  const loaded = useLoad(async (signal) => {
    const query = { limit: 20 };
    const [profile, interactions, issues, solutions] = await Promise.all([
      orNull(ask(api.GET("/v1/users/{user_id}/profile", { params: { path }, signal }))),
      orNull(ask(api.GET("/v1/users/{user_id}/interactions", { params: { path }, signal }))),
      ask(api.GET("/v1/users/{user_id}/issues", { params: { path, query }, signal })),
      ask(api.GET("/v1/users/{user_id}/solutions", { params: { path, query }, signal })),
    ]);
    return { profile, interactions, issues, solutions };
  }, [id], ["profile"]);
  return html`<${Loaded} of=${loaded}>${(/** @type {any} */ { profile, interactions, issues, solutions }) => html`<div class="two">
    <section class="box"><div class="row apart"><h2>Profile</h2>${may(caller, "write") && !edits && html`<button type="button" onClick=${() => setEdits(true)}><${Icon} of="pencil" /> Edit</button>`}</div>
      ${edits ? html`<${Edit} id=${id} profile=${profile} again=${loaded.again} onClose=${() => setEdits(false)} />` : profile ? html`<${Pairs} pairs=${[["Name", profile.name], ["Age", profile.age], ["Home", profile.home],
        ["Occupation", profile.occupation], ["Interests", profile.interests], ["How to talk", profile.conversation_preferences]]} />
        <${Json} title="Preferences" value=${profile.preferences} /><${Json} title="Custom" value=${profile.custom} />
        <p class="quiet small">Version ${profile.version}, changed <${Time} at=${profile.updated_at} day=${true} /></p>`
      : html`<${Empty} title="No profile yet. Write one:" curl=${curl("PATCH", `${BASE}/v1/users/${encodeURIComponent(id)}/profile`, { interests: ["climbing"] }, Boolean(key.get()))} />`}
      <p class="small"><a href=${to("memories", [], { user_id: id })}>Memories of this person</a>, <a href=${to("sessions", [], { user_id: id })}>sessions</a>, <a href=${to("tasks", [], { user_id: id })}>tasks</a>, <a href=${to("findings", [], { user_id: id })}>findings</a></p></section>
    <div><section class="box"><h2>Interactions</h2><ul class="list">${interactions?.items.map((/** @type {Schemas["Interaction"]} */ one) => html`<li>
        <${Text} text=${one.summary} long=${300} /> ${one.outcome && html`<${Tag} of=${one.outcome} />`} <span class="quiet small"><${Time} at=${one.timestamp} day=${true} /></span></li>`)}</ul>
        ${!interactions?.items.length && html`<p class="quiet">None.</p>`}</section>
    <section class="box"><h2>Issues and solutions</h2><ul class="list">
        ${issues.items.map((/** @type {Schemas["Issue"]} */ one) => html`<li><${Tag} of=${words(one.status)} /> <${Text} text=${one.description} long=${300} /></li>`)}
        ${solutions.items.map((/** @type {Schemas["Solution"]} */ one) => html`<li><${Tag} of="solved" tone="good" /> ${one.problem && html`<${Text} text=${one.problem} long=${200} /> → `}<${Text} text=${one.fix} long=${200} /></li>`)}</ul>
        ${!issues.items.length && !solutions.items.length && html`<p class="quiet">None.</p>`}</section></div></div>`}</${Loaded}>`;
}

/** The profile without what the service adds to it, and without fields that have no value. @param {Schemas["StoredProfile"] | null} profile @returns {Schemas["Profile"]} */
function written(profile) {
  const { user_id, version, created_at, updated_at, ...fields } = profile ?? /** @type {Partial<Schemas["StoredProfile"]>} */ ({});
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

/** Writes the whole profile, since a patch adds to lists. Whoever changed it meanwhile is not overwritten.
 * @param {string} user_id @param {Schemas["Profile"]} body @param {number | undefined} version */
const write = (user_id, body, version) => ask(api.PUT("/v1/users/{user_id}/profile", { params: { path: { user_id }, header: version ? { "If-Match": `"${version}"` } : {} }, body }));

/** @param {{ id: string, profile: Schemas["StoredProfile"] | null, again: () => void, onClose: () => void }} props */
function Edit({ id, profile: latest, again, onClose }) {
  const toast = useToast();
  const [profile] = useState(latest); // what the form began with
  const before = written(profile);
  const save = async (/** @type {Record<string, string>} */ { name, age, home, occupation, interests = "", conversation_preferences = "" }) => {
    const body = { ...before, name, home, occupation, age: age ? Number(age) : undefined, interests: lines(interests), conversation_preferences: lines(conversation_preferences) };
    const saved = await write(id, body, profile?.version);
    again();
    toast({ text: "The profile is changed.", undo: async () => { await write(id, before, saved.version); again(); } });
  };
  return html`<${Form} button="Save" save=${save} onClose=${onClose} fields=${[
    { name: "name", label: "Name", value: profile?.name ?? "", optional: true }, { name: "age", label: "Age", value: String(profile?.age ?? ""), optional: true, number: true },
    { name: "home", label: "Home", value: profile?.home ?? "", optional: true }, { name: "occupation", label: "Occupation", value: profile?.occupation ?? "", optional: true },
    { name: "interests", label: "Interests, one in a line", value: profile?.interests?.join("\n") ?? "", optional: true, long: true },
    { name: "conversation_preferences", label: "How to talk, one in a line", value: profile?.conversation_preferences?.join("\n") ?? "", optional: true, long: true }]} />`;
}
