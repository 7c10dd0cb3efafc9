/** Goes on to where a record stands whose id does not say whose it is: `#/record/fact_…` to the facts of its person or agent. */
import { html, useEffect } from "../ui.js";
import { api, ask, useLoad } from "../api.js";
import { Loaded } from "../parts/feedback.js";
import { Gone } from "../parts/records.js";
import { go, scopeOf, to } from "../route.js";

/** Whose it is. @typedef {{ user_id?: string | null, agent_id?: string | null }} Owned */

/** The part of the page of whose it is. @param {Owned} owned @param {string} part @param {Record<string, string>} chosen */
const partOf = ({ user_id, agent_id }, part, chosen) => to("owners", [...(user_id ? ["users", user_id] : ["agents", agent_id ?? ""]), part], { user_id: "", agent_id: "", ...chosen });

/** @param {string} id @param {AbortSignal} signal @returns {Promise<string>} */
async function addressOf(id, signal) {
  if (id.startsWith("fact_")) return partOf(await ask(api.GET("/v1/facts/{fact_id}", { params: { path: { fact_id: id } }, signal })), "facts", { fact: id });
  if (id.startsWith("proc_")) return partOf(await ask(api.GET("/v1/procedures/{procedure_id}", { params: { path: { procedure_id: id } }, signal })), "procedures", { procedure: id });
  const { agent_id } = await ask(api.GET("/v1/actions/{action_id}", { params: { path: { action_id: id } }, signal }));
  return partOf({ agent_id }, "actions", { action: id });
}

/** What a record is by the beginning of its id, and the part of the page of whose it is that lists its kind. */
const KINDS = /** @type {Record<string, { noun: string, part: string }>} */ ({
  fact: { noun: "Fact", part: "facts" }, proc: { noun: "Procedure", part: "procedures" }, act: { noun: "Action", part: "actions" },
});

/** The list of the kind of a record that is not there, of the person or agent that is chosen. @param {import("../console.js").PageProps & { id: string }} props */
function Missing({ id, route, caller }) {
  const { noun, part } = KINDS[id.split("_")[0]] ?? { noun: "Record", part: "" };
  const { user_id, agent_id } = scopeOf(route);
  const owner = user_id && part !== "actions" ? ["users", user_id] : agent_id ? ["agents", agent_id] : undefined;
  return html`<${Gone} noun=${noun} id=${id} caller=${caller}>${owner && part ? html`<a href=${to("owners", [...owner, part])}>${part[0].toUpperCase()}${part.slice(1)}</a>`
    : html`<a href=${to("owners")}>People and agents</a>${part && `: each has a list of its ${part}`}`}</${Gone}>`;
}

/** @type {import("../console.js").Page} */
export default function Record({ route, caller }) {
  const [id = ""] = route.rest;
  const address = useLoad((signal) => addressOf(id, signal), [id]);
  useEffect(() => { if (address.data) go(address.data, { replace: true }); }, [address.data]);
  return html`<h1>Record</h1>${address.error?.status === 404 ? html`<${Missing} id=${id} route=${route} caller=${caller} />`
    : html`<${Loaded} of=${address}>${() => null}</${Loaded}>`}`;
}
