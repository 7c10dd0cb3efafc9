/** The data of a person: the export, and erasing it. */
import { html, useState } from "../ui.js";
import { api, ask, may } from "../api.js";
import { Confirm, ProblemBox, useAction, useToast } from "../parts/feedback.js";
import { ended } from "../parts/records.js";
import { Code } from "../parts/text.js";

/** @param {import("./owners.js").PartProps} props */
export default function Data({ id, caller }) {
  const toast = useToast();
  const [asks, setAsks] = useState(false);
  const [receipt, setReceipt] = useState(/** @type {unknown} */ (undefined));
  const path = { user_id: id };
  const save = useAction(async () => {
    const lines = /** @type {unknown} */ (await ask(api.GET("/v1/users/{user_id}/export", { params: { path }, parseAs: "text" })));
    const address = URL.createObjectURL(new Blob([String(lines)], { type: "application/x-ndjson" }));
    const link = Object.assign(document.createElement("a"), { href: address, download: `${id}.ndjson` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  });
  const erase = async () => {
    const done = /** @type {any} */ (await ask(api.DELETE("/v1/users/{user_id}", { params: { path } })));
    setReceipt(done.operation_id && done.status ? (await ended(done)).result ?? done : done);
    toast({ text: "The person is erased." });
  };
  return html`<section class="box"><h2>Export</h2><p>Every record of this person, a line of JSON each. The export is noted in the audit trail.</p>
      <${ProblemBox} problem=${save.error} /><p><button type="button" disabled=${save.busy} onClick=${save.start}>Download the export</button></p></section>
    ${may(caller, "write") && html`<section class="box"><h2>Erase</h2>
      <p>All records of this person go for good, with what was derived from them, their history and vectors. A receipt says what went.</p>
      <p><button type="button" class="danger" onClick=${() => setAsks(true)}>Erase this person…</button></p></section>`}
    ${receipt !== undefined && html`<section class="box" aria-label="Receipt"><h2>Receipt</h2><${Code} text=${JSON.stringify(receipt, null, 2)} label="Copy the receipt" /></section>`}
    ${asks && html`<${Confirm} title=${`Erase ${id}?`} button="Erase for good" action=${erase} onClose=${() => setAsks(false)}>
      <p>This cannot be undone. Export first if somebody may ask for the data.</p></${Confirm}>`}`;
}
