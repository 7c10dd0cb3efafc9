/** The graph of the facts as a picture that one can walk. It asks for one entity at a time and is bounded. */
import { html, useEffect, useLayoutEffect, useRef, useState } from "../ui.js";
import { api, ask, asProblem, useLoad } from "../api.js";
import { colour } from "../parts/chart.js";
import { ROW, arranged, short } from "../parts/mindmap.js";
import { useNames } from "../parts/scope.js";
import { Loaded, ProblemBox } from "../parts/feedback.js";
import { ContradictedBy, useChallenged } from "../parts/doubts.js";
import { Text, words } from "../parts/text.js";
import { go, to } from "../route.js";
import { EntityView } from "./owner_entity.js";

/** @typedef {import("schema").components["schemas"]} Schemas */
/** What contradicts facts, by their ids. @typedef {ReturnType<typeof useChallenged>} Challenged */
/** @typedef {{ names: Map<string, string>, edges: Map<string, Schemas["Edge"]>, walked: string[], last: string, cut: boolean }} Drawn */

/** The entity that the facts about the person begin at. */
const USER = "@user";
const MOST_NODES = 80;
const MOST_NEW = 25;
const ENTITIES = 12;
const NOTHING = /** @type {Drawn} */ ({ names: new Map(), edges: new Map(), walked: [], last: "", cut: false });

/** @param {import("./owners.js").PartProps} props */
export default function Graph(props) {
  return props.route.params.entity ? html`<${EntityView} key=${props.route.params.entity} ...${props} />` : html`<${Walked} ...${props} />`;
}

/** @param {import("./owners.js").PartProps} props */
function Walked({ id, owner, route }) {
  const own = useNames().person(id);
  const challenged = useChallenged(owner);
  const prefix = route.params.prefix ?? "";
  const entities = useLoad((signal) => ask(api.GET("/v1/graph/entities", { params: { query: { ...owner, prefix, limit: ENTITIES } }, signal })), [prefix]);
  const [drawn, setDrawn] = useState(NOTHING);
  // a fact may name the person, too: "has name Mira" leads to an entity of its own
  const isOwn = (/** @type {string} */ name) => name.toLowerCase() === own.toLowerCase();
  const same = [...drawn.names.values(), ...(entities.data?.items ?? []).map((entity) => entity.name)].some(isOwn);
  const called = (/** @type {string} */ name) => (name === USER ? (same ? `${own} (the person)` : own) : same && isOwn(name) ? `${name} (the name)` : name);
  const [problem, setProblem] = useState(/** @type {import("../api.js").Problem | undefined} */ (undefined));
  const now = useRef(drawn);
  now.current = drawn;
  const walk = async (/** @type {string} */ name) => {
    try {
      const query = { ...owner, depth: 2, max_nodes: MOST_NEW }; // the second step has the links between the neighbours
      const found = await ask(api.GET("/v1/graph/entities/{name}/neighbors", { params: { path: { name }, query } }));
      setDrawn(joined(now.current, name, found));
      setProblem(undefined);
    } catch (error) {
      setProblem(asProblem(error));
    }
  };
  const start = entities.data?.items[0]?.name;
  useLayoutEffect(() => { if (start && !now.current.walked.length) walk(start); }, [start]); // after a paint it would ask later
  const wide = useWide();
  const count = drawn.names.size;
  const last = drawn.names.get(drawn.last);
  return html`<div class="filters"><label>Begins with <input type="search" value=${prefix} onChange=${(/** @type {any} */ event) =>
      go(to(route.page, route.rest, { ...route.params, prefix: event.target.value }), { replace: true })} /></label>
      ${wide && html`<button type="button" disabled=${!count} onClick=${() => setDrawn(NOTHING)}>Clear the picture</button>`}</div>
    <${ProblemBox} problem=${problem} />
    <${Loaded} of=${entities}>${(/** @type {Schemas["EntityList"]} */ found) => html`
      <p class="small walks"><span>${found.items.length} of ${found.total} entities, those with the most facts first${found.truncated ? ` (counted up to the bound of ${found.truncated})` : ""}:</span>${found.items.map((entity) => html`<button type="button" class="plain small" key=${entity.key}
        onClick=${() => walk(entity.name)}>${called(entity.name)} (${entity.degree})</button>`)}</p>
      ${!found.items.length && html`<p class="quiet">No fact has an entity as its object here.</p>`}`}</${Loaded}>
    ${!wide && html`<p class="small">A list in place of the picture: in so narrow a window its labels would be too small to read.</p>`}
    <p class="quiet small" role="status">${wide ? `${count} of at most ${MOST_NODES} entities drawn${drawn.cut ? "; some neighbours were left out at this bound" : ""}. ` : ""}Choose an entity to see up to ${MOST_NEW} neighbours.</p>
    ${last && html`<p class="small"><a href=${to(route.page, route.rest, { ...route.params, entity: last })}>All that is known of <${Text} text=${called(last)} long=${80} /></a></p>`}
    ${count > 0 && wide && html`<${Picture} drawn=${drawn} walk=${walk} called=${called} challenged=${challenged} />`}<${Edges} drawn=${drawn} walk=${walk} called=${called} challenged=${challenged} />`;
}

