// @ts-check
/** Deep links: what is looked at, in the part of the address after `#`, which never reaches the server. */

import { numbersOf, ranges } from "./api.js";
import { FIRST } from "./heat.js";
import { spell, unspell } from "./rows.js";
import { stepRange } from "./step_range.js";

/**
 * What a link says; absent members are left as they are.
 * @typedef {object} Place
 * @property {string} [rec]
 * @property {string} [job]    of a daemon, instead of a recording
 * @property {[number, number]} [window]
 * @property {{key: string, start: number}} [selection]
 * @property {string[]} [pins]
 * @property {string[]} [collapsed]
 * @property {{from: number, to: number, rows: string[]}} [area]   `rows` as of rows.js
 * @property {true} [flame]
 * @property {string} [filter]
 * @property {true} [empty]     empty rows show too
 * @property {true} [matches]   of rows, only those with hits of the search
 * @property {"compact" | "tall"} [height]
 * @property {string} [query]
 * @property {{regex: boolean, case: boolean}} [mode]   of the search
 * @property {string} [tab]
 * @property {{from: number, to: number, label: string}[]} [marks]
 * @property {Record<string, string[]>} [order]
 * @property {import("./state.js").Comparison} [compare]
 * @property {import("./state.js").OperatorsView} [operators]
 * @property {true} [path]      the critical path shows
 * @property {string[]} [changes]
 * @property {import("./heat.js").HeatView} [heat]
 * @property {{number: number, repeat: number}} [step]   where a rank's page begins
 * @property {string} [steps]
 * @property {number | "clock"} [zero]
 * @property {"full"} [names]
 */

/** @param {string} text */
function numbers(text) {
  return text.split("~").map(Number);
}

/** A stretch of time. @param {string | null} text @returns {[number, number] | null} */
function stretch(text) {
  const [from, to] = numbers(text ?? "");
  return Number.isFinite(from) && Number.isFinite(to) && to > from ? [from, to] : null;
}

/**
 * The order of a group's members: the group's path and theirs, as JSON.
 * @param {string} text
 * @returns {[string, string[]] | null}
 */
function orderOf(text) {
  try {
    const paths = JSON.parse(text);
    if (!Array.isArray(paths) || paths.length < 2 || paths.length > 512 || !paths.every((path) => typeof path === "string")) return null;
    return [paths[0], paths.slice(1)];
  } catch {
    return null;
  }
}

/**
 * What is compared, and how it is aligned; null where no second recording is named.
 * @param {URLSearchParams} fields
 * @returns {import("./state.js").Comparison | null}
 */
function comparisonOf(fields) {
  const other = fields.get("with");
  if (!other) return null;
  /** @type {Partial<import("./pair.js").Settings>} */
  const settings = { fit: fields.get("width") === "same" };
  const [how, value = ""] = (fields.get("align") ?? "").split(":");
  const marks = numbers(value);
  if (how === "step" && /^\d{1,9}$/.test(value)) Object.assign(settings, { align: "step", step: Number(value) });
  else if (how === "beginning") settings.align = "beginning";
  else if (how === "mark" && marks.length === 2 && marks.every(Number.isFinite)) Object.assign(settings, { align: "mark", marks });
  const place = (fields.get("place") ?? "").match(/^(\d{1,9}|none)\.(\d{1,9})$/);
  if (place) settings.place = { rank: place[1] === "none" ? null : Number(place[1]), device_index: Number(place[2]) };
  const show = fields.get("show");
  if (show === "host" || show === "all" || show === "gpu") settings.rows = show;
  const selection = (fields.get("csel") ?? "").match(/^([12])@(.+)@(-?\d+)$/);
  const area = stretch(fields.get("ca"));
  return {
    other, settings, window: stretch(fields.get("ct")),
    ...(selection ? { selection: { side: selection[1] === "1" ? 0 : 1, key: selection[2], start: Number(selection[3]) } } : {}),
    ...(area ? { area } : {}),
  };
}

