/** Memories: search and change. */
import { html } from "../ui.js";

/** @type {import("../console.js").Page} */
export default function Memories({ caller }) {
  return html`<h1>Memories</h1><p>Tenant ${caller.tenant}.</p>`;
}
