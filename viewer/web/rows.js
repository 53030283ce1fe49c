// @ts-check
/**
 * The tree of rows and where each is drawn: ranks, their GPUs with streams, threads, communicators, counters.
 * Pure: the document is not touched here.
 */

import { bytes as formatBytes, digits } from "./format.js";

/**
 * One row as the server says it.
 * @typedef {object} Row
 * @property {number} row
 * @property {string} key
 * @property {"slices" | "counter"} type
 * @property {string} what
 * @property {string[]} path
 * @property {string} label
 * @property {string} [detail]
 * @property {number} lane
 * @property {number} lanes
 * @property {number} slices
 * @property {number | null} rank
 * @property {number | null} device
 * @property {string} [unit]
 * @property {number} [min]
 * @property {number} [max]
 * @property {number} [begin]
 * @property {number} [end]
 *
 * @typedef {object} Node
 * @property {string} path        of this group, joined: what links and pins say
 * @property {string} label
 * @property {string} detail
 * @property {number} depth
 * @property {Node[]} children
 * @property {Row[]} lanes        rows of this very thing
 * @property {Row | null} summary the server's own row for the whole group
 * @property {boolean} folded     how it starts
 * @property {"rank" | "device" | "host" | "communicators" | "counter" | "other"} sort
 * @property {number | null} rank   where all its rows are of one
 *
 * What is drawn in one line of the timeline.
 * @typedef {object} Item
 * @property {string} key
 * @property {"group" | "lane"} type
 * @property {Node} node
 * @property {Row | null} row
 * @property {number[]} rows      rows drawn into it: one lane, or those that a folded group sums up
 * @property {string} label
 * @property {string} detail
 * @property {string} hint        its whole place, in words
 * @property {boolean} folded
 * @property {boolean} foldable
 * @property {number} depth
 * @property {number} y
 * @property {number} height
 * @property {number} inset       blank above, so that groups part
 * @property {boolean} counter
 * @property {boolean} pinned
 */

/** Lines that a first look shows at most; threads, counters and later ranks are folded until they are so few. */
const FIRST_LOOK = 56;
/** So many counters stay where they are. */
const COUNTERS_ALONE = 2;
/** So many communicators are groups of their own. */
const PROMOTED = 4;
/** Rows that a folded group sums up at most. */
const SUMMED_AT_MOST = 32;
const HEIGHTS = {
  compact: { lane: 12, inner: 8, counter: 18, group: 17 },
  normal: { lane: 20, inner: 14, counter: 30, group: 22 },
  tall: { lane: 32, inner: 22, counter: 52, group: 26 },
};

/** What stands beside a row's name. @param {Row} row */
function detailOf(row) {
  if (row.type === "counter") return rangeOf(row);
  // The hash of a communicator is the same on all its lines, and tells nobody anything.
  return row.what === "communicator" ? "" : (row.detail ?? "");
}

/** What a counter reaches: "up to 700 W". @param {Row} row */
function rangeOf({ min, max, unit }) {
  if (typeof max !== "number") return "";
  const bytes = unit === "B" || unit === "B/s" || unit === "bytes";
  const text = (/** @type {number} */ value) => (bytes ? formatBytes(value) + (unit === "B/s" ? "/s" : "") : `${digits(value)}${unit ? `\u202f${unit}` : ""}`);
  return min === max ? `always ${text(max)}` : `up to ${text(max)}`;
}

/** @param {Row} row @returns {Node["sort"]} */
function sortOf(row) {
  if (row.what === "communicator") return "communicators";
  if (row.what === "stream" || row.what === "summary") return "device";
  if (row.type === "counter") return "counter";
  return row.what === "thread" || row.what === "nvtx" ? "host" : "other";
}

/**
 * @param {Row[]} rows in display order
 * @returns {Node} the root, which is not drawn
 */