/** By what who launched is asked. @type {readonly import("./state.js").OperatorsView["by"][]} */
const BY = ["operators", "shapes", "products", "modules", "classes", "stacks", "memory"];

/** Who launched what, as a link says it. @param {URLSearchParams} fields @returns {import("./state.js").OperatorsView | null} */
function operatorsOf(fields) {
  const by = BY.find((one) => one === fields.get("by"));
  if (!by) return null;
  const rank = (fields.get("of") ?? "").match(/^(\d{1,9}|none)\.\d{1,9}$/);
  const sort = (fields.get("sort") ?? "").match(/^(-?)(\w{1,40})$/);
  return {
    by,
    rank: rank ? rank[0] : "all",
    sort: sort ? { key: sort[2], descending: sort[1] === "-" } : null,
    open: numbersOf(fields.get("open"), OPENED),
    ...(fields.get("graph") === "flame" ? { flame: true } : {}),
    ...(/^\d{1,9}$/.test(fields.get("zoom") ?? "") ? { zoom: Number(fields.get("zoom")) } : {}),
  };
}

/** Ranks by steps, as a link says it. @param {URLSearchParams} fields @returns {import("./heat.js").HeatView | null} */
function heatOf(fields) {
  const measure = fields.get("measure") ?? "";
  const cell = (fields.get("cell") ?? "").match(/^((?:row)?\d{1,9}(?:\.\d{1,9})?)@(\d{1,15})(?:\.(\d{1,9}))?$/);
  const heat = {
    ...FIRST,
    ...(/^\w{1,60}$/.test(measure) ? { measure } : {}),
    group: (fields.get("group") ?? "").slice(0, 400),
    ...(fields.get("rank") === "outliers" ? { sort: /** @type {const} */ ("outliers") } : {}),
    ...(fields.get("binned") === "median" ? { binned: /** @type {const} */ ("median") } : {}),
    cell: cell ? { rank: cell[1], step: Number(cell[2]), repeat: Number(cell[3] ?? 0) } : null,
  };
  return JSON.stringify(heat) === JSON.stringify(FIRST) ? null : heat;
}

/**
 * Reads a link. What can't be understood is left out: a link is other people's input.
 * @param {string} hash
 * @returns {Place}
 */
export function parse(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  /** @type {Place} */
  const place = {};
  const rec = fields.get("rec");
  if (rec) place.rec = rec;
  const job = fields.get("job");
  if (job) place.job = job;
  const window = stretch(fields.get("t"));
  if (window) place.window = window;
  const selection = (fields.get("sel") ?? "").match(/^(.+)@(-?\d+)$/);
  if (selection) place.selection = { key: selection[1], start: Number(selection[2]) };
  const pins = fields.getAll("pin");
  if (pins.length) place.pins = pins.slice(0, 64);
  const collapsed = fields.getAll("fold");
  if (collapsed.length) place.collapsed = collapsed.slice(0, 512);
  const area = stretch(fields.get("area"));
  const on = fields.getAll("on");
  if (area && on.length) place.area = { from: area[0], to: area[1], rows: on.slice(0, AREA_ROWS) };
  if (fields.get("as") === "flame") place.flame = true;
  const filter = fields.get("rows");
  if (filter) place.filter = filter;
  if (fields.get("empty") === "shown") place.empty = true;
  if (fields.get("only") === "hits") place.matches = true;
  const height = fields.get("height");
  if (height === "compact" || height === "tall") place.height = height;
  const query = fields.get("q");
  if (query) place.query = query;
  const mode = (fields.get("qm") ?? "").split(",");
  if (mode.includes("regex") || mode.includes("case")) place.mode = { regex: mode.includes("regex"), case: mode.includes("case") };
  const tab = fields.get("tab");
  if (tab) place.tab = tab;
  const marks = fields.getAll("mark").map((text) => {
    const [begin, end] = numbers(text);
    return { from: begin, to: end ?? begin, label: "" };
  });
  const whole = marks.filter((mark) => Number.isFinite(mark.from) && Number.isFinite(mark.to));
  if (whole.length) place.marks = whole.slice(0, 64);
  const order = fields.getAll("order").map(orderOf).filter((one) => one !== null);
  const compare = comparisonOf(fields);
  if (compare) place.compare = compare;
  const operators = operatorsOf(fields);
  if (operators) place.operators = operators;
  const heat = heatOf(fields);
  if (heat) place.heat = heat;
  const step = (fields.get("step") ?? "").match(/^(\d{1,15})(?:\.(\d{1,9}))?$/);
  if (step) place.step = { number: Number(step[1]), repeat: Number(step[2] ?? 0) };
  if (fields.get("path") === "shown") place.path = true;
  const changes = fields.getAll("set").filter((text) => text.length <= 1000);
  if (changes.length) place.changes = changes.slice(0, CHANGES);
  const steps = stepRange(fields.get("steps") ?? "");
  if (steps) place.steps = steps;
  const zero = fields.get("zero");
  if (zero === "clock") place.zero = "clock";
  else if (zero && Number.isFinite(Number(zero))) place.zero = Number(zero);
  if (fields.get("names") === "full") place.names = "full";
  if (order.length) place.order = Object.fromEntries(order.slice(0, 64));
  return place;
}

