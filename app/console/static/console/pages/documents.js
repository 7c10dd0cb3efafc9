/** Files and what became of them: how many passages each has, and why one could not be read. Send one, delete one. */
import { html, useState } from "../ui.js";
import { BASE, api, ask, key, may, usePages } from "../api.js";
import { Confirm, Empty, More, ProblemBox, WaitingRows, useAction, useToast } from "../parts/feedback.js";
import { Status } from "../parts/records.js";
import { Icon, Text, Time, counted } from "../parts/text.js";
import { to } from "../route.js";

/** @typedef {import("schema").components["schemas"]["Document"]} Document */

/** Media types by the end of a file's name; any other is plain text. @type {Record<string, string>} */
const KINDS = { md: "text/markdown", markdown: "text/markdown", html: "text/html", htm: "text/html", pdf: "application/pdf" };

/** @type {import("../console.js").Page} */
export default function Documents({ route, caller }) {
  const owner = { user_id: route.params.user_id || undefined, agent_id: route.params.agent_id || undefined };
  const found = usePages((cursor, signal) => ask(api.GET("/v1/documents", { params: { query: { ...owner, limit: 30, cursor } }, signal })), [JSON.stringify(owner)], ["document"]);
  const [chosen, choose] = useState(/** @type {Document | undefined} */ (undefined));
  const toast = useToast();
  const send = useAction(async (/** @type {File} */ file) => {
    const kind = KINDS[file.name.split(".").pop()?.toLowerCase() ?? ""] ?? "text/plain";
    const query = { ...owner, name: file.name };
    // the body is the file itself, which the client's types show as a text
    await ask(api.POST("/v1/documents", { params: { query }, body: /** @type {any} */ (file), bodySerializer: (body) => body, headers: { "content-type": kind } }));
    toast({ text: `${file.name} is being read.` });
    found.again();
  });
  const drop = async (/** @type {Document} */ { document_id, name }) => {
    await ask(api.DELETE("/v1/documents/{document_id}", { params: { path: { document_id } } }));
    toast({ text: `${name} is deleted.` });
    found.again();
  };
  const writes = may(caller, "write");
  const example = `curl --data-binary @manual.pdf '${BASE}/v1/documents?name=manual.pdf&user_id=ada' \\\n  -H 'content-type: application/pdf'${key.get() ? " -H \"Authorization: Bearer $RECALLD_KEY\"" : ""}`;
  return html`<h1>Documents</h1><p class="quiet">Files by their passages, which searches and prompts find with their place.</p>
    ${writes && (owner.user_id || owner.agent_id ? html`<p><label>Send a file <input type="file" accept=".md,.markdown,.txt,.html,.htm,.pdf" disabled=${send.busy}
      onChange=${(/** @type {any} */ event) => event.target.files[0] && send.start(event.target.files[0])} /></label></p>` : html`<p class="quiet">Choose a person or an agent to send a file.</p>`)}
    <${ProblemBox} problem=${send.error} /><${ProblemBox} problem=${found.error} again=${found.again} /><${WaitingRows} of=${found} />
    ${found.items?.length === 0 && html`<${Empty} title="No document. Send one:" curl=${example} />`}
    ${Boolean(found.items?.length) && html`<section class="box" aria-label="List of documents"><ul class="list">${found.items?.map((document) => html`<li key=${document.document_id}>
      <div class="beside"><span><strong><${Text} text=${document.name} long=${160} /></strong></span>
        ${writes && html` <button type="button" class="small" aria-label=${`Delete ${document.name}`} onClick=${() => choose(document)}><${Icon} of="trash-2" /></button>`}</div>
      <div class="small quiet">${document.status !== "ready" && html`<${Status} of=${document.status} /> `}<a href=${to("memories", [], { ...route.params, memory_type: "document" })}>${counted(document.passages, "passage")}</a>${document.pages ? ` of ${counted(document.pages, "page")}` : ""}${document.empty_pages ? `, ${document.empty_pages} without text` : ""}${document.secrets ? `, ${counted(document.secrets, "secret")} in it` : ""} · version ${document.version}, <${Time} at=${document.updated_at} /></div>
      ${document.error && html`<div class="small"><${Text} text=${document.error} /></div>`}</li>`)}</ul><${More} of=${found} /></section>`}
    ${chosen && html`<${Confirm} title="Delete this document?" button="Delete" action=${() => drop(chosen)} onClose=${() => choose(undefined)}><p><${Text} text=${chosen.name} /> and its ${counted(chosen.passages, "passage")} are gone then.</p></${Confirm}>`}`;
}
