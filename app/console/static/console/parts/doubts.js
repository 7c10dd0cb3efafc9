/** What open findings contradict, marked where it stands; and two claims that cannot both hold, side by side. */
import { html } from "../ui.js";
import { to } from "../route.js";
import { Tag, Text } from "./text.js";

/** @typedef {import("schema").components["schemas"]["ReflectionFinding"]} Finding */

/** The open finding that contradicts a record. @param {Finding[]} findings @param {string} id */
export const againstRecord = (findings, id) => findings.find((one) => one.kind === "contradiction" && one.evidence.some((piece) => piece.id === id));

/** The open finding that contradicts a field of a person's profile: "They give different values (home)."
 * @param {Finding[]} findings @param {string} user_id @param {string} field */
export const againstField = (findings, user_id, field) => findings.find((one) => one.kind === "contradiction" && one.user_id === user_id
  && (one.proposal.details?.aspect === field || one.evidence.some((piece) => piece.kind === "profile" && piece.id === `${user_id}/${field}`)));

/** A mark beside what a finding contradicts, with the way to it. @param {{ by: Finding | undefined }} props */
export const Contradicted = ({ by }) => (by ? html` <a href=${to("findings", [by.finding_id])}><${Tag} of="contradicted" tone="bad" /></a>` : null);

/** What holds of a field of the profile while an open finding contradicts it: the value of the record that would stay, or
 * else the statement of it, without whom it is about. "Rome", where "nina lives in Oslo" would take its place, is "lives in Oslo".
 * @param {string} value @param {Finding | undefined} by @param {string[]} names of the person @param {{ fact_id: string, object: string }[]} facts */
function holdsNow(value, by, names, facts) {
  const keep = by?.proposal.action === "supersede" ? by.proposal.keep : undefined;
  const stays = keep && by?.evidence.find((piece) => piece.kind === keep.kind && piece.id === keep.id)?.text;
  if (!stays || stays.toLowerCase().includes(value.toLowerCase())) return value;
  const subject = ["The user", ...names].find((name) => stays.toLowerCase().startsWith(`${name.toLowerCase()} `)) ?? "";
  return facts.find((fact) => fact.fact_id === keep.id)?.object ?? stays.slice(subject.length).trim();
}

/** A field of a person's profile as it holds now, marked where a finding waits that would change it.
 * @param {{ value: string, by: Finding | undefined, names: string[], facts?: { fact_id: string, object: string }[] }} props */
export const FieldValue = ({ value, by, names, facts = [] }) => html`<${Text} text=${holdsNow(value, by, names, facts)} long=${160} />${by
  && html` <a href=${to("findings", [by.finding_id])}><${Tag} of="uncertain" tone="bad" /></a>`}`;

/** What is said, where it is shown, and since when and by whom. @typedef {{ text: string, href: string, about: unknown }} Claim */

/** A dispute: why, and each claim. @param {{ reason: string, claims: Claim[] }} props */
export function Dispute({ reason, claims }) {
  return html`<p class="small"><${Tag} of="disputed" tone="bad" /> ${reason}</p>
    <ul class="claims">${claims.map((claim) => html`<li key=${claim.href}><a href=${claim.href}><${Text} text=${claim.text} long=${200} /></a><div class="small quiet">${claim.about}</div></li>`)}</ul>`;
}