/**
 * Writes a link.
 * @param {Place} place
 */
export function href(place) {
  /** @type {string[]} */
  const parts = [];
  const add = (/** @type {string} */ key, /** @type {string} */ value) =>
    parts.push(`${key}=${encodeURIComponent(value).replace(/%2F/g, "/").replace(/%40/g, "@").replace(/%2C/g, ",").replace(/%20/g, "+").replace(/%3A/g, ":")}`);
  if (place.rec) add("rec", place.rec);
  if (place.job) add("job", place.job);
  if (place.window) add("t", place.window.map((value) => Number(value.toFixed(0))).join("~"));
  if (place.selection) add("sel", `${place.selection.key}@${place.selection.start}`);
  for (const pin of place.pins ?? []) add("pin", pin);
  for (const path of place.collapsed ?? []) add("fold", path);
  if (place.area?.rows.length) {
    add("area", `${Math.round(place.area.from)}~${Math.round(place.area.to)}`);
    for (const row of place.area.rows.slice(0, AREA_ROWS)) add("on", row);
    if (place.flame) add("as", "flame");
  }
  if (place.filter) add("rows", place.filter);
  if (place.empty) add("empty", "shown");
  if (place.matches) add("only", "hits");
  if (place.height) add("height", place.height);
  if (place.query) add("q", place.query);
  if (place.query && place.mode) add("qm", [place.mode.regex && "regex", place.mode.case && "case"].filter(Boolean).join(","));
  if (place.tab && place.tab !== "timeline") add("tab", place.tab);
  for (const [path, members] of Object.entries(place.order ?? {})) if (members.length) add("order", JSON.stringify([path, ...members]));
  for (const mark of place.marks ?? []) add("mark", mark.to === mark.from ? `${Math.round(mark.from)}` : `${Math.round(mark.from)}~${Math.round(mark.to)}`);
  if (place.compare) {
    const { other, settings, window, selection, area } = place.compare;
    add("with", other);
    if (settings.align === "step") add("align", `step:${settings.step ?? 0}`);
    else if (settings.align === "mark" && settings.marks) add("align", `mark:${settings.marks.map((at) => Math.round(at ?? 0)).join("~")}`);
    else if (settings.align) add("align", settings.align);
    if (settings.fit) add("width", "same");
    if (settings.place) add("place", `${settings.place.rank ?? "none"}.${settings.place.device_index}`);
    if (settings.rows && settings.rows !== "gpu") add("show", settings.rows);
    if (window) add("ct", window.map((value) => Number(value.toFixed(0))).join("~"));
    if (selection) add("csel", `${selection.side + 1}@${selection.key}@${selection.start}`);
    if (area) add("ca", area.map((value) => Number(value.toFixed(0))).join("~"));
  }
  if (place.operators) {
    const { by, rank, sort, open, flame, zoom } = place.operators;
    add("by", by);
    if (rank !== "all") add("of", rank);
    if (sort) add("sort", `${sort.descending ? "-" : ""}${sort.key}`);
    if (open) add("open", ranges(open.slice(0, OPENED)));
    if (flame) add("graph", "flame");
    if (zoom !== undefined) add("zoom", String(zoom));
  }
  if (place.heat) {
    const { measure, group, sort, binned, cell } = place.heat;
    if (measure) add("measure", measure);
    if (group) add("group", group);
    if (sort === "outliers") add("rank", "outliers");
    if (binned === "median") add("binned", "median");
    if (cell) add("cell", `${cell.rank}@${cell.step}${cell.repeat ? `.${cell.repeat}` : ""}`);
  }
  if (place.step) add("step", place.step.repeat ? `${place.step.number}.${place.step.repeat}` : String(place.step.number));
  if (place.path) add("path", "shown");
  for (const change of (place.changes ?? []).slice(0, CHANGES)) add("set", change);
  if (place.steps) add("steps", place.steps);
  if (place.zero !== undefined) add("zero", String(place.zero));
  if (place.names) add("names", place.names);
  return `#${parts.join("&")}`;
}

