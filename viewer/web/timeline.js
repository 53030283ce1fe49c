// @ts-check
/** The timeline, and what can be done with it: moving, selecting, folding rows. Keys and pointers are in input.js. */

import { Area } from "./area.js";
import { PathLine } from "./critical.js";
import { Details } from "./details.js";
import { Input } from "./input.js";
import { Overview } from "./overview.js";
import { groupsOver, ordered, parentOf, rowsOf, walk } from "./rows.js";
import { Search } from "./search.js";
import { REACH, Stage } from "./stage.js";
import { Tooltip } from "./tooltip.js";

/** @typedef {import("./rows.js").Item} Item */
/** @typedef {import("./state.js").Ref} Ref */
/** @typedef {import("./stage.js").Hit} Hit */

/** Shortest window, ns. */
const LEAST_SPAN = 20;
/** What is gone to by search should be so wide at least, CSS pixels. */
const LEGIBLE = 6;

export class Timeline extends Stage {
  /** Statistics of areas. @type {Area} */
  area = /** @type {any} */ (null);

  /**
   * @param {import("./main.js").Context} context
   * @param {HTMLElement} container
   * @param {HTMLElement} overview
   * @param {HTMLElement} details
   */
  constructor(context, container, overview, details) {
    super(context, container);
    this.overview = new Overview(this, overview);
    this.addParts(details);
    this.input = new Input(this);
    this.state.subscribe(["window"], ({ window }) => {
      // Someone else moved it: a link, a table, Back.
      if (window[0] !== this.shown[0] || window[1] !== this.shown[1]) this.moveTo(window[0], window[1]);
    });
  }

  /** What tells more of the rows than they show. @param {HTMLElement} details */
  addParts(details) {
    this.details = new Details(this, details);
    this.area = new Area(this);
    this.search = new Search(this);
    this.tooltip = new Tooltip(this);
    this.path = new PathLine(this);
  }

  // Moving.

  /**
   * Sets where the window goes, within reason.
   * @param {number} from
   * @param {number} to
   * @param {{glide?: boolean, user?: boolean}} [options]
   */
  moveTo(from, to, { glide = true, user = false } = {}) {
    const [begin, end] = this.extent;
    const whole = Math.max(1000, end - begin);
    const span = Math.min(Math.max(LEAST_SPAN, to - from), whole * 1.5);
    let middle = (from + to) / 2;
    // Half of the window may lie outside, so that either end can be looked at in the middle.
    middle = Math.min(Math.max(middle, begin), Math.max(begin, end));
    if (user && this.state.get().follow) this.state.set({ follow: false });
    this.aim(middle - span / 2, middle + span / 2, glide);
  }

  /** @param {number} factor less than 1 zooms in @param {number} [x] CSS pixels, kept where it is @param {boolean} [glide] */
  zoom(factor, x = this.pointer?.x ?? this.plotWidth / 2, glide = true) {
    const [a, b] = this.target;
    const share = x / this.plotWidth;
    const at = a + share * (b - a);
    const whole = Math.max(1000, this.extent[1] - this.extent[0]);
    const span = Math.min(Math.max(LEAST_SPAN, (b - a) * factor), whole * 1.5);
    this.moveTo(at - share * span, at + (1 - share) * span, { glide, user: true });
  }

  /** @param {number} share of the window @param {boolean} [glide] */
  pan(share, glide = true) {
    const [a, b] = this.target;
    this.moveTo(a + share * (b - a), b + share * (b - a), { glide, user: true });
  }

  home() {
    const [begin, end] = this.extent;
    const margin = 0.01 * (end - begin);
    this.moveTo(begin - margin, end + margin, { user: true });
  }

  /** To the selection, the area or the mark; a second time, it fills the view. */
  focus() {
    const { selection, area } = this.state.get();
    const on = area ?? (selection ? { from: selection.start, to: selection.start + Math.max(1, selection.duration) } : null);
    if (!on) return this.home();
    const span = on.to - on.from;
    const [a, b] = this.target;
    const roomy = 2 * span;
    const already = Math.abs(b - a - (span + 2 * roomy)) < 0.05 * (b - a) && Math.abs((a + b) / 2 - (on.from + on.to) / 2) < 0.05 * (b - a);
    const margin = already || area ? 0.02 * span : roomy;
    this.moveTo(on.from - margin, on.to + margin, { user: true });
    if (selection) this.reveal(selection.row);
  }

  /** Scrolls a row into view, opening what hides it. @param {number} row */
  reveal(row) {
    const hidden = groupsOver(this.root, row).filter((node) => node.folded !== this.state.get().collapsed.includes(node.path));
    if (hidden.length && !this.layout.pinned.some((item) => item.row?.row === row)) {
      const collapsed = new Set(this.state.get().collapsed);
      for (const { path } of hidden) collapsed.has(path) ? collapsed.delete(path) : collapsed.add(path);
      this.state.set({ collapsed: [...collapsed] });
      this.place();
    }
    // The drawer may be about to open and take some of the room: where to scroll is known after measuring.
    this.pendingReveal = row;
    this.invalidate();
  }