/** Whether there is room for a picture; in a narrower window its labels would be too small to read, and the list of links stands alone. */
function useWide() {
  const [query] = useState(() => matchMedia("(min-width: 56rem)"));
  const [wide, set] = useState(query.matches);
  useEffect(() => {
    const changed = () => set(query.matches);
    query.addEventListener("change", changed);
    return () => query.removeEventListener("change", changed);
  }, []);
  return wide;
}

/** @param {Drawn} drawn @param {string} name @param {Schemas["Neighbors"]} found @returns {Drawn} */
function joined(drawn, name, found) {
  const names = new Map(drawn.names); // no object: an entity may be called __proto__ or constructor
  const neighbours = found.nodes.filter(({ depth }) => depth === 1);
  let cut = drawn.cut || (found.truncated !== null && neighbours.length >= MOST_NEW);
  for (const one of [{ name, key: found.key }, ...neighbours]) {
    if (names.has(one.key)) continue;
    if (names.size >= MOST_NODES) cut = true;
    else names.set(one.key, one.name);
  }
  const edges = new Map(drawn.edges);
  for (const edge of found.edges) if (names.has(edge.subject_key) && names.has(edge.object_key)) edges.set(edge.fact_id, edge);
  return { names, edges, cut, last: found.key, walked: [...new Set([...drawn.walked, found.key])] };
}

/** The library keeps elements in objects by their ids, so an id is no name: one of those is __proto__. @param {string} key */
const nodeId = (key) => `entity ${key}`;

/** Above so many entities a label shows for those that were chosen, and for the one under the pointer with its links. */
const MOST_LABELS = 40;
const NARROW = 600;
const SHORTEST = 240;
const FONT = "12px system-ui, sans-serif";

/** The width of a label. @returns {(text: string) => number} */
function ruler() {
  const context = document.createElement("canvas").getContext("2d");
  if (context) context.font = FONT;
  return (text) => context?.measureText(text).width ?? text.length * 7;
}

/** The two ends of a link: those of the same two nodes are drawn as one. @param {string} from @param {string} until */
const ends = (from, until) => JSON.stringify([from, until]);