/** Runs of rows of an area that a link says at most. */
const AREA_ROWS = 256;
/** Changes that are tried together, at most. */
const CHANGES = 64;
/** Open places of a tree that a link says at most. */
const OPENED = 4096;
/** How long the view has to rest before it becomes an entry that Back leads to. */
const REST_MS = 500;

/** Keeps the address as the page is, and the page as the address says when Back is pressed. */
export class UrlKeeper {
  /**
   * @param {string} rec
   * @param {import("./main.js").Context} context
   * @param {() => import("./timeline.js").Timeline | null} timeline
   */
  constructor(rec, context, timeline) {
    this.rec = rec;
    this.context = context;
    this.timeline = timeline;
    this.timer = 0;
    this.applying = false;
    /** What is shown next is still where a link leads: Back leaves it. */
    this.arriving = false;
    context.state.subscribe(
      [
        "window",
        "selection",
        "area",
        "flame",
        "pins",
        "collapsed",
        "filter",
        "rowHeight",
        "query",
        "searchMode",
        "tab",
        "marks",
        "order",
        "path",
        "changes",
        "compare",
        "operators",
        "heat",
        "steps",
        "zero",
        "names",
      ],
      () => this.later(),
    );
    addEventListener("popstate", () => void this.apply(parse(location.hash)));
    addEventListener("hashchange", () => {
      if (parse(location.hash).rec !== this.rec) location.reload();
    });
  }

  /** The link to what is shown now. @returns {string} */
  current() {
    const state = this.context.state.get();
    const { begin, end } = this.context.info;
    const timeline = this.timeline();
    const row = state.selection && timeline?.rows[state.selection.row];
    const [from, to] = state.window;
    const whole = from <= begin && to >= end;
    return href({
      rec: this.rec, window: whole || state.follow ? undefined : [Math.round(from), Math.max(Math.round(from) + 1, Math.round(to))],
      selection: row && state.selection ? { key: row.key, start: state.selection.start } : undefined,
      area: state.area && timeline ? { from: state.area.from, to: state.area.to, rows: spell(timeline.rows, state.area.rows) } : undefined,
      flame: state.flame || undefined,
      empty: !state.filter.hideEmpty || undefined,
      matches: state.filter.onlyMatches || undefined,
      height: state.rowHeight === "normal" ? undefined : state.rowHeight,
      mode: state.searchMode.regex || state.searchMode.case ? state.searchMode : undefined,
      pins: state.pins, collapsed: state.collapsed, filter: state.filter.text, query: state.query, tab: state.tab, marks: state.marks, order: state.order,
      compare: state.tab === "compare" ? state.compare ?? undefined : undefined,
      operators: state.tab === "operators" ? state.operators ?? undefined : undefined,
      heat: state.tab === "ranks" ? state.heat ?? undefined : undefined,
      path: state.path || undefined, changes: state.changes, steps: state.steps,
      zero: state.zero ?? undefined, names: state.names === "full" ? "full" : undefined,
    });
  }

