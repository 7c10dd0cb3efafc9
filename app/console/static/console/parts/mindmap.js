/**
 * Where the nodes of a graph stand: a tree that grows from its first node to both sides, a row for each leaf, columns as
 * wide as their labels. No two labels overlap, however many there are, since each has a place of its own. A link between
 * two columns that is no part of the tree goes below it, on a lane that has room for its label.
 */

/** @typedef {{ key: string, name: string }} Node */
/** @typedef {{ id: string, from: string, to: string, label: string }} Link */
/** @typedef {{ x: number, y: number, side: -1 | 0 | 1 }} Place `side`: where the label goes; the first node has it below. */
/** @typedef {{ id: string, parent: string, child: string, label: string, reversed: boolean, tree: boolean }} Drawn */
/** Where a link bends: down beside its first node, along the lane, up beside its second one. @typedef {{ x: number, y: number }[]} Bends */

export const ROW = 28;
const DOT = 20;
const GAP = 24;
const MOST_LABEL = 30;
/** The height of a lane, and the room before the first and behind its label. */
const LANE = 20;
const LANE_ROOM = 12;
/** From the middle of a node to where a link turns down: between the node and the label of the link of the tree. */
const TURN = 10;
/** Links that turn beside one column turn so far apart, in as many places. */
const TURN_STEP = 2;
const TURNS = 2;

/** A label, cut where it is long. @param {string} text */
export const short = (text) => (text.length > MOST_LABEL ? `${text.slice(0, MOST_LABEL - 1)}…` : text);

/** Links of the same two nodes as one, with all their labels. @param {Link[]} links @returns {Link[]} */
function joined(links) {
  /** @type {Map<string, Link>} */
  const pairs = new Map();
  for (const link of links) {
    const pair = JSON.stringify([link.from, link.to]);
    const known = pairs.get(pair);
    if (!known) pairs.set(pair, link);
    else if (!known.label.split(", ").includes(link.label)) pairs.set(pair, { ...known, label: `${known.label}, ${link.label}` });
  }
  return [...pairs.values()];
}

/**
 * The links as they are drawn and the children of each node. The first node of each part that hangs together is its root.
 * @param {Node[]} nodes @param {Link[]} links
 */
function grown(nodes, links) {
  /** @type {Map<string, Link[]>} */
  const at = new Map(nodes.map((node) => [node.key, []]));
  for (const link of links) {
    at.get(link.from)?.push(link);
    if (link.to !== link.from) at.get(link.to)?.push(link);
  }
  /** @type {Map<string, string[]>} */
  const children = new Map(nodes.map((node) => [node.key, []]));
  /** @type {Map<string, Drawn>} */
  const drawn = new Map();
  const seen = new Set();
  const roots = [];
  for (const { key } of nodes) {
    if (seen.has(key)) continue;
    roots.push(key);
    seen.add(key);
    const queue = [key];
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
      for (const link of at.get(next) ?? []) {
        if (drawn.has(link.id)) continue;
        const other = link.from === next ? link.to : link.from;
        const tree = !seen.has(other);
        drawn.set(link.id, { id: link.id, parent: next, child: other, label: short(link.label), reversed: link.to === next && link.from !== next, tree });
        if (!tree) continue;
        seen.add(other);
        children.get(next)?.push(other);
        queue.push(other);
      }
    }
  }
  return { roots, children, drawn: [...drawn.values()] };
}

/**
 * @param {Node[]} nodes @param {Link[]} links @param {(text: string) => number} width of a label in pixels
 * @param {boolean} narrow grows to the right alone
 * @returns {{ places: Map<string, Place>, drawn: Drawn[], lanes: Map<string, Bends>, rows: number }}
 */
