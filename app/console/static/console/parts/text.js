/** Texts of records, times and code. Everything is drawn as text: a record may hold markup, and nothing of it runs. */
import { html, useState } from "../ui.js";

const LONG = 600;

/** The text of a record. It may be in any direction of writing; a long one is cut until it is asked for.
 * @param {{ text: string | null | undefined, long?: number }} props */
export function Text({ text, long = LONG }) {
  const [whole, setWhole] = useState(false);
  const given = text ?? "";
  const characters = given.length > long && !whole ? Array.from(given.slice(0, long * 2)).slice(0, long).join("") : given;
  return html`<span class="text" dir="auto">${visible(characters)}${characters.length < given.length && "…"}</span>
    ${given.length > long && html` <button type="button" class="plain small" onClick=${() => setWhole(!whole)}>
      ${whole ? "Show less" : `Show all ${given.length.toLocaleString()} characters`}</button>`}`;
}

/** Shows control characters and those that turn the direction of writing as their code: they are not seen otherwise.
 * @param {string} text */
export function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g,
    (character) => `[U+${character.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`);
}

/** A picture of the one set (lucide): it stands beside a word, or in a button that has a name. @param {{ of: string }} props */
export const Icon = ({ of }) => html`<svg class="icon" aria-hidden="true"><use href=${`#icon-${of}`} /></svg>`;

/** A button that copies a text. @param {{ text: string }} props */
export function Copy({ text }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(setCopied, 2000, false);
  };
  return html`<button type="button" class="bare" aria-label=${copied ? "Copied" : `Copy ${visible(text)}`} onClick=${copy}><${Icon} of=${copied ? "check" : "copy"} /></button>`;
}

/** What stands behind its title until it is opened; it is drawn then, since a list has many.
 * @param {{ title: unknown, kind?: string, small?: boolean, open?: boolean, children: () => unknown }} props `kind`: its class */
export function Fold({ title, kind, small = true, open = false, children }) {
  const [drawn, draw] = useState(open);
  return html`<details class=${kind} open=${open} onToggle=${(/** @type {any} */ { currentTarget }) => currentTarget.open && draw(true)}><summary class=${small ? "small" : undefined}>${title}</summary>${drawn && children()}</details>`;
}

/** A command or JSON with a button that copies it. @param {{ text: string, label?: string }} props */
export function Code({ text, label = "Copy" }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(setCopied, 2000, false);
  };
  return html`<div class="code"><pre tabindex="0">${text}</pre>
    <button type="button" class="small" onClick=${copy}>${copied ? "Copied" : label}</button></div>`;
}

const DAY_SECONDS = 86_400;
/** Longer ago, a time is its day: whoever reads "20 days ago" beside a fact "since 2026-11-08" has to count. */
const NEAR_DAYS = 7;
const UNITS = /** @type {[Intl.RelativeTimeFormatUnit, number][]} */ ([["day", DAY_SECONDS], ["hour", 3600], ["minute", 60], ["second", 1]]);
const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

/** "3 days ago" of an RFC 3339 time of the last or the next week, with no line breaks within it; else undefined. @param {string} when */
function ago(when) {
  const seconds = (Date.parse(when) - Date.now()) / 1000;
  if (Math.abs(seconds) > NEAR_DAYS * DAY_SECONDS) return undefined;
  const [unit, size] = UNITS.find(([, most]) => Math.abs(seconds) >= most) ?? ["second", 1];
  return RELATIVE.format(Math.round(seconds / size), unit).replaceAll(" ", NO_BREAK);
}

const NO_BREAK = "\u00a0";

/** A time: in words up to a week, then its day; or always the day, or all of it. The exact one shows under the pointer, with the focus and when it is tapped.
 * @param {{ at: string | null | undefined, whole?: boolean, day?: boolean }} props */
export function Time({ at, whole = false, day = false }) {
  if (!at) return html`<span class="quiet">never</span>`;
  const exact = at.slice(0, 19).replace("T", " ");
  return html`<time datetime=${at} tabindex="0" data-exact=${`${exact} UTC`}>${whole ? exact : (!day && ago(at)) || at.slice(0, 10)}</time>`;
}

/** A time of details: the exact one, and beside it in words up to a week. @param {{ at: string }} props */
export const ExactTime = ({ at }) => html`<${Time} at=${at} whole=${true} /> UTC <span class="quiet">${ago(at)}</span>`;

/** "2026-05-01 – now". @param {string | null | undefined} from @param {string | null | undefined} until */
export const span = (from, until) => `${from?.slice(0, 10) ?? "always"} – ${until?.slice(0, 10) ?? "now"}`;

/** Names of the API for what the pages call by another word everywhere. */
const CALLED = /** @type {Record<string, string>} */ ({ superseded: "replaced", contradiction: "contradicted", disputed: "contradicted", has_age: "is aged", success: "succeeded", failure: "failed",
  post_conversation: "learning from a session", conversation_preferences: "how to talk" });

/** A name of the API as words: `in_progress` is "in progress", `superseded` "replaced". @param {string} name */
export const words = (name) => CALLED[name] ?? name.replaceAll("_", " ");

/** The type of a memory as words: a memory of the type `fact` is a note, since a fact has a subject, a value and a time. @param {string} type */
export const typeOf = (type) => (type === "fact" ? "note" : words(type));

/** A value of a field or filter as words. @param {string} name of the field @param {string} value */
export const valueOf = (name, value) => (name === "memory_type" ? typeOf(value) : words(value));

/** "1 message", "2 messages", "2 memories". @param {number} number @param {string} noun @param {string} [many] */
export const counted = (number, noun, many = `${noun}s`) => `${number.toLocaleString("en")} ${number === 1 ? noun : many}`;

/** A fact as a sentence: the person is called by the name, where it is given, or the id.
 * @param {{ subject: string, predicate: string, object: string, user_id?: string | null }} fact @param {string | null} [name] */
export const statement = ({ subject, predicate, object, user_id }, name) => `${subject === "@user" ? name ?? user_id ?? "The person" : subject} ${words(predicate)} ${object}`;

/** A text without what two that say the same may differ in: of a statement come a memory and a fact, "Mira lives in Bergedorf." and "Mira lives in Bergedorf". @param {string} text */
export const bare = (text) => text.trim().replace(/[.!]+$/, "").toLowerCase();

/** A share as a percentage with two digits, however small: "0.098 %". @param {number} share 0 to 1 */
export const percent = (share) => `${share < 0.01 ? (share * 100).toLocaleString("en", { maximumSignificantDigits: 2 }) : (share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;

/** A word with a colour: a kind or a status. @param {{ of: string, tone?: string }} props */
export function Tag({ of, tone = "" }) {
  return html`<span class=${`tag ${tone}`}>${visible(of)}</span>`;
}

/** Quotes a text for a POSIX shell. @param {string} text */
export const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/**
 * A curl of a request that works as pasted. The key is the variable RECALLD_KEY: it is not written into a page.
 * @param {string} method @param {string} url @param {unknown} [body] @param {boolean} [withKey]
 */
export function curl(method, url, body, withKey = false) {
  const parts = [`curl -s${method === "GET" || (method === "POST" && body) ? "" : ` -X ${method}`} ${quoted(url)}`];
  if (withKey) parts.push(`-H "Authorization: Bearer $RECALLD_KEY"`);
  if (body !== undefined) parts.push("-H 'content-type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  return parts.join(" \\\n  ");
}
