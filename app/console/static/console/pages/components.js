/** The components of the console in all their states: what the design (docs/contributing/console.md) names, to look at. */
import { html, useState } from "../ui.js";
import { Problem } from "../api.js";
import { Bar } from "../parts/bars.js";
import { Chart } from "../parts/chart.js";
import { Add, Chips, Order } from "../parts/collection.js";
import { Doubt } from "../parts/doubts.js";
import { Confirm, Empty, ProblemBox, useToast } from "../parts/feedback.js";
import { RecordLink, Status, Tabs, Value } from "../parts/records.js";
import { Scores, Strength } from "../parts/scores.js";
import { Table } from "../parts/table.js";
import { Code, Icon, Tag, Text, Time, curl } from "../parts/text.js";
import { to } from "../route.js";

const STATUSES = ["active", "superseded", "archived", "disputed", "pending", "in_progress", "completed", "failed"];
const ICONS = ["archive", "archive-restore", "check", "chevron-left", "circle-question-mark", "copy", "gauge", "lightbulb", "list-checks", "log-out", "menu", "messages-square",
  "notebook-text", "pencil", "pin", "pin-off", "plus", "search", "server-cog", "text-quote", "trash-2", "users", "x"];
const TABS = ["What is known", "Profile", "Facts", "Procedures", "Chosen", "Export and erase"];
const DAY = 86_400;
const FIRST = Date.UTC(2026, 0, 1) / 1000;
const LONG = "A text that is longer than its column, so that one sees where it breaks. ".repeat(12);
const PARTS = [{ name: "meaning", value: 5 }, { name: "words", value: 3 }, { name: "recency", value: 1 }];