/** @param {Drawn} drawn @param {HTMLElement} box @param {(name: string) => string} called @param {Challenged} challenged */
function elements(drawn, box, called, challenged) {
  const nodes = [...drawn.names].map(([key, name]) => ({ key, name: called(name) }));
  const links = [...drawn.edges.values()].map((edge) => ({ id: edge.fact_id, from: edge.subject_key, to: edge.object_key, label: `${words(edge.predicate)}${challenged.has(edge.fact_id) ? " (contradicted)" : ""}` }));
  const contradicted = new Set([...drawn.edges.values()].filter((edge) => challenged.has(edge.fact_id)).map((edge) => ends(edge.subject_key, edge.object_key)));
  const width = ruler();
  const arrangement = arranged(nodes, links, width, box.clientWidth < NARROW);
  box.style.height = `${Math.max(SHORTEST, (arrangement.rows + 2) * ROW)}px`;
  const quiet = nodes.length > MOST_LABELS ? "quiet" : "";
  const named = (/** @type {string} */ key) => width(short(called(drawn.names.get(key) ?? "")));
  const beside = bulges(arrangement, named, width), inner = brackets(arrangement, named);
  const bends = (/** @type {string} */ id) => arrangement.lanes.get(id) ?? inner.get(id);
  const kind = (/** @type {typeof arrangement.drawn[number]} */ { id, tree }) => (tree ? "tree" : beside.has(id) ? "cross beside" : arrangement.lanes.has(id) ? "cross lane" : inner.has(id) ? "cross bracket" : "cross");
  const end = (/** @type {string} */ key) => `${(arrangement.places.get(key)?.side ?? 0) * (DOT_AND_GAP + named(key))}px 0px`;
  return [
    ...nodes.map(({ key, name }) => {
      const place = arrangement.places.get(key) ?? { x: 0, y: 0, side: 0 };
      const walked = `${drawn.walked.includes(key) ? "walked" : quiet} ${drawn.names.get(key) === USER ? "person" : "thing"}`;
      return { data: { id: nodeId(key), name: drawn.names.get(key), label: short(name) }, position: { x: place.x, y: place.y }, classes: `${walked} ${["left", "root", "right"][place.side + 1]}` };
    }),
    ...arrangement.drawn.map((link) => ({
      data: { id: link.id, source: nodeId(link.parent), target: nodeId(link.child), label: link.label, offset: width(link.label) / 2 + 14,
        bulge: beside.get(link.id), from: end(link.parent), until: end(link.child), ...bent(bends(link.id), arrangement.places.get(link.parent), arrangement.places.get(link.child)),
        turn: arrangement.places.get(link.parent)?.side ? 16 : Math.max(16, width(short(called(drawn.names.get(link.parent) ?? ""))) / 2 + 10) },
      classes: `${kind(link)} ${link.reversed ? "reversed" : "forward"} ${contradicted.has(link.reversed ? ends(link.child, link.parent) : ends(link.parent, link.child)) ? "contradicted" : "holding"} ${quiet}`,
    })),
  ];
}

/** The bends of a link as the library takes them: how far along the line between the two nodes each is, and how far beside it.
 * @param {import("../parts/mindmap.js").Bends | undefined} bends @param {import("../parts/mindmap.js").Place | undefined} from @param {import("../parts/mindmap.js").Place | undefined} until */
function bent(bends, from, until) {
  if (!bends || !from || !until) return {};
  const x = until.x - from.x, y = until.y - from.y, length = Math.hypot(x, y);
  return { weights: bends.map((bend) => ((bend.x - from.x) * x + (bend.y - from.y) * y) / length ** 2).join(" "),
    distances: bends.map((bend) => ((bend.y - from.y) * x - (bend.x - from.x) * y) / length).join(" ") };
}

/** From the middle of a node to where its label begins, and the room behind the label. */
const DOT_AND_GAP = 18;
/** Room between a label and the curve beside it. */
const ROOM = 16;

/** Brackets of one column stand so far apart, in as many places. */
const BRACKET = 16;
const BRACKETS = 2;

/** Whether a column is the last of its side. @param {ReturnType<typeof arranged>["places"]} places @param {{ x: number, side: number }} column */
const isLast = (places, { x, side }) => ![...places.values()].some((place) => place.side === side && place.x * side > x * side);

/** The widest label of a column. @param {ReturnType<typeof arranged>["places"]} places @param {number} x @param {(key: string) => number} named */
const widest = (places, x, named) => Math.max(...[...places].filter(([, place]) => place.x === x).map(([key]) => named(key)));

/** The bends of links between two nodes of a column that others follow: behind the labels, before those of the links to the next column.
 * @param {ReturnType<typeof arranged>} arrangement @param {(key: string) => number} named @returns {Map<string, import("../parts/mindmap.js").Bends>} */
function brackets({ places, drawn }, named) {
  /** @type {Map<string, import("../parts/mindmap.js").Bends>} */
  const all = new Map();
  for (const { id, parent, child, tree } of drawn) {
    const one = places.get(parent), other = places.get(child);
    if (tree || !one?.side || !other || one === other || one.x !== other.x || isLast(places, one)) continue;
    const x = one.x + one.side * (DOT_AND_GAP + widest(places, one.x, named) + BRACKET * (0.5 + (all.size % BRACKETS)));
    all.set(id, [{ x, y: one.y }, { x, y: other.y }]);
  }
  return all;
}

/** How far the curve of a link between two nodes of the last column stands out, in pixels, so that its own label stands beyond the
 * labels of the nodes; where two such labels would meet, the later one stands farther out. The middle of a curve is half as far
 * out as the point that bends it.
 * @param {ReturnType<typeof arranged>} arrangement @param {(key: string) => number} named the width of the label of a node @param {(text: string) => number} width */
