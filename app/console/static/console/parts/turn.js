/** A turn of a session: who said what, and when. */
import { html } from "../ui.js";
import { Text, Time } from "./text.js";

/** @typedef {import("schema").components["schemas"]["Message"]} Message */

/** The text of a message, whatever form it came in. @param {Message} message @returns {string} */
export function textOf(message) {
  if (typeof message.content === "string") return message.content;
  const parts = (message.content ?? []).map((part) => part.text ?? `[${part.type}]`);
  const calls = (message.tool_calls ?? []).map((call) => `→ ${JSON.stringify(call)}`);
  return [...parts, ...calls, message.result === null ? "" : JSON.stringify(message.result)].filter(Boolean).join("\n");
}

/** @param {{ message: Message, children?: unknown }} props `children`: what else stands in its head */
export const Turn = ({ message, children }) => html`<div class=${`bubble ${message.role}`}>
  <div class="small quiet">#${message.seq} ${message.name ?? message.role}, <${Time} at=${message.timestamp} />${message.edited_at && ", edited"}${children}</div>
  ${message.deleted_at ? html`<i class="quiet">deleted</i>` : html`<${Text} text=${textOf(message)} />`}</div>`;