export function buildTree(rows) {
  /** @type {Node} */
  const root = { path: "", label: "", detail: "", depth: -1, children: [], lanes: [], summary: null, folded: false, sort: "other", rank: null };
  for (const row of rows) {
    let node = root;
    for (const label of row.path.length ? row.path : [row.label]) {
      const path = node.path ? `${node.path}/${label}` : label;
      let child = node.children.find((other) => other.path === path);
      if (!child) {
        child = { path, label, detail: "", depth: node.depth + 1, children: [], lanes: [], summary: null, folded: false, sort: sortOf(row), rank: row.rank };
        node.children.push(child);
      }
      node = child;
    }
    if (row.what === "summary") node.summary = row;
    else {
      node.lanes.push(row);
      node.detail ||= detailOf(row);
    }
  }
  // A few communicators stand for themselves; many are kept together.
  root.children = root.children.flatMap((child) =>
    child.sort === "communicators" && child.lanes.length === 0 && child.children.length <= PROMOTED ? child.children : [child],
  );
  for (const child of root.children) {
    gather(child);
    tidy(child, 0);
  }
  foldForFirstLook(root);
  return root;
}

/**
 * Puts counters that hang beside streams into a group of their own, which starts folded: they are many and say little at first.
 * @param {Node} node
 */
function gather(node) {
  for (const child of node.children) gather(child);
  const counters = node.children.filter((child) => child.sort === "counter" && child.children.length === 0);
  if (counters.length <= COUNTERS_ALONE || counters.length === node.children.length) return;
  node.children = node.children.filter((child) => !counters.includes(child));
  node.children.push({
    path: `${node.path}/counters`,
    label: "counters",
    detail: "",
    depth: 0,
    children: counters,
    lanes: [],
    summary: null,
    folded: true,
    sort: "counter",
    rank: node.rank,
  });
}

/**
 * Takes out levels that say nothing: a rank's only GPU, a group of one.
 * @param {Node} node
 * @param {number} depth
 */
function tidy(node, depth) {
  node.depth = depth;
  if (depth === 0 && node.children.length > 0 && node.rank !== null && node.sort !== "communicators") node.sort = "rank";
  if (node.sort === "rank") {
    const devices = node.children.filter((child) => child.children.some((leaf) => leaf.sort === "device") || child.summary);
    if (devices.length === 1 && node.lanes.length === 0) {
      const [device] = devices;
      node.detail = [device.label, device.detail].filter(Boolean).join(" · ");
      node.children = node.children.flatMap((child) => (child === device ? child.children : [child]));
      node.summary ??= device.summary;
    }
  }
  while (node.children.length === 1 && node.lanes.length === 0 && !node.summary && depth > 0) {
    const [only] = node.children;
    node.label = `${node.label} · ${only.label}`;
    node.children = only.children;
    node.lanes = only.lanes;
    node.detail ||= only.detail;
  }
  for (const child of node.children) tidy(child, depth + 1);
}

/** @param {Node} node @returns {number} lines that it takes when nothing new is folded */
function lines(node) {
  if (node.folded) return 1;
  let sum = node.children.length > 0 ? 1 : 0;
  sum += node.lanes.length;
  for (const child of node.children) sum += lines(child);
  return sum;
}

/** @param {Node} root */
function foldForFirstLook(root) {
  const ranks = root.children.filter((node) => node.sort === "rank");
  const all = [...walk(root)];
  const total = () => lines(root);
  // Threads with nothing but calls say little at first; those with ranges say what the program was doing.
  const calls = all.filter((node) => node.sort === "host" && node.lanes.length > 0 && node.lanes.every((row) => row.what === "thread"));
  // Groups of nothing but counters are many lines that say little at first.
  for (const node of all) if (node.children.length > 0 && rowsOf(node).every((row) => row.type === "counter")) node.folded = true;
  const steps = [
    () => calls.forEach((node) => (node.folded = node.lanes.length > 2)),
    () => all.filter((node) => node.sort === "host" && node.depth === 1).forEach((node) => (node.folded = true)),
  ];
  steps[0]();
  for (const step of steps.slice(1)) if (total() > FIRST_LOOK) step();
  for (let at = ranks.length - 1; at >= 1 && total() > FIRST_LOOK; at -= 1) ranks[at].folded = true;
}

/** @param {Node} node @returns {Generator<Node>} */
export function* walk(node) {
  for (const child of node.children) {
    yield child;
    yield* walk(child);
  }
}

