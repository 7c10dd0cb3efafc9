/** An agent and its settings. */
import { html } from "../ui.js";
import { BASE, api, ask, key, orNull, useLoad } from "../api.js";
import { Empty, Loaded } from "../parts/feedback.js";
import { Pairs } from "../parts/records.js";
import { curl } from "../parts/text.js";
import { to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */

/** @param {import("./owners.js").PartProps} props */
export default function About({ id }) {
  const loaded = useLoad((signal) => orNull(ask(api.GET("/v1/agents/{agent_id}", { params: { path: { agent_id: id } }, signal }))), [id]);
  return html`<${Loaded} of=${loaded}>${(/** @type {Schemas["Agent"] | null} */ agent) => agent === null
    ? html`<${Empty} title="This agent is not registered. Its records are there all the same; registering gives it settings:"
        curl=${curl("POST", `${BASE}/v1/agents`, { agent_id: id, name: id }, Boolean(key.get()))} />`
    : html`<section class="box"><${Pairs} pairs=${[["Name", agent.name], ["Description", agent.description], ["Model", agent.model], ["System prompt", agent.system_prompt],
      ["Tokens of a context", agent.settings.max_context_tokens], ["Importance below which searches leave a memory out", agent.settings.min_importance],
      ["Decay", `Importance falls to ${agent.settings.decay?.factor} of itself with each 30 days in which nobody recalls it, once ${agent.settings.decay?.grace_days} days have gone by; never below ${agent.settings.decay?.floor}`],
      ["Extraction", agent.settings.extraction_instructions]]} />
      <p class="small"><a href=${to("memories", [], { agent_id: id })}>Memories of this agent</a>, <a href=${to("sessions", [], { agent_id: id })}>sessions</a>, <a href=${to("tasks", [], { agent_id: id })}>tasks</a>, <a href=${to("findings", [], { agent_id: id })}>findings</a></p></section>`}</${Loaded}>`;
}
