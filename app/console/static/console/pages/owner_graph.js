/** The graph of the facts as a picture that one can walk. It asks for one entity at a time and is bounded. */
import { html, useEffect, useRef, useState } from "../ui.js";
import { api, ask, asProblem, useLoad } from "../api.js";
import { colour } from "../parts/chart.js";
import { Loaded, ProblemBox } from "../parts/feedback.js";
import { Text } from "../parts/text.js";
import { go, to } from "../route.js";
import { EntityView } from "./owner_entity.js";
import cytoscape from "../vendor/cytoscape.mjs";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** @typedef {{ names: Record<string, string>, edges: Record<string, Schemas["Edge"]>, walked: string[], last: string, cut: boolean }} Drawn */

const MOST_NODES = 80;
const MOST_NEW = 25;
const ENTITIES = 30;
const NOTHING = /** @type {Drawn} */ ({ names: {}, edges: {}, walked: [], last: "", cut: false });

/** @param {import("./owners.js").PartProps} props */
export function Graph(props) {
  return props.route.params.entity ? html`<${EntityView} key=${props.route.params.entity} ...${props} />` : html`<${Walked} ...${props} />`;
}

/** @param {import("./owners.js").PartProps} props */
function Walked({ owner, route }) {
  const prefix = route.params.prefix ?? "";
  const entities = useLoad((signal) => ask(api.GET("/v1/graph/entities", { params: { query: { ...owner, prefix, limit: ENTITIES } }, signal })), [prefix]);
  const [drawn, setDrawn] = useState(NOTHING);
  const [problem, setProblem] = useState(/** @type {import("../api.js").Problem | undefined} */ (undefined));
  const now = useRef(drawn);
  now.current = drawn;
  const walk = async (/** @type {string} */ name) => {
    try {
      const query = { ...owner, depth: 1, max_nodes: MOST_NEW };
      const found = await ask(api.GET("/v1/graph/entities/{name}/neighbors", { params: { path: { name }, query } }));
      setDrawn(joined(now.current, name, found));
      setProblem(undefined);
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  const start = entities.data?.items[0]?.name;
  useEffect(() => { if (start && !now.current.walked.length) walk(start); }, [start]);
  const count = Object.keys(drawn.names).length;
  const last = drawn.names[drawn.last];
  return html`<div class="filters"><label>Begins with <input type="search" value=${prefix} onChange=${(/** @type {any} */ event) =>
      go(to(route.page, route.rest, { ...route.params, prefix: event.target.value }), { replace: true })} /></label>
      <button type="button" disabled=${!count} onClick=${() => setDrawn(NOTHING)}>Clear the picture</button></div>
    <${ProblemBox} problem=${problem} />
    <${Loaded} of=${entities}>${(/** @type {Schemas["EntityList"]} */ found) => html`
      <p class="small">Entities, those with the most facts first: ${found.items.map((entity) => html`<button type="button" class="plain small" key=${entity.key}
        onClick=${() => walk(entity.name)}>${entity.name} (${entity.degree})</button>`)}
        <span class="quiet">${found.items.length} of ${found.total}${found.truncated ? `; counted up to the bound of ${found.truncated}` : ""}.</span></p>
      ${!found.items.length && html`<p class="quiet">No fact has an entity as its object here.</p>`}`}</${Loaded}>
    <p class="quiet small" role="status">${count} of at most ${MOST_NODES} entities drawn, ${MOST_NEW} new ones a step${drawn.cut ? "; some neighbours were left out at this bound" : ""}. Choose an entity to see its neighbours.</p>
    ${last && html`<p><a href=${to(route.page, route.rest, { ...route.params, entity: last })}>All that is known of <${Text} text=${last} long=${80} /></a></p>`}
    <div class="two"><${Picture} drawn=${drawn} walk=${walk} /><${Edges} drawn=${drawn} walk=${walk} /></div>`;
}

/** @param {Drawn} drawn @param {string} name @param {Schemas["Neighbors"]} found @returns {Drawn} */
function joined(drawn, name, found) {
  const names = { ...drawn.names };
  let cut = drawn.cut || found.truncated !== null;
  for (const one of [{ name, key: found.key }, ...found.nodes]) {
    if (one.key in names) continue;
    if (Object.keys(names).length >= MOST_NODES) cut = true;
    else names[one.key] = one.name;
  }
  const edges = { ...drawn.edges };
  for (const edge of found.edges) if (edge.subject_key in names && edge.object_key in names) edges[edge.fact_id] = edge;
  return { names, edges, cut, last: found.key, walked: [...new Set([...drawn.walked, found.key])] };
}

/** @param {Drawn} drawn */
function elements(drawn) {
  const nodes = Object.entries(drawn.names).map(([id, name]) => ({ data: { id, name: name.slice(0, 40), walked: drawn.walked.includes(id) ? 1 : 0 } }));
  const edges = Object.values(drawn.edges).map((edge) => ({
    data: { id: edge.fact_id, source: edge.subject_key, target: edge.object_key, name: edge.predicate.slice(0, 40) },
  }));
  return [...nodes, ...edges];
}

/** @param {{ drawn: Drawn, walk: (name: string) => void }} props */
function Picture({ drawn, walk }) {
  const node = useRef(/** @type {HTMLDivElement | null} */ (null));
  const picture = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const box = node.current;
    if (!box) return undefined;
    picture.current = cytoscape({ container: box, style: style(box), minZoom: 0.3, maxZoom: 1.4 });
    picture.current.on("tap", "node", (/** @type {any} */ event) => walk(event.target.data("name")));
    const themed = () => picture.current?.style(style(box));
    addEventListener("theme", themed);
    return () => { removeEventListener("theme", themed); picture.current?.destroy(); };
  }, []);
  useEffect(() => {
    const graph = picture.current;
    if (!graph) return;
    const wanted = elements(drawn);
    const ids = new Set(wanted.map((one) => one.data.id));
    graph.remove(graph.elements().filter((/** @type {any} */ one) => !ids.has(one.id())));
    for (const one of wanted) graph.getElementById(one.data.id).length ? graph.getElementById(one.data.id).data(one.data) : graph.add(one);
    graph.layout({ name: "cose", animate: false, randomize: false, padding: 20, idealEdgeLength: () => 110, nodeRepulsion: () => 9000 }).run();
  }, [drawn]);
  return html`<div class="graph" ref=${node} role="img" aria-label=${`Picture of ${Object.keys(drawn.names).length} entities; the list has the same`}></div>`;
}