function bulges({ places, drawn }, named, width) {
  /** @type {Map<string, number>} */
  const all = new Map();
  /** @type {{ x: number, y: number, out: number }[]} */
  const taken = [];
  for (const { id, parent, child, label, tree } of drawn) {
    const one = places.get(parent), other = places.get(child);
    if (tree || !one?.side || !other || one === other || one.x !== other.x || !isLast(places, one)) continue;
    const y = (one.y + other.y) / 2;
    const near = taken.filter((place) => place.x === one.x && Math.abs(place.y - y) < ROW);
    const out = Math.max(widest(places, one.x, named), ...near.map((place) => place.out)) + ROOM + width(label) / 2;
    taken.push({ x: one.x, y, out: out + width(label) / 2 });
    const ends = (named(parent) + named(child)) / 2; // the curve begins and ends behind the labels
    all.set(id, 2 * (out - ends) * one.side * (one.y < other.y ? -1 : 1)); // a positive one bends a line that goes down to the left
  }
  return all;
}

/** What the picture may hold, by the class of what is drawn: a sign of its own, and what it means. @type {[string, string, string][]} */
const LEGEND = [
  ["person", "node person", "the person"], ["thing", "node", "another entity"], ["walked", "node walked", "chosen, with its neighbours"],
  ["holding", "line", "holds"], ["cross", "line dashed", "a further link between entities of the picture"], ["contradicted", "line contradicted", "contradicted, as its label says"],
];

/** @param {{ drawn: Drawn, walk: (name: string) => void, called: (name: string) => string, challenged: Challenged }} props */
function Picture({ drawn, walk, called, challenged }) {
  const node = useRef(/** @type {HTMLDivElement | null} */ (null));
  const picture = useRef(/** @type {any} */ (null));
  const [kinds, setKinds] = useState(/** @type {Set<string>} */ (new Set()));
  const draw = () => {
    const graph = picture.current;
    if (!graph || !node.current) return;
    graph.elements().remove();
    const shown = elements(now.current, node.current, called, challenged);
    graph.add(shown);
    const kinds = shown.map(({ classes }) => classes.split(" "));
    const all = (/** @type {string} */ kind, /** @type {string} */ other) => kinds.filter((classes) => classes.includes(kind)).every((classes) => classes.includes(other));
    // a sign has the shape that the picture has: a contradicted link may be dashed, and the chosen one the square of the person
    setKinds(new Set([...kinds.flat(), ...(all("contradicted", "cross") ? ["dashed"] : []), ...(all("walked", "person") ? ["square"] : [])]));
    graph.resize();
    graph.fit(undefined, 24);
  };
  const now = useRef(drawn);
  now.current = drawn;
  const latest = useRef(draw);
  latest.current = draw;
  useEffect(() => {
    const box = node.current;
    if (!box) return undefined;
    let gone = false;
    import("../vendor/cytoscape.mjs").then(({ default: cytoscape }) => { // 400 kB, which the list of entities need not wait for
      if (gone) return;
      picture.current = cytoscape({ container: box, style: style(box), layout: { name: "preset" }, minZoom: 0.2, maxZoom: 1.15, userZoomingEnabled: false, autoungrabify: true, boxSelectionEnabled: false });
      picture.current.on("tap", "node", (/** @type {any} */ event) => walk(event.target.data("name")));
      picture.current.on("mouseover", "node", (/** @type {any} */ event) => event.target.closedNeighborhood().addClass("near"));
      picture.current.on("mouseout", "node", () => picture.current?.elements().removeClass("near"));
      latest.current();
    });
    const themed = () => picture.current?.style(style(box));
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    let width = box.clientWidth;
    const resized = new ResizeObserver(() => { if (box.clientWidth !== width) { width = box.clientWidth; latest.current(); } });
    resized.observe(box);
    addEventListener("theme", themed);
    scheme.addEventListener("change", themed);
    return () => {
      gone = true;
      resized.disconnect();
      removeEventListener("theme", themed);
      scheme.removeEventListener("change", themed);
      picture.current?.destroy();
    };
  }, []);
  useEffect(draw, [drawn, called(USER), [...challenged.keys()].join(" ")]);
  return html`<div class="graph" ref=${node} role="img" aria-label=${`Picture of ${drawn.names.size} entities; the list has the same`}></div>
    <ul class="legend" aria-label="Legend">${LEGEND.filter(([kind]) => kinds.has(kind)).map(([kind, sign, meaning]) => html`<li key=${kind}><i class=${`${sign}${kind === "contradicted" && kinds.has("dashed") ? " dashed" : ""}${kind === "walked" && kinds.has("square") ? " person" : ""}`}></i>${meaning}</li>`)}</ul>`;
}