export function arranged(nodes, links, width, narrow) {
  const { roots, children, drawn } = grown(nodes, joined(links));
  const names = new Map(nodes.map((node) => [node.key, short(node.name)]));
  const incoming = new Map(drawn.filter((link) => link.tree).map((link) => [link.child, link.label]));
  /** @type {Map<string, Place>} */
  const places = new Map();
  /** @type {Map<string, Bends>} */
  const lanes = new Map();
  let top = 0;
  for (const root of roots) {
    const sides = narrow ? [children.get(root) ?? [], []] : halves(children.get(root) ?? [], children);
    const heights = sides.map((side) => side.reduce((sum, key) => sum + leaves(key, children), 0));
    const rows = Math.max(1, ...heights);
    places.set(root, { x: 0, y: (top + (rows - 1) / 2) * ROW, side: 0 });
    sides.forEach((side, index) => {
      const direction = /** @type {-1 | 1} */ (index === 0 ? 1 : -1);
      const first = top + (rows - heights[index]) / 2;
      place(side, first, direction, width(names.get(root) ?? "") / 2);
    });
    const count = lay(root, (top + rows) * ROW);
    top += rows + 2 + Math.ceil((count * LANE) / ROW);
  }
  return { places, drawn, lanes, rows: top - 1 };

  /** Lays the links between columns of one part that hangs together, each on the first lane where nothing is in its way. Returns the number of lanes. @param {string} root @param {number} below where the first lane is @returns {number} */
  function lay(root, below) {
    const own = new Set([root]);
    for (const key of own) for (const child of children.get(key) ?? []) own.add(child);
    /** How far the links of each lane go already. @type {[number, number][][]} */
    const taken = [];
    let turned = 0;
    for (const link of drawn) {
      const from = places.get(link.parent), until = places.get(link.child);
      if (link.tree || !own.has(link.parent) || !from || !until || from === until || (from.side && from.x === until.x)) continue;
      const off = TURN - TURN_STEP * (turned++ % TURNS);
      const [first, last] = [[from, until, link.parent], [until, from, link.child]].map(([at, other, key]) => turnOf(/** @type {Place} */ (at), /** @type {Place} */ (other), /** @type {string} */ (key), off));
      const middle = (first + last) / 2, half = Math.max(Math.abs(first - last), width(link.label)) / 2 + LANE_ROOM;
      let lane = taken.findIndex((spans) => spans.every(([start, end]) => middle + half < start || end < middle - half));
      if (lane < 0) lane = taken.push([]) - 1;
      taken[lane].push([middle - half, middle + half]);
      const y = below + lane * LANE;
      lanes.set(link.id, [{ x: first, y: from.y }, { x: first, y }, { x: last, y }, { x: last, y: until.y }]);
    }
    return taken.length;
  }

  /** Where a link turns down beside a node: on the side of the tree, and of the first node, whose label is below it, beyond that label. @param {Place} at @param {Place} other @param {string} key @param {number} off @returns {number} */
  function turnOf(at, other, key, off) {
    return at.side ? at.x - at.side * off : at.x + (Math.sign(other.x - at.x) || 1) * (width(names.get(key) ?? "") / 2 + off);
  }

  /** Puts a column and all that grows from it. @param {string[]} level @param {number} first @param {-1 | 1} side @param {number} from where the column before ends */
  function place(level, first, side, from) {
    let column = level.map((key) => ({ key, row: first }));
    let row = first;
    for (const one of column) {
      one.row = row;
      row += leaves(one.key, children);
    }
    let x = from;
    while (column.length) {
      x += GAP + Math.max(...column.map(({ key }) => width(incoming.get(key) ?? ""))) + GAP + DOT;
      const next = [];
      for (const { key, row: start } of column) {
        const tall = leaves(key, children);
        places.set(key, { x: side * x, y: (start + (tall - 1) / 2) * ROW, side });
        let at = start;
        for (const child of children.get(key) ?? []) {
          next.push({ key: child, row: at });
          at += leaves(child, children);
        }
      }
      x += Math.max(...column.map(({ key }) => width(names.get(key) ?? ""))) + GAP / 2;
      column = next;
    }
  }
}

/** The rows that a node and what grows from it take. @param {string} key @param {Map<string, string[]>} children @returns {number} */
function leaves(key, children) {
  const below = children.get(key) ?? [];
  return below.length ? below.reduce((sum, child) => sum + leaves(child, children), 0) : 1;
}

/** Two lists of about the same height; one or two nodes stay on one side. @param {string[]} keys @param {Map<string, string[]>} children @returns {string[][]} */
function halves(keys, children) {
  if (keys.length <= 2) return [keys, []];
  const all = keys.map((key) => ({ key, tall: leaves(key, children) })).sort((one, other) => other.tall - one.tall);
  const sides = /** @type {string[][]} */ ([[], []]);
  const heights = [0, 0];
  for (const { key, tall } of all) {
    const side = heights[0] <= heights[1] ? 0 : 1;
    sides[side].push(key);
    heights[side] += tall;
  }
  return sides;
}