  /** Marks the entry that the page was opened with, so that Back leads to it from whatever is done first, however soon. */
  begin() {
    history.replaceState({ page: true }, "", this.current());
  }

  /** @private */
  later() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.write(), REST_MS);
  }

  /** Writes what is shown now, before the page goes elsewhere. */
  write() {
    clearTimeout(this.timer);
    const link = this.current();
    if (link === location.hash || (link === "#" && !location.hash)) return;
    // The first entry, and what follows a growing recording, replace what is there: Back should leave the page.
    const now = parse(location.hash);
    // So does what is compared first when nothing was chosen yet.
    const found = now.tab === "compare" && !now.compare;
    const first = found || this.arriving || !location.hash || this.context.state.get().follow || history.state?.page !== true;
    this.arriving = false;
    history[first ? "replaceState" : "pushState"]({ page: true }, "", link);
  }

  /** Shows what a link says. @param {Place} place */
  async apply(place) {
    const { state, api, info } = this.context;
    const timeline = this.timeline();
    state.set({
      pins: place.pins ?? [],
      collapsed: place.collapsed ?? [],
      filter: { text: place.filter ?? "", hideEmpty: !place.empty, onlyMatches: Boolean(place.matches) },
      rowHeight: place.height ?? "normal",
      query: place.query ?? "",
      searchMode: place.mode ?? { regex: false, case: false },
      flame: Boolean(place.flame),
      tab: place.tab && this.context.has(place.tab) ? place.tab : this.context.info.by_rank ? "ranks" : "timeline",
      marks: (place.marks ?? []).map((mark) => ({ ...mark, kept: true })),
      order: place.order ?? {},
      path: Boolean(place.path),
      changes: place.changes ?? [],
      ...(place.compare ? { compare: place.compare } : {}),
      ...(place.tab === "operators" ? { operators: place.operators ?? null } : {}),
      ...(place.tab === "ranks" || this.context.info.by_rank ? { heat: place.heat ?? null } : {}),
      steps: place.steps ?? "",
      zero: place.zero ?? null,
      names: place.names ?? "short",
    });
    if (timeline) {
      const [from, to] = place.window ?? [info.begin, info.end];
      timeline.moveTo(from, to);
    }
    const area = this.areaOf(place);
    if (place.selection) {
      try {
        const ref = await api.sliceAt(place.selection.key, place.selection.start);
        // Beside an area it is what the flame graph or the table has led to, and details are the area's.
        if (area) state.set({ area, selection: ref });
        else timeline?.select(ref, { reveal: false });
        if (ref) timeline?.reveal(ref.row);
      } catch {
        // A link to something that this recording has not.
      }
    } else {
      state.set({ area });
      timeline?.select(null);
    }
    clearTimeout(this.timer);
  }

  /** The area that a link names; the one that is shown, where it is the same. @private @param {Place} place */
  areaOf({ area }) {
    const now = this.context.state.get().area;
    const { rows = [] } = this.timeline() ?? {};
    if (!area) return null;
    if (
      now &&
      Math.round(now.from) === area.from &&
      Math.round(now.to) === area.to &&
      JSON.stringify(spell(rows, now.rows)) === JSON.stringify(area.rows)
    )
      return now;
    const chosen = unspell(rows, area.rows);
    return chosen.length ? { from: area.from, to: area.to, rows: chosen } : null;
  }
}
