/** Overview: how much of what kind. */
import { html } from "../ui.js";

/** @type {import("../console.js").Page} */
export default function Overview({ caller }) {
  return html`<h1>Overview</h1><p>Tenant ${caller.tenant}.</p>`;
}