  /** @param {number} rank @param {number} [device] */
  revealRank(rank, device) {
    const row = this.rows.find(
      (other) => other.rank === rank && (device === undefined || device === null || other.device === device) && other.type === "slices",
    );
    const item =
      row &&
      (this.layout.items.find(({ node, type }) => type === "group" && node.sort === "rank" && node.rank === rank) ??
        this.layout.byRow.get(row.row));
    if (item) this.scrollTo(item);
  }

  // Selecting.

  /**
   * Selects one slice; `reveal` brings it into view, `legible` closer where it would be a hair.
   * @param {Ref | null} ref
   * @param {{reveal?: boolean, legible?: boolean}} [options]
   */
  select(ref, { reveal = false, legible = false } = {}) {
    this.state.set({ selection: ref, area: ref ? null : this.state.get().area });
    if (ref) this.stand(ref.row);
    this.details.show(ref);
    if (ref && reveal) {
      this.reveal(ref.row);
      const [a, b] = this.target;
      const end = ref.start + ref.duration;
      const hair = legible && (ref.duration / (b - a)) * this.plotWidth < LEGIBLE;
      if (ref.start < a || end > b || hair) {
        const span = hair ? Math.max(LEAST_SPAN, (ref.duration * this.plotWidth) / LEGIBLE / 4) : Math.max(b - a, 3 * ref.duration);
        const middle = ref.start + ref.duration / 2;
        this.moveTo(middle - span / 2, middle + span / 2, { user: true });
      }
    }
  }

  /** Shows where a slice is, beside what else is shown of an area. @param {Ref} ref */
  point(ref) {
    this.detail = null;
    this.state.set({ selection: ref });
    this.stand(ref.row);
    this.reveal(ref.row);
    const [a, b] = this.target;
    const wide = (ref.duration / (b - a)) * this.plotWidth;
    const span = wide < LEGIBLE ? Math.max(LEAST_SPAN, ref.duration * 12) : Math.max(b - a, 1.2 * ref.duration);
    if (wide < LEGIBLE || ref.start < a || ref.start + ref.duration > b)
      this.moveTo(ref.start + ref.duration / 2 - span / 2, ref.start + ref.duration / 2 + span / 2, { user: true });
  }

  /** Selects what is under a point; for density the server says which is nearest. @param {number} x @param {number} y */
  async selectAt(x, y) {
    const item = this.itemAt(y);
    if (item) this.current = item.key;
    const hit = this.hitAt(x, y);
    if (!hit) {
      this.select(null);
      this.state.set({ area: null });
      return;
    }
    if (hit.index >= 0) {
      this.select({ row: hit.row, index: hit.index, start: hit.start, duration: hit.duration, name: hit.name ?? "", kind: hit.kind });
      return;
    }
    const view = this.view();
    const ref = await this.context.api.hit(hit.row, this.timeAt(x), REACH * view.nsPerPixel * view.ratio + hit.duration);
    this.select(ref);
  }

  /**
   * The next or previous slice on the row of the selection; without one, the first in view.
   * @param {"next" | "previous"} direction
   * @param {boolean} sameName
   */
  async neighbour(direction, sameName) {
    const { selection } = this.state.get();
    if (!selection) {
      const item = this.layout.items.find(({ key }) => key === this.current && key) ?? this.itemAt(this.pointer?.y ?? this.layout.pinnedHeight + 1);
      const row = item?.rows.find((at) => this.rows[at]?.type === "slices") ?? (item ? rowsOf(item.node)[0]?.row : undefined);
      if (row === undefined) return;
      const [a, b] = this.target;
      const ref = await this.context.api.hit(row, this.pointer ? this.timeAt(this.pointer.x) : (a + b) / 2, b - a);
      if (ref) this.select(ref, { reveal: true });
      return;
    }
    const ref = await this.context.api.neighbour(selection.row, selection.index, direction, sameName);
    if (ref) this.select(ref, { reveal: true });
    else this.context.announce(`No ${direction} ${sameName ? "operation of this name" : "operation"} on this row`);
  }

