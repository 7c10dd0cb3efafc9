/** What an agent has learned. */
import { html } from "../ui.js";
import { api, ask, orNull, useLoad } from "../api.js";
import { Loaded } from "../parts/feedback.js";
import { Text, visible } from "../parts/text.js";
import { to } from "../route.js";

/** @typedef {import("schema").components["schemas"]} Schemas */

const LESSONS = /** @type {const} */ ([
  ["effective_strategies", "What works"], ["known_pitfalls", "Pitfalls"], ["heuristics", "Rules of thumb"], ["common_scenarios", "Common scenarios"],
  ["tool_patterns", "Tools"], ["user_feedback", "What people said"], ["improvement_areas", "To improve"],
]);

/** @param {import("./owners.js").PartProps} props */
export default function Experience({ id, caller }) {
  const loaded = useLoad((signal) => orNull(ask(api.GET("/v1/agents/{agent_id}/experience", { params: { path: { agent_id: id } }, signal }))), [id]);
  return html`<${Loaded} of=${loaded}>${(/** @type {Schemas["Experience"] | null} */ experience) => experience === null
    ? html`<p class="quiet">Only registered agents gather experience.</p>`
    : html`${experience.procedural_knowledge && html`<section class="box"><${Text} text=${experience.procedural_knowledge} /></section>`}
      ${!LESSONS.some(([name]) => experience[name].length) && html`<p class="quiet">No lesson yet: ${caller.language_model ? "sessions and actions of this agent bring them" : "to learn them needs a language model"}.</p>`}
      <div class="grid">${LESSONS.filter(([name]) => experience[name].length).map(([name, title]) => html`<section class="box" key=${name}><h2>${title}</h2>
        <ul class="list">${experience[name].map((lesson) => html`<li><${Text} text=${lesson.text} long=${300} /><div class="quiet small">seen ${lesson.seen === 1 ? "once" : `${lesson.seen} times`}${lesson.source.session_id
          && html`, from <a href=${to("sessions", [lesson.source.session_id])}>${visible(lesson.source.session_id)}</a>`}</div></li>`)}</ul></section>`)}</div>`}</${Loaded}>`;
}