/** @param {HTMLElement} box */
function style(box) {
  const ink = colour(box, "--ink"), quiet = colour(box, "--quiet");
  return /** @type {any} */ ([
    { selector: "node", style: { label: "data(name)", color: ink, "background-color": colour(box, "--tone-7"), "font-size": 11, width: 18, height: 18, "text-valign": "bottom", "text-margin-y": 3 } },
    { selector: "node[walked = 1]", style: { "background-color": colour(box, "--tone-0") } },
    { selector: "edge", style: { label: "data(name)", color: quiet, "font-size": 9, width: 1.5, "line-color": colour(box, "--edge"), "target-arrow-color": colour(box, "--edge"),
      "target-arrow-shape": "triangle", "curve-style": "bezier", "text-rotation": "autorotate" } },
  ]);
}

/** The same as a list, which the keyboard can walk. @param {{ drawn: Drawn, walk: (name: string) => void }} props */
function Edges({ drawn, walk }) {
  const step = (/** @type {string} */ name) => html`<button type="button" class="plain small" onClick=${() => walk(name)}><${Text} text=${name} long=${80} /></button>`;
  return html`<section class="box" aria-label="Links"><h2>Links</h2><div class="scroll" tabindex="0" role="region" aria-label="Links between entities"><ul class="came">
    ${Object.values(drawn.edges).map((edge) => html`<li key=${edge.fact_id}>${step(edge.subject)} ${edge.predicate} ${step(edge.object)}</li>`)}</ul></div></section>`;
}