/** Every row of a group. @param {Node} node @returns {Row[]} */
export function rowsOf(node) {
  return [...node.lanes, ...node.children.flatMap(rowsOf)];
}

/**
 * Rows that a folded group draws in its one line: the server's own, else its streams, else all slices.
 * @param {Node} node
 * @returns {number[]}
 */
function summed(node) {
  if (node.summary) return [node.summary.row];
  const all = rowsOf(node).filter((row) => row.type === "slices");
  const streams = all.filter((row) => row.what === "stream");
  const outer = all.filter((row) => row.lane === 0);
  return (streams.length > 0 ? streams : outer.length > 0 ? outer : all).slice(0, SUMMED_AT_MOST).map((row) => row.row);
}

/**
 * @typedef {object} LayoutOptions
 * @property {string[]} collapsed   groups that differ from how they start
 * @property {string[]} pins
 * @property {string} text          rows are kept whose words hold this
 * @property {boolean} hideEmpty
 * @property {Set<number> | null} only   rows to keep (those with hits), or all
 * @property {"compact" | "normal" | "tall"} rowHeight
 * @property {Record<string, string[]>} [order]   paths of groups in the order that the user chose, by the path of what they are in
 */

/**
 * Where everything is drawn.
 * @param {Node} root
 * @param {LayoutOptions} options
 * @returns {{pinned: Item[], pinnedHeight: number, items: Item[], height: number, byRow: Map<number, Item>}} `byRow`: in which item a row is,
 *   if only as part of a folded group
 */
export function layout(root, options) {
  const sizes = HEIGHTS[options.rowHeight];
  const toggled = new Set(options.collapsed);
  const text = options.text.trim().toLowerCase();
  /** @type {Item[]} */
  const items = [];
  /** @type {Map<string, Item>} */
  const byKey = new Map();

  /** @param {Node} node @param {Row} row @param {string} above */
  const shown = (node, row, above) => {
    if (options.hideEmpty && row.type === "slices" && row.slices === 0) return false;
    if (options.only && !options.only.has(row.row)) return false;
    return !text || above.includes(text) || `${row.label} ${row.detail ?? ""}`.toLowerCase().includes(text);
  };

  /**
   * @param {Node} node
   * @param {string} above words of the groups that it is in, lower case
   * @param {string} place the same, as they are
   * @param {boolean} drawn whether it shows, or is only looked through for pins
   * @returns {boolean} whether anything of it is kept
   */
  const visit = (node, above, place, drawn) => {
    const words = `${above} ${node.label} ${node.detail}`.toLowerCase();
    const hint = place ? `${place} › ${node.label}` : node.label;
    const folded = node.folded !== toggled.has(node.path) && !text && !options.only;
    const lanes = node.lanes.filter((row) => shown(node, row, words));
    const group = node.children.length > 0;
    const foldable = group || node.lanes.length > 1;
    const start = items.length;
    /** @type {Item | null} */
    let head = null;
    if (group || (folded && foldable)) {
      head = {
        key: node.path, type: "group", node, row: null, rows: folded || !group ? summed(node) : [], label: node.label, detail: node.detail, hint,
        folded, foldable, depth: node.depth, y: 0, height: sizes.group, inset: node.depth === 0 ? 5 : 0, counter: false, pinned: false,
      };
      byKey.set(head.key, head);
      if (drawn) items.push(head);
    }
    const inside = drawn && !folded;
    let any = false;
    lanes.forEach((row, at) => {
      any = true;
      const counter = row.type === "counter";
      /** @type {Item} */
      const item = {
        key: row.key,
        type: "lane",
        node,
        row,
        rows: [row.row],
        label: at === 0 ? (group ? row.label : node.label) : "",
        detail: at === 0 ? detailOf(row) : "",
        hint: lanes.length > 1 ? `${hint} › lane ${row.lane + 1} of ${row.lanes}` : hint,
        folded: false,
        foldable: foldable && !group && at === 0,
        depth: node.depth + (group ? 1 : 0),
        y: 0,
        height: counter ? sizes.counter : at === 0 ? sizes.lane : sizes.inner,
        inset: node.depth === 0 && at === 0 && !group ? 5 : 0,
        counter,
        pinned: false,
      };
      byKey.set(item.key, item);
      if (inside) items.push(item);
    });
    for (const child of ordered(node, options.order)) any = visit(child, words, hint, inside) || any;
    if (!any) items.length = start;
    return any;
  };
  for (const node of ordered(root, options.order)) visit(node, "", "", true);

  const place = (/** @type {Item[]} */ list) => {
    let y = 0;
    for (const item of list) {
      y += item.inset;
      item.y = y;
      y += item.height + 1;
    }
    return y;
  };
  const pinned = options.pins.flatMap((key) => {
    const item = byKey.get(key);
    if (!item) return [];
    const rows = item.rows.length ? item.rows : summed(item.node);
    return [{ ...item, rows, label: item.hint, detail: "", depth: 0, inset: 0, folded: true, foldable: false, pinned: true }];
  });
  /** @type {Map<number, Item>} */
  const byRow = new Map();
  for (const item of items) {
    if (item.row) byRow.set(item.row.row, item);
    else if (item.folded) for (const row of rowsOf(item.node)) byRow.set(row.row, item);
  }
  return { pinned, pinnedHeight: pinned.length ? place(pinned) + 4 : 0, items, height: place(items) + 24, byRow };
}