  /** Follows an arrow of the selection: from a call to what it launched and back, and round the ranks of a collective. @param {1 | -1} step */
  walkLink(step) {
    const { detail } = this;
    if (!detail) return;
    const links = (detail.links ?? []).filter((/** @type {any} */ link) => link.ref);
    const own = links.filter((/** @type {any} */ link) => link.type !== "collective").map((/** @type {any} */ link) => link.ref);
    const rest = links.filter((/** @type {any} */ link) => link.type === "collective").map((/** @type {any} */ link) => link.ref);
    const others = (detail.collective?.participants ?? []).filter(
      (/** @type {any} */ one) => one.ref && !(one.ref.row === detail.row && one.ref.index === detail.index),
    );
    const rank = detail.rank ?? 0;
    // The next rank, and from the last the first.
    const round = [
      ...others.filter((/** @type {any} */ one) => one.rank > rank),
      ...others.filter((/** @type {any} */ one) => one.rank <= rank),
    ].map((one) => one.ref);
    const later = [
      ...own.filter((/** @type {any} */ ref) => ref.start >= detail.start),
      ...round,
      ...rest.filter((/** @type {any} */ ref) => ref.start >= detail.start),
    ];
    const earlier = [
      ...own.filter((/** @type {any} */ ref) => ref.start < detail.start),
      ...round.reverse(),
      ...rest.filter((/** @type {any} */ ref) => ref.start < detail.start),
    ];
    const [ref] = step > 0 ? later : earlier;
    if (ref) this.select(ref, { reveal: true });
    else this.context.announce(step > 0 ? "Nothing follows from this" : "Nothing is known that led to this");
  }

  // Rows.

  /** @param {string} path */
  toggle(path) {
    const collapsed = new Set(this.state.get().collapsed);
    collapsed.has(path) ? collapsed.delete(path) : collapsed.add(path);
    this.state.set({ collapsed: [...collapsed] });
  }

  /** Whether a group is folded now. @param {string} path @returns {boolean | null} null: there is no such group */
  isFolded(path) {
    const node = [...walk(this.root)].find((other) => other.path === path);
    return node ? node.folded !== this.state.get().collapsed.includes(path) : null;
  }

  /** @param {boolean} folded */
  foldAll(folded) {
    this.state.set({
      collapsed: [...walk(this.root)]
        .filter((node) => (node.children.length > 0 || node.lanes.length > 1) && node.folded !== folded)
        .map((node) => node.path),
    });
  }

  /** Moves the current row's group, among those beside it. @param {1 | -1} step */
  reorder(step) {
    const item = this.layout.items.find(({ key }) => key === this.current);
    const parent = item && parentOf(this.root, item.node);
    if (!item || !parent) return;
    const { order } = this.state.get();
    const paths = ordered(parent, order).map(({ path }) => path);
    const at = paths.indexOf(item.node.path);
    const to = at + step;
    if (to < 0 || to >= paths.length) return;
    [paths[at], paths[to]] = [paths[to], paths[at]];
    this.state.set({ order: { ...order, [parent.path]: paths } });
    this.context.announce(`${item.label} is ${to + 1} of ${paths.length}`);
  }

  /** @param {string} key */
  pin(key) {
    const { pins } = this.state.get();
    this.state.set({ pins: pins.includes(key) ? pins.filter((other) => other !== key) : [...pins, key] });
  }

  /** Moves the current row. @param {1 | -1} step */
  moveCurrent(step) {
    const { items } = this.layout;
    const at = items.findIndex(({ key }) => key === this.current);
    const item = items[Math.min(items.length - 1, Math.max(0, at + step))];
    if (!item) return;
    this.current = item.key;
    this.scrollTo(item);
    this.context.announce([item.hint, item.detail].filter(Boolean).join(", "));
  }

  /** What tests ask for. */
  summary() {
    const sorted = [...this.frames].sort((a, b) => a - b);
    return {
      window: this.shown,
      target: this.target,
      settled: this.shown[0] === this.target[0] && this.shown[1] === this.target[1] && !this.motion.zooming,
      level: this.view().level,
      rows: this.rows.length,
      lines: this.painter.last.lines,
      items: this.layout.items.map(({ key }) => key),
      pinned: this.layout.pinned.map(({ key }) => key),
      records: this.painter.last.records,
      labels: this.painter.last.labels,
      missing: this.painter.last.missing,
      coarser: this.painter.last.coarser,
      tiles: this.cache.tiles.size,
      fetched: this.cache.fetched,
      failedTiles: this.cache.failed,
      busy: this.cache.busy,
      drawn: this.drawn,
      hover: this.hover ? { row: this.hover.row, name: this.hover.name, count: this.hover.count } : null,
      detail: this.detail,
      path: this.path?.summary() ?? null,
      search: this.search.summary(),
      frame: { p50: sorted[sorted.length >> 1] ?? 0, p95: sorted[Math.floor(sorted.length * 0.95)] ?? 0, count: sorted.length },
    };
  }
}

/**
 * @param {import("./main.js").Context} context
 * @param {HTMLElement} container
 * @param {HTMLElement} overview
 * @param {HTMLElement} details
 */
export async function mountTimeline(context, container, overview, details) {
  const timeline = new Timeline(context, container, overview, details);
  await timeline.load();
  return timeline;
}