/** @type {import("../console.js").Page} */
export default function Components() {
  const toast = useToast();
  const [asks, setAsks] = useState(false);
  const [params, setParams] = useState(/** @type {Record<string, string>} */ ({ kind: "stale", pinned: "1" }));
  const set = (/** @type {Record<string, string>} */ given) => setParams({ ...params, ...given });
  const here = to("components");
  return html`<h1>Components</h1>
    <div class="two"><div>
      <section class="box"><h2>Buttons</h2><div class="actions"><button type="button">At rest</button><button type="button" class="main">Main</button><button type="button" class="danger">Destroys</button>
          <button type="button" class="plain">Plain</button><button type="button" disabled>At work</button><button type="button" aria-pressed="true">Pressed</button><button type="button" class="small">Small</button></div></section>
      <section class="box"><h2>Fields</h2><div class="filters"><label>Text <input defaultValue="A value" /></label><label>Empty <input placeholder="What it takes" /></label>
          <label>Choice <select><option>one</option><option>another</option></select></label><label><input type="checkbox" defaultChecked /> Switch</label></div>
        <label class="slide">Slider<input type="range" min="0" max="10" defaultValue="4" /><output>4</output></label></section>
      <section class="box"><h2>Words</h2><p class="row">${STATUSES.map((one) => html`<${Status} of=${one} /> `)} <${Tag} of="a tag" /></p>
        <dl class="facts"><div><dt>id</dt><dd><${RecordLink} id="mem_01a2003d395076f9a13acea58faaf745" /></dd></div><div><dt>time</dt><dd><${Time} at="2026-01-01T12:00:00Z" /></dd></div><div><dt>day</dt><dd><${Time} at="2026-01-01T12:00:00Z" day=${true} /></dd></div>
          <div><dt>whole</dt><dd><${Time} at="2026-01-01T12:00:00Z" whole=${true} /></dd></div><div><dt>none</dt><dd><${Time} at=${null} /></dd></div></dl>
        <p><${Text} text=${LONG} long=${160} /></p><p><${Text} text=${"Direction \u202e and control \u0001 characters"} /></p></section>
      <section class="box"><h2>How well a hit fits</h2><p>${[0.9, 0.3, 0.05].map((probability) => html`<${Strength} probability=${probability} /> `)}</p>
        <${Scores} score=${0.62} mode="hybrid" scores=${{ vector: 0.7, text: 2.2, vector_scaled: 0.9 }} contributions=${{ vector_scaled: 5.6, length: -1.1 }} /><${Scores} score=${0.703} mode="vector" /></section>
      <section class="box"><h2>Bars, progress, chart</h2><${Bar} label="Parts" parts=${PARTS} digits=${0} />
        <div class="entry small"><progress max="5" value="2" aria-label="2 of 5 steps"></progress><span>2 of 5 steps</span></div>
        <${Chart} label="Two series" x=${[0, 1, 2, 3].map((day) => FIRST + day * DAY)} series=${[{ name: "one", values: [1, 4, 2, 3] }, { name: "other", values: [2, 2, 3, 1], dash: [6, 4] }]} /></section>
    </div><div>
      <section class="box"><h2>Rows</h2><ul class="list"><li><a class="title" href=${here}>At rest</a><div class="small quiet">second line</div></li>
          <li class="chosen"><a class="title" href=${here} aria-current="true">Chosen</a><div class="small quiet">second line</div></li><li>Without a link</li></ul></section>
      <section class="box"><h2>Table</h2><${Table} label="Example of a table" heads=${["Name", "Note", { figure: "Figure" }]} rows=${[{ key: "first", cells: ["first", "on a phone a card", "1,024"] }, { key: "second", cells: ["second", "as the first", 7] }]} /></section>
      <section class="box"><h2>A dispute or a finding</h2><${Doubt} kind="contradiction" title="Mira lives in: Altona or Bergedorf?" about="Trust 0.40 against 1.00." claims=${["Altona", "Bergedorf"].map((town) => ({ text: `Mira lives in ${town}`, href: `${here}?${town}`, about: "since 2026-11-09 · through the API",
        decision: { word: "This one holds", of: town, act: async () => {}, does: "The other one leaves answers." } }))} /></section>
      <section class="box"><h2>Tabs</h2><${Tabs} label="Example" current="one" tabs=${TABS.map((title) => ({ name: title === "Chosen" ? "one" : title, title, href: here }))} /></section>
      <section class="box"><h2>States of a page</h2><p class="quiet" role="status">Loading…</p>
        <${ProblemBox} problem=${new Problem(409, "key_taken", "Another memory has this key. Choose another one, or update that memory.", "req_1")} />
        <${Empty} title="Nothing is remembered yet. This remembers one thing:" curl=${curl("POST", "http://127.0.0.1:8000/v1/memories", { user_id: "ada", content: "Ada prefers tea" })} /></section>
      <section class="box"><h2>A field of free form</h2><${Value} of=${{ outcome: "success", steps_done: 3, parts: ["rim", "hub"], nested: { spokes: 36, checked: true }, nothing: null }} /><${Code} text="scripts/recalld demo" /></section>
      <section class="box"><h2>Filters, the order, a form</h2><div class="filters"><${Order} params=${params} set=${set} />
          <${Add} title="Add a record" save=${async () => {}} fields=${[{ name: "what", label: "What it is" }, { name: "kind", label: "Kind", options: ["one", "other"] }, { name: "note", label: "Note", long: true, optional: true }]} /></div>
        <${Chips} params=${params} set=${set} names=${{ kind: "Kind", pinned: "Pinned", order: "Sort" }} switches=${["pinned"]} />
        <ul class="list"><li class="pick"><input class="choose" type="checkbox" aria-label="Choose the row" checked /><a class="title" href=${here}>A row that is picked</a><div class="small quiet">second line</div></li></ul></section>
      <section class="box"><h2>Icons</h2><p class="row">${ICONS.map((name) => html`<span key=${name} class="small"><${Icon} of=${name} /> ${name}</span>`)}</p></section>
      <section class="box"><h2>Overlays</h2><div class="actions"><button type="button" onClick=${() => toast({ text: "Archived.", undo: async () => {} })}>Toast</button>
          <button type="button" onClick=${() => toast({ text: "It could not be saved.", bad: true })}>Bad toast</button><button type="button" onClick=${() => setAsks(true)}>Ask</button></div>
        ${asks && html`<${Confirm} title="Delete this memory?" button="Delete" action=${async () => {}} onClose=${() => setAsks(false)}><p>Its history goes, too.</p></${Confirm}>`}</section>
    </div></div>`;
}
