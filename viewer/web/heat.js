// @ts-check
/** Ranks by steps as a picture: in which order rows stand, where they lie, and which colour a value has. */

import { middle } from "./format.js";

/** @typedef {import("../types/analysis.js").RankOverview} Overview */
/** @typedef {import("../types/analysis.js").RankCells} Cells */
/** @typedef {import("../types/analysis.js").RankRow} RankRow */

/**
 * What is shown: which measure ("": the usual one), what rows are put together by ("", "host", "stage", or a kind of
 * communicator), how they are sorted, what a cell of several steps shows, and which cell is chosen.
 * @typedef {{measure: string, group: string, sort: "rank" | "outliers", binned: "max" | "median",
 *   cell: {rank: string, step: number, repeat: number} | null}} HeatView
 */

/** What shows while nothing was chosen. @type {HeatView} */
export const FIRST = { measure: "", group: "", sort: "rank", binned: "max", cell: null };

/** From dark to light (viridis): the order shows without seeing hues. */
const STOPS = [
  [68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121], [110, 206, 88], [181, 222, 43], [253, 231, 37],
];

/**
 * The colour of a share from 0 to 1.
 * @param {number} share
 * @returns {[number, number, number]}
 */
export function colourOf(share) {
  const at = Math.max(0, Math.min(1, share)) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(at));
  const mixed = STOPS[low].map((value, index) => Math.round(value + (at - low) * (STOPS[low + 1][index] - value)));
  return [mixed[0], mixed[1], mixed[2]];
}

/** Values are at least so far apart, as a share of the greatest: noise is not to look like a difference. */
const LEAST_RANGE = 0.02;

/**
 * From which value to which the colours go. A few that are far above the rest do not make all others one colour: then `cut` says that the last
 * colour stands for more too.
 * @param {(number | null)[][]} values
 * @returns {{low: number, high: number, cut: boolean} | null} null without a value
 */
export function scaleOf(values) {
  const all = [];
  for (const row of values) for (const value of row) if (value !== null) all.push(value);
  if (!all.length) return null;
  const order = Float64Array.from(all).sort();
  let low = order[0];
  const most = order[order.length - 1];
  const usual = order[Math.floor((order.length - 1) * 0.99)];
  const cut = usual > 0 && most > 2 * usual;
  const high = cut ? 2 * usual : most;
  if (high - low < LEAST_RANGE * Math.abs(high)) low = high - LEAST_RANGE * Math.abs(high);
  return { low, high: high > low ? high : low + 1, cut };
}

/** @param {number} value @param {{low: number, high: number}} scale */
export const shareOf = (value, { low, high }) => (value - low) / (high - low);

/** A device of a rank in a link, or the place of a row without a rank. @param {RankRow} row @param {number} place */
export const idOf = (row, place) => (row.rank === null ? `row${place}` : row.device_index ? `${row.rank}.${row.device_index}` : String(row.rank));

/**
 * What rows can be put together by. Communicators of one name, or without one of the same number of ranks, are one kind.
 * @param {Overview} overview
 * @returns {{id: string, title: string}[]}
 */
export function groupings(overview) {
  const hosts = new Set(overview.rows.map((row) => row.host).filter((host) => host));
  const stages = new Set(overview.rows.map((row) => row.stage).filter((stage) => stage !== null));
  /** @type {Map<string, {title: string, count: number}>} */
  const kinds = new Map();
  for (const one of overview.communicators) {
    const id = kindOf(one);
    const known = kinds.get(id);
    if (known) known.count += 1;
    else kinds.set(id, { title: one.name !== null ? `Communicator ${middle(one.name, 28)}` : `Communicator of ${one.ranks ?? "?"} ranks`, count: 1 });
  }
  return [
    { id: "", title: "All ranks" },
    ...(hosts.size > 1 ? [{ id: "host", title: `Host (${hosts.size})` }] : []),
    ...(stages.size > 1 ? [{ id: "stage", title: `Pipeline stage (${stages.size})` }] : []),
    ...[...kinds].filter(([, { count }]) => count > 1).map(([id, { title, count }]) => ({ id, title: `${title} (${count})` })),
  ];
}

/** @param {import("../types/analysis.js").RankCommunicator} one */
const kindOf = (one) => (one.name !== null ? `name:${one.name}` : `ranks:${one.ranks ?? ""}`);

/**
 * Rows in the order in which they stand, by group.
 * @param {Overview} overview
 * @param {{group: string, sort: "rank" | "outliers"}} view
 * @param {(number | null)[]} distances   by row: how far it stands out
 * @returns {{title: string, rows: number[]}[]}
 */