/**
 * What is in a group, in the order that the user chose; what is not in that order keeps its place behind.
 * @param {Node} node
 * @param {Record<string, string[]> | undefined} order
 */
export function ordered(node, order) {
  const chosen = order?.[node.path];
  if (!chosen) return node.children;
  const place = new Map(chosen.map((path, at) => [path, at]));
  return [...node.children].sort(
    (a, b) => (place.get(a.path) ?? Infinity) - (place.get(b.path) ?? Infinity) || node.children.indexOf(a) - node.children.indexOf(b),
  );
}

/**
 * The group that holds another.
 * @param {Node} root
 * @param {Node} node
 * @returns {Node | null}
 */
export function parentOf(root, node) {
  if (root.children.includes(node)) return root;
  for (const child of root.children) {
    const found = parentOf(child, node);
    if (found) return found;
  }
  return null;
}

/** What stands between the first and the last key of rows that follow each other. */
const THROUGH = "..";

/**
 * Rows by their keys, as a link says them: those that follow each other by the first and the last.
 * @param {Row[]} rows all of them
 * @param {number[]} chosen
 * @returns {string[]}
 */
export function spell(rows, chosen) {
  const wanted = new Set(chosen);
  const slices = rows.filter((row) => row.type === "slices");
  /** @type {string[]} */
  const texts = [];
  for (let at = 0; at < slices.length; at += 1) {
    if (!wanted.has(slices[at].row)) continue;
    let last = at;
    while (last + 1 < slices.length && wanted.has(slices[last + 1].row)) last += 1;
    texts.push(last === at ? slices[at].key : `${slices[at].key}${THROUGH}${slices[last].key}`);
    at = last;
  }
  return texts;
}

/**
 * The rows that a link names; what this recording does not have is left out.
 * @param {Row[]} rows
 * @param {string[]} texts
 * @returns {number[]}
 */
export function unspell(rows, texts) {
  const slices = rows.filter((row) => row.type === "slices");
  const places = new Map(slices.map((row, at) => [row.key, at]));
  const found = texts.flatMap((text) => {
    const one = places.get(text);
    if (one !== undefined) return [slices[one].row];
    // A key may hold two dots itself.
    for (let at = text.indexOf(THROUGH); at >= 0; at = text.indexOf(THROUGH, at + 1)) {
      const [from, to] = [places.get(text.slice(0, at)), places.get(text.slice(at + THROUGH.length))];
      if (from !== undefined && to !== undefined) return slices.slice(from, to + 1).map((row) => row.row);
    }
    return [];
  });
  return [...new Set(found)];
}

/**
 * Groups over a row that would have to be open for it to show.
 * @param {Node} root
 * @param {number} row
 * @returns {Node[]}
 */
export function groupsOver(root, row) {
  for (const child of root.children) {
    if (child.lanes.some((lane) => lane.row === row)) return [child];
    const deeper = groupsOver(child, row);
    if (deeper.length) return [child, ...deeper];
  }
  return [];
}
