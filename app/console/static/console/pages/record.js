/** Goes on to where a record stands whose id does not say whose it is: `#/record/fact_…` to the facts of its person or agent. */
import { html, useEffect } from "../ui.js";
import { api, ask, key, useLoad } from "../api.js";
import { Empty, Loaded } from "../parts/feedback.js";
import { go, to } from "../route.js";

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

/** @type {import("../console.js").Page} */
export default function Record({ route }) {
  const [id = ""] = route.rest;
  const address = useLoad((signal) => addressOf(id, signal), [id]);
  useEffect(() => { if (address.data) go(address.data, { replace: true }); }, [address.data]);
  return html`<h1>Record</h1>${address.error?.status === 404 ? html`<${Empty} title=${key.get() ? "It is gone, or the key may not see it." : "It is gone, or there was none of this id."} />`
    : html`<${Loaded} of=${address}>${() => null}</${Loaded}>`}`;
}
