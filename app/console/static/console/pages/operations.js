/** Operations: background work. */
import { html } from "../ui.js";

/** @type {import("../console.js").Page} */
export default function Operations({ caller }) {
  return html`<h1>Operations</h1><p>Tenant ${caller.tenant}.</p>`;
}