/** @param {HTMLElement} box */
function style(box) {
  const ink = colour(box, "--ink"), quiet = colour(box, "--quiet"), ground = colour(box, "--box"), edge = colour(box, "--edge"), danger = colour(box, "--danger");
  const label = { "font-family": "system-ui, sans-serif", "text-background-color": ground, "text-background-opacity": 1, "text-background-padding": 2 };
  return /** @type {any} */ ([
    { selector: "node", style: { ...label, label: "data(label)", color: ink, "background-color": colour(box, "--tone-7"), "font-size": 12, width: 12, height: 12, "text-valign": "center", "text-margin-x": 4 } },
    { selector: "node.right", style: { "text-halign": "right", "text-margin-x": 6 } },
    { selector: "node.left", style: { "text-halign": "left", "text-margin-x": -6 } },
    { selector: "node.root", style: { "text-halign": "center", "text-valign": "bottom", "text-margin-x": 0, "text-margin-y": 6, width: 16, height: 16 } },
    { selector: "node.person", style: { shape: "rectangle" } },
    { selector: "node.walked", style: { "background-color": colour(box, "--tone-0") } },
    { selector: "edge", style: { ...label, color: quiet, "font-size": 11, width: 1, "line-color": edge, "target-arrow-color": edge, "source-arrow-color": edge, "arrow-scale": 0.7 } },
    { selector: "edge.tree", style: { "curve-style": "taxi", "taxi-direction": "horizontal", "taxi-turn": "data(turn)", "target-label": "data(label)", "target-text-offset": "data(offset)" } },
    { selector: "edge.cross", style: { "curve-style": "unbundled-bezier", "line-style": "dashed", "line-dash-pattern": [3, 3] } },
    { selector: "edge.beside", style: { "control-point-distances": "data(bulge)", "edge-distances": "endpoints", "source-endpoint": "data(from)", "target-endpoint": "data(until)", label: "data(label)" } },
    { selector: "edge.lane", style: { "curve-style": "round-segments", "segment-radii": 6, "edge-distances": "node-position", "segment-weights": "data(weights)", "segment-distances": "data(distances)", label: "data(label)" } },
    { selector: "edge.bracket", style: { "curve-style": "round-segments", "segment-radii": 6, "edge-distances": "node-position", "segment-weights": "data(weights)", "segment-distances": "data(distances)", "source-endpoint": "data(from)", "target-endpoint": "data(until)", label: "data(label)", "text-rotation": "autorotate" } },
    { selector: "edge.contradicted", style: { color: danger, width: 2, "line-color": danger, "target-arrow-color": danger, "source-arrow-color": danger, "z-index": 7 } },
    { selector: "edge.cross.contradicted", style: { "line-dash-pattern": [6, 4] } },
    { selector: "edge.forward", style: { "target-arrow-shape": "triangle" } },
    { selector: "edge.reversed", style: { "source-arrow-shape": "triangle" } },
    { selector: "node.quiet", style: { label: "" } },
    { selector: "edge.quiet", style: { "target-label": "", label: "" } },
    { selector: "node.near", style: { label: "data(label)", "z-index": 9 } },
    { selector: "edge.near", style: { "line-color": colour(box, "--tone-0"), "target-label": "data(label)", "z-index": 8 } },
    { selector: "edge.cross.near", style: { "target-label": "", label: "data(label)" } },
  ]);
}

/** The same as a list, which the keyboard can walk. @param {{ drawn: Drawn, walk: (name: string) => void, called: (name: string) => string, challenged: Challenged }} props */
function Edges({ drawn, walk, called, challenged }) {
  const step = (/** @type {string} */ name) => html`<button type="button" class="plain small" onClick=${() => walk(name)}><${Text} text=${called(name)} long=${80} /></button>`;
  return html`<section class="box" aria-label="Links"><h2>Links</h2><div class="scroll" tabindex="0" role="region" aria-label="Links between entities"><ul class="came links">
    ${[...drawn.edges.values()].map((edge) => html`<li key=${edge.fact_id}>${step(edge.subject)} ${words(edge.predicate)} ${step(edge.object)} <span class="small quiet"><${ContradictedBy} of=${challenged.get(edge.fact_id)} /></span></li>`)}</ul></div></section>`;
}