export function arranged(overview, { group, sort }, distances) {
  /** @type {Map<string, {title: string, rows: number[]}>} */
  const groups = new Map();
  const of = groupsOf(overview, group);
  overview.rows.forEach((_, row) => {
    const { key, title } = of[row];
    const known = groups.get(key);
    if (known) known.rows.push(row);
    else groups.set(key, { title, rows: [row] });
  });
  const all = [...groups.values()];
  if (sort === "outliers") {
    // What has no value comes last.
    const far = (/** @type {number} */ row) => distances[row] ?? -1;
    for (const { rows } of all) rows.sort((a, b) => far(b) - far(a) || a - b);
    all.sort((a, b) => far(b.rows[0]) - far(a.rows[0]) || a.rows[0] - b.rows[0]);
  } else all.sort((a, b) => a.rows[0] - b.rows[0]);
  return all;
}

/** By row: its group, and what that is called. @param {Overview} overview @param {string} group @returns {{key: string, title: string}[]} */
function groupsOf(overview, group) {
  const plain = (/** @type {string} */ title) => ({ key: title, title });
  if (group === "host") return overview.rows.map((row) => plain(row.host || "no host known"));
  if (group === "stage") return overview.rows.map((row) => plain(row.stage === null ? "no stage" : `stage ${row.stage}`));
  const found = overview.rows.map(() => plain(group ? "in none of these" : ""));
  const of = group ? overview.communicators.filter((one) => kindOf(one) === group) : [];
  // Of several of one kind that a rank is in the first counts.
  for (const one of [...of].reverse()) {
    const title = `${one.name ?? "communicator"} of rank ${overview.rows[one.rows[0]]?.rank ?? "?"}`;
    for (const row of one.rows) found[row] = { key: one.communicator, title };
  }
  return found;
}

/** A row, and where it lies. @typedef {{row: number, top: number, height: number, group: number}} Line */

/** Height of a row: so many pixels at least and at most, and of all together about so many. */
const LEAST_ROW = 2;
const MOST_ROW = 22;
const ROOM = 560;
/** With outliers first so many rows are so high, however many there are. */
const TALL_ROWS = 16;
const TALL = 14;
/** Between groups. */
const GAP = 4;
/** What a canvas can hold, with two pixels each. */
const MOST_HEIGHT = 16000;

/**
 * Where rows lie: the top and height of each, and how high all are.
 * @param {{title: string, rows: number[]}[]} groups
 * @param {boolean} [outliers] whether the first are those that stand out
 * @returns {{lines: Line[], rowHeight: number, height: number, left_out: number}}
 */
export function laid(groups, outliers = false) {
  const count = groups.reduce((sum, { rows }) => sum + rows.length, 0);
  const rowHeight = count * LEAST_ROW > MOST_HEIGHT ? 1 : Math.max(LEAST_ROW, Math.min(MOST_ROW, Math.floor(ROOM / Math.max(1, count))));
  const gap = groups.length > 1 ? Math.min(GAP, Math.max(1, rowHeight)) : 0;
  /** @type {Line[]} */
  const lines = [];
  let top = 0;
  groups.forEach(({ rows }, group) => {
    if (group > 0) top += gap;
    for (const row of rows) {
      const height = outliers && lines.length < TALL_ROWS ? Math.max(TALL, rowHeight) : rowHeight;
      if (top + height > MOST_HEIGHT) break;
      lines.push({ row, top, height, group });
      top += height;
    }
  });
  return { lines, rowHeight, height: top, left_out: count - lines.length };
}

/**
 * The line at a height; the next one where it is between two groups.
 * @param {Line[]} lines
 * @param {number} y
 */
export function lineAt(lines, y) {
  let low = 0;
  let high = lines.length;
  while (low < high) {
    const at = (low + high) >> 1;
    if (lines[at].top + lines[at].height <= y) low = at + 1;
    else high = at;
  }
  return low < lines.length && y >= 0 ? low : -1;
}

/**
 * The measure of that name; without one, exposed communication.
 * @param {Overview} overview
 * @param {string} wanted
 */
export function measureOf(overview, wanted) {
  const called = (/** @type {string} */ one) => overview.measures.find(({ name }) => name === one);
  return called(wanted) ?? called("communication_exposed_ns") ?? overview.measures[0];
}

/** "step 7", or "steps 7 to 10". @param {Overview} overview @param {[number, number]} column */
export function columnName(overview, [first, last]) {
  const name = (/** @type {number} */ at) => overview.steps[at]?.name ?? String(at);
  return first === last ? name(first) : `${name(first)} to ${name(last)}`;
}

/** What a row is that shows no cells. @param {RankRow} row */
export const stateWords = (row) =>
  ({
    missing: "not here: the job has this rank, and no recording of it was read",
    reading: "not read yet",
    nothing: "ran nothing on a GPU",
    here: row.steps ? "" : "has no steps",
  })[row.state];
