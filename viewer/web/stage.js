// @ts-check
/** The timeline's elements, the frames that it draws, and where things are in them. What can be done with it is in timeline.js. */

import { h } from "./dom.js";
import { Painter } from "./draw.js";
import { Labels } from "./labels.js";
import { Overlay } from "./overlay.js";
import { GOES_ON_MS, Motion } from "./motion.js";
import { FLAG_CUT, FLAG_DENSITY, recordAt } from "./raster.js";
import { wholeNames } from "./names.js";
import { buildTree, layout, walk } from "./rows.js";
import { Ruler } from "./ruler.js";
import { readTheme } from "./theme.js";
import { stamp, ticksFrom, zeroOf } from "./times.js";
import { Names, TileCache, levelFor, levelInMotion, tileSpan } from "./tiles.js";

/** @typedef {import("./rows.js").Item} Item */
/** @typedef {import("./state.js").Ref} Ref */
/** @typedef {import("./draw.js").View} View */
/**
 * What is under a point.
 * @typedef {object} Hit
 * @property {Item} item
 * @property {number} row
 * @property {number} start    ns, as exact as the tile is
 * @property {number} duration
 * @property {number} kind
 * @property {string | null} name
 * @property {number} index    of the slice; of density, -1
 * @property {number} count    operations in it
 * @property {number} busy     0..1
 * @property {boolean} cut
 */

/** How quickly the window goes where it is to go: the time constant, ms. */
const GLIDE_MS = 55;
/** How far ahead of a zoom tiles are asked for, ms: as long as they take to come. */
const AHEAD_MS = 200;
/** How near to a slice a click has to be, CSS pixels. */
export const REACH = 3;

export class Stage {
  /** The item that keys act on when nothing is selected. @type {string | null} */
  current = null;
  // The parts that timeline.js adds.
  /** @type {import("./overview.js").Overview} */
  overview = /** @type {any} */ (null);
  /** @type {import("./details.js").Details} */
  details = /** @type {any} */ (null);
  /** What was selected before rows were read anew. @type {{key: string, start: number} | null} */
  again = null;
  /** @type {import("./search.js").Search} */
  search = /** @type {any} */ (null);
  /** The critical path through the rows; two timelines side by side draw none. @type {import("./critical.js").PathLine | null} */
  path = null;
  /** @type {import("./tooltip.js").Tooltip} */
  tooltip = /** @type {any} */ (null);
  /** @type {import("./input.js").Input} */
  input = /** @type {any} */ (null);

  /**
   * @param {import("./main.js").Context} context
   * @param {HTMLElement} container
   */
  constructor(context, container) {
    this.context = context;
    this.state = context.state;
    this.container = container;
    this.theme = readTheme();
    this.root = buildTree([]);
    /** @type {import("./rows.js").Row[]} */
    this.rows = [];
    /** Where every row is. */
    this.layout = layout(this.root, this.layoutOptions());
    /** @type {[number, number]} where the window is going */
    this.target = this.state.get().window;
    /** Where the pointer is, CSS pixels in the plot. @type {{x: number, y: number} | null} */
    this.pointer = null;
    /** @type {Hit | null} */
    this.hover = null;
    /** The answer of /slice for the selection. @type {any} */
    this.detail = null;
    /** Sizes of the plot and how far its rows are scrolled, CSS pixels, as of the last frame. */
    this.plotWidth = 1;
    this.plotHeight = 1;
    this.scrollTop = 0;
    /** Where to scroll to, and which row to bring into view, once sizes are known. @type {number | undefined} */
    this.pendingScroll = undefined;
    /** @type {number | undefined} */
    this.pendingReveal = undefined;
    /** Whether the window moves in many small steps. */
    this.glide = false;
    /** What the store was last told. @type {[number, number]} */
    this.shown = this.state.get().window;
    this.motion = new Motion();
    /** Time that each frame took, ms. @type {number[]} */
    this.frames = [];
    this.dirty = true;
    this.dirtyOverlay = true;
    /** The frame that was asked for; 0: none. */
    this.scheduled = 0;
    this.lastFrame = 0;
    this.drawn = false;
    this.resting = 0;

    const again = () => this.invalidate();
    this.cache = new TileCache((want, signal) => {
      const api = this.context.api;
      return want.sort === "slices" ? api.tiles(want.level, want.index, want.rows, signal) : api.counters(want.level, want.index, want.rows, signal);
    }, again);
    this.newNames();

    this.rulerCanvas = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "tl-ruler", "aria-hidden": "true" }));
    this.plot = /** @type {HTMLCanvasElement} */ (h("canvas", { class: "tl-plot", "aria-hidden": "true" }));
    this.over = /** @type {HTMLCanvasElement} */ (
      h("canvas", {
        class: "tl-over",
        tabindex: "0",
        role: "application",
        "aria-label": "Timeline. Press the question mark for all keys.",
        "aria-describedby": "announce",
      })
    );
    this.labels = new Labels(/** @type {any} */ (this));
    this.spacer = h("div", { class: "tl-spacer" });
    this.nothing = h("p", { class: "tl-nothing", hidden: true });
    this.sticky = h("div", { class: "tl-sticky" }, this.labels.element, this.plot, this.over, this.nothing);
    this.scroller = h("div", { class: "tl-scroll", tabindex: "-1" }, this.sticky, this.spacer);
    container.replaceChildren(h("div", { class: "tl-head" }, this.labels.tools, this.rulerCanvas), this.scroller);

    this.painter = new Painter(this.plot);
    this.ruler = new Ruler(this.rulerCanvas);
    this.overlay = new Overlay(this.over);

    this.scroller.addEventListener("scroll", () => this.invalidate());
    new ResizeObserver(() => this.invalidate()).observe(this.scroller);
    this.state.subscribe(["dark", "theme"], () => {
      this.theme = readTheme();
      this.overview.redraw();
      this.invalidate();
    });
    this.state.subscribe(["collapsed", "pins", "filter", "rowHeight", "order"], () => this.relayout());
    this.state.subscribe(["tab"], () => this.invalidate());
    this.state.subscribe(["names"], () => this.names?.respell());
    this.state.subscribe(["selection", "marks", "area"], () => this.invalidateOverlay());
    this.state.subscribe(["zero"], () => {
      this.overview?.redraw();
      this.invalidate();
    });
  }

  newNames() {
    const { api } = this.context;
    this.cache.names?.close();
    this.names = new Names((ids) => api.names(ids, wholeNames()), () => this.invalidate());
    this.cache.names = this.names;
  }

  /** Takes the rows of the present generation. */
  async load() {
    const { api } = this.context;
    const { rows } = await api.rows();
    // A later generation, or another recording, was begun with meanwhile.
    if (api !== this.context.api) return;
    const before = new Map(this.rows.map((row) => [row.row, row.key]));
    const after = new Map(rows.map((/** @type {any} */ row) => [row.key, row.row]));
    if (before.size > 0) {
      const renumbered = new Map();
      for (const [row, key] of before) if (after.has(key)) renumbered.set(row, after.get(key));
      this.newNames();
      this.cache.renew(renumbered);
      const { area } = this.state.get();
      if (area) this.state.set({ area: { ...area, rows: area.rows.flatMap((row) => renumbered.get(row) ?? []) } });
      this.again = this.selected(before);
    }
    this.rows = rows;
    this.arrange();
    this.overview.load();
    void this.path?.load();
    const again = this.again;
    this.again = null;
    if (again) await this.reselect(again);
  }

  /** Groups the rows that are to be shown. */
  arrange() {
    const folded = new Map([...walk(this.root)].map((node) => [node.path, node.folded]));
    this.root = buildTree(this.shownRows(this.rows));
    // A group stays as it was, although a new generation might have begun otherwise.
    for (const node of walk(this.root)) node.folded = folded.get(node.path) ?? node.folded;
    this.relayout();
  }

  /** The selection by what stays the same over generations. @private @param {Map<number, string>} keys of rows */
  selected(keys) {
    const { selection } = this.state.get();
    const key = selection && keys.get(selection.row);
    return selection && key !== null && key !== undefined ? { key, start: selection.start } : null;
  }

  /** Finds the selection again in a new generation. @param {{key: string, start: number}} was */
  async reselect(was) {
    try {
      const ref = await this.context.api.sliceAt(was.key, was.start);
      this.state.set({ selection: ref });
      await this.details.show(ref, true);
    } catch {
      // It is as it was; the next generation may know more.
    }
  }

  /** The time that can be looked at, ns. @returns {[number, number]} */
  get extent() {
    const { begin, end } = this.context.info;
    return [begin, end];
  }

  /** What the axis counts from, ns. */
  get zero() {
    const { zero } = this.state.get();
    return typeof zero === "number" ? zero : 0;
  }

  /** Where the axis has ticks: of the ruler, and of the lines under it. @param {View} view */
  ticks({ from, width, nsPerPixel, ratio, zero }) {
    return ticksFrom(from, from + width * nsPerPixel, nsPerPixel, 110 * ratio, zeroOf(this.state.get(), zero), this.context.info.origin_ns);
  }

  /** A moment as the ruler says it, as exact as `step` asks for. @param {number} at @param {number} step */
  stamp(at, step) {
    return stamp(at, step, zeroOf(this.state.get(), this.zero), this.context.info.origin_ns);
  }

  /** Whether keys are meant for this timeline. */
  get listening() {
    return !this.container.hidden;
  }

  /** Where the line of the pointer stands, CSS pixels in the plot. @returns {{x: number, y: number} | null} */
  get cursor() {
    return this.pointer;
  }

  /** Slices that are framed beside the selection. @returns {Ref[]} */
  get twins() {
    return [];
  }

  /** Which rows there are lines for. @param {import("./rows.js").Row[]} rows */
  shownRows(rows) {
    return rows;
  }

  /** @returns {import("./rows.js").LayoutOptions} */
  layoutOptions() {
    const { collapsed, pins, filter, rowHeight, order } = this.state.get();
    return { order, collapsed, pins, text: filter.text, hideEmpty: filter.hideEmpty, only: filter.onlyMatches ? (this.search?.rows ?? null) : null, rowHeight };
  }

  /** The row that keys act on is the one of this slice, if it shows. @param {number} row */
  stand(row) {
    this.current = this.layout.byRow.get(row)?.key ?? this.current;
  }

  /** Places the rows anew, nothing else. */
  place() {
    this.layout = layout(this.root, this.layoutOptions());
  }

  /** Places the rows anew; what is under the pointer, or at the top, stays where it is. */
  relayout() {
    const anchor = this.anchor();
    this.place();
    if (anchor) {
      const item = this.layout.items.find(({ key }) => key === anchor.key);
      if (item) this.pendingScroll = item.y - anchor.offset;
    }
    const { filter } = this.state.get();
    this.nothing.hidden = this.layout.items.length > 0;
    this.nothing.textContent =
      this.rows.length === 0
        ? "Nothing was recorded that could be drawn."
        : filter.text
          ? `No row's name holds “${filter.text}”.`
          : filter.onlyMatches
            ? "No row has hits of the search."
            : "All rows are empty.";
    this.invalidate();
  }

  /** @private */
  anchor() {
    // At the top, what is new above shows.
    if (!this.layout || this.layout.items.length === 0 || this.scrollTop < 1) return null;
    const under = this.pointer ? this.itemAt(this.pointer.y) : null;
    const item = under && !under.pinned ? under : this.layout.items.find((other) => other.y + other.height > this.scroller.scrollTop);
    return item ? { key: item.key, offset: item.y - this.scroller.scrollTop } : null;
  }

  /** Where the window is to go, and whether in many small steps. @param {number} from @param {number} to @param {boolean} glide */
  aim(from, to, glide) {
    this.motion.aim(this.target, [from, to], performance.now());
    this.target = [from, to];
    this.glide = glide && !this.calm;
    this.invalidate();
  }

  /** Whether the user asked for little motion. */
  get calm() {
    return matchMedia("(prefers-reduced-motion: reduce)").matches;
  }

  invalidate() {
    this.dirty = true;
    this.schedule();
  }
  invalidateOverlay() {
    this.dirtyOverlay = true;
    this.schedule();
  }
  /** @private */
  schedule() {
    if (!this.scheduled) this.scheduled = requestAnimationFrame((now) => this.frame(now));
  }

  /** @returns {View} */
  view() {
    const ratio = devicePixelRatio || 1;
    const width = Math.max(1, Math.round(this.plotWidth * ratio));
    const [from, to] = this.shown;
    const nsPerPixel = (to - from) / width;
    const { begin, end } = this.context.info;
    const coarse = levelInMotion(nsPerPixel);
    const level = this.motion.zooming && this.cache.covers("slices", coarse, Math.max(from, begin), Math.min(to, end)) ? coarse : levelFor(nsPerPixel);
    return { from, nsPerPixel, width, height: Math.max(1, Math.round(this.plotHeight * ratio)), ratio, level, zero: this.zero, end };
  }

  /** Draws what has changed. @param {number} now */
  frame(now) {
    // Also called by who draws two timelines in one frame: what was asked for is done with that.
    cancelAnimationFrame(this.scheduled);
    this.scheduled = 0;
    const since = Math.min(64, Math.max(1, now - this.lastFrame));
    this.lastFrame = now;
    if (this.container.hidden) {
      this.shown = this.target;
      this.state.set({ window: this.shown });
      // The pointer may still be where the timeline was.
      this.tooltip.show(null, null);
      this.motion.zooming = false;
      this.overview.brush();
      return;
    }
    const began = performance.now();
    const moving = this.step(since);
    if (this.dirty || moving) {
      this.dirty = false;
      this.dirtyOverlay = true;
      this.measure();
      this.draw();
    }
    if (this.dirtyOverlay) {
      this.dirtyOverlay = false;
      this.drawOverlay();
    }
    this.frames.push(performance.now() - began);
    if (this.frames.length > 600) this.frames.shift();
    if (moving) this.schedule();
  }

  /** Moves the window a bit nearer to its target. @param {number} ms @returns {boolean} */
  step(ms) {
    const held = this.input.held(ms);
    const [from, to] = this.shown;
    const [a, b] = this.target;
    const now = performance.now();
    if (from === a && to === b) {
      if (this.motion.rest(now)) this.dirty = true;
      return held;
    }
    const share = this.glide ? 1 - Math.exp(-ms / GLIDE_MS) : 1;
    const near = Math.max(Math.abs(a - from), Math.abs(b - to)) < 0.0008 * (b - a);
    this.shown = near || share >= 1 ? [a, b] : [from + (a - from) * share, to + (b - to) * share];
    this.motion.move([from, to], this.shown, ms, now);
    if (this.motion.zooming) {
      // Details come back when it has come to rest, whether another frame was asked for or not.
      clearTimeout(this.resting);
      this.resting = setTimeout(() => this.invalidate(), GOES_ON_MS + 1);
    }
    this.state.set({ window: this.shown });
    this.dirty = true;
    return held || this.shown[0] !== a || this.shown[1] !== b;
  }

  /** Sizes of the elements; a canvas must have as many pixels as it is shown with. @private */
  measure() {
    const width = this.scroller.clientWidth;
    const height = this.scroller.clientHeight;
    const gutter = this.labels.element.offsetWidth;
    this.plotWidth = Math.max(1, width - gutter);
    this.plotHeight = height;
    this.sticky.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(0, this.layout.height + this.layout.pinnedHeight - height)}px`;
    if (this.pendingReveal !== undefined) {
      const item = this.layout.byRow.get(this.pendingReveal);
      this.pendingReveal = undefined;
      if (item) this.scrollTo(item);
    }
    if (this.pendingScroll !== undefined) {
      this.scroller.scrollTop = this.pendingScroll;
      this.pendingScroll = undefined;
    }
    this.scrollTop = this.scroller.scrollTop;
  }

  /** @param {Item} item */
  scrollTo(item) {
    const room = this.plotHeight - this.layout.pinnedHeight;
    const top = this.scroller.scrollTop;
    if (item.y < top + 8) this.pendingScroll = item.y - Math.min(60, room / 4);
    else if (item.y + item.height > top + room - 8) this.pendingScroll = item.y + item.height - room + Math.min(60, room / 4);
    this.invalidate();
  }

  /** Lines in view, pinned ones first. @returns {import("./draw.js").Pane[]} */
  panes() {
    const ratio = devicePixelRatio || 1;
    const px = (/** @type {number} */ value) => Math.round(value * ratio);
    const { pinned, pinnedHeight, items } = this.layout;
    const bottom = px(this.plotHeight);
    const line = (/** @type {Item} */ item, /** @type {number} */ y) => ({ item, y: px(y), height: Math.max(1, px(y + item.height) - px(y)) });
    const shown = items.filter((item) => item.y + item.height > this.scrollTop && item.y - this.scrollTop < this.plotHeight - pinnedHeight);
    return [
      { lines: pinned.map((item) => line(item, item.y)), top: 0, bottom: px(pinnedHeight) },
      { lines: shown.map((item) => line(item, item.y - this.scrollTop + pinnedHeight)), top: px(pinnedHeight), bottom },
    ];
  }

  /** @private */
  draw() {
    const view = this.view();
    const { info } = this.context;
    const panes = this.panes();
    this.want(view, panes);
    this.painter.paint(view, this.theme, panes, this.cache, { gaps: info.gaps ?? [], steps: info.steps ?? [], ticks: this.ticks(view).ticks });
    this.labels.draw();
    if (!this.drawn && this.painter.last.records > 0) {
      this.drawn = true;
      performance.mark("gputrace.drawn");
    }
  }

  /** Asks for tiles: what is seen, then what will be. @private @param {View} view @param {import("./draw.js").Pane[]} panes */
  want(view, panes) {
    const lines = panes.flatMap((pane) => pane.lines);
    const slices = [...new Set(lines.flatMap(({ item }) => (item.counter ? [] : item.rows)))];
    const counters = [...new Set(lines.flatMap(({ item }) => (item.counter ? item.rows : [])))];
    const { begin, end } = this.context.info;
    /** @type {import("./tiles.js").Want[]} */
    const wants = [];
    const add = (/** @type {number} */ level, /** @type {number} */ from, /** @type {number} */ to, /** @type {boolean} */ kept) => {
      const span = tileSpan(level);
      const first = Math.max(0, Math.floor(Math.max(from, begin) / span));
      const last = Math.floor(Math.min(to, end) / span);
      for (let index = first; index <= last && index < first + 16; index += 1) {
        if (slices.length) wants.push({ sort: "slices", level, index, rows: slices, kept });
        if (counters.length) wants.push({ sort: "counters", level, index, rows: counters, kept });
      }
    };
    const from = view.from;
    const span = view.width * view.nsPerPixel;
    const [a, b] = this.target;
    // On its way a zoom passes levels that nobody would see: they are not asked for.
    const passing = this.motion.zooming && this.motion.goesOn(performance.now());
    const wanted = passing ? levelInMotion : levelFor;
    const level = wanted((b - a) / view.width);
    add(level, a, b, false);
    const shown = wanted(view.nsPerPixel);
    if (shown !== level) add(shown, from, from + span, false);
    if (passing) {
      const [c, d] = this.motion.ahead(this.target, AHEAD_MS);
      const next = levelInMotion((d - c) / view.width);
      if (next !== level) add(next, c, d, false);
    }
    add(levelFor((end - begin) / view.width) + 1, begin, end, true);
    if (this.shown[0] === a && this.shown[1] === b) {
      add(level + 1, a - (b - a) / 2, b + (b - a) / 2, false);
      const tile = tileSpan(level);
      add(level, a - tile, b + tile, false);
    }
    this.cache.want(wants, this.motion.zooming);
  }

  /** What lies over the rows, the ruler, and words beside the pointer. */
  drawOverlay() {
    const view = this.view();
    const [pinned, scrolled] = this.panes();
    const state = this.state.get();
    // What a zoom sweeps under the pointer can't be read.
    this.hover = this.pointer && !this.input.dragging && !this.motion.zooming ? this.hitAt(this.pointer.x, this.pointer.y) : null;
    this.ruler.draw(view, this.theme, this.context.info, state, this.cursor, this.ticks(view));
    this.overlay.draw({
      view, theme: this.theme, state, pinned, scrolled, pointer: this.cursor, hover: this.hover, twins: this.twins, detail: this.detail, drag: this.input.area, hits: this.search.inView(),
      path: this.path?.shown ?? null,
      yOf: (row) => this.yOf(row),
    });
    this.tooltip.show(this.hover, this.pointer);
    this.labels.highlight();
    this.overview.brush();
  }

  // Where things are.

  /** @param {number} x CSS pixels in the plot */
  timeAt(x) {
    const [from, to] = this.shown;
    return from + (x / this.plotWidth) * (to - from);
  }

  /** @param {number} y CSS pixels in the plot @returns {Item | null} */
  itemAt(y) {
    const { pinned, pinnedHeight, items } = this.layout;
    const [list, at] = y < pinnedHeight ? [pinned, y] : [items, y - pinnedHeight + (this.scrollTop ?? 0)];
    let low = 0;
    let high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle].y + list[middle].height + 1 <= at) low = middle + 1;
      else high = middle;
    }
    const item = list[low];
    return item && at >= item.y ? item : null;
  }

  /**
   * Where a row is drawn, CSS pixels in the plot, whether in view or not; null where it isn't drawn at all.
   * @param {number} row
   * @returns {{y: number, height: number} | null}
   */
  yOf(row) {
    const { pinned, pinnedHeight, byRow } = this.layout;
    const up = pinned.find((item) => item.row?.row === row);
    if (up) return { y: up.y, height: up.height };
    const item = byRow.get(row);
    return item ? { y: item.y - this.scrollTop + pinnedHeight, height: item.height } : null;
  }

  /** @param {number} x @param {number} y @returns {Hit | null} */
  hitAt(x, y) {
    const item = this.itemAt(y);
    if (!item || item.counter || item.rows.length === 0) return null;
    const view = this.view();
    const at = x * view.ratio;
    const chains = this.painter.chains(view, "slices", this.cache).filter(({ low, high }) => at >= low - REACH && at <= high + REACH);
    for (const row of item.rows) {
      for (const part of this.painter.partsOf(view, chains, row).list) {
        const { columns, tile } = part;
        const k = recordAt(columns, part.scale, part.offset, at, REACH * view.ratio);
        if (k < 0) continue;
        const bin = 2 ** tile.level;
        const begin = tile.index * tileSpan(tile.level);
        const meta = columns.meta[k];
        const density = ((meta >>> 16) & FLAG_DENSITY) !== 0;
        return {
          item, row, start: begin + columns.x0[k] * bin, duration: (columns.x1[k] - columns.x0[k]) * bin, kind: meta & 255, name: tile.names?.get(columns.name[k]) ?? null,
          index: density ? -1 : columns.id[k], count: density ? columns.id[k] : 1, busy: ((meta >>> 8) & 255) / 255, cut: ((meta >>> 16) & FLAG_CUT) !== 0,
        };
      }
    }
    return null;
  }

  /** The value of a counter under the pointer. @param {Item} item @param {number} x @returns {{min: number, max: number, last: number} | null} */
  valueAt(item, x) {
    const view = this.view();
    const at = x * view.ratio;
    const chains = this.painter.chains(view, "counters", this.cache).filter(({ low, high }) => at >= low && at < high);
    for (const { columns, scale, offset } of this.painter.partsOf(view, chains, item.rows[0]).list) {
      const k = recordAt(columns, scale, offset, at, 0);
      if (k >= 0) return { min: columns.min[k], max: columns.max[k], last: columns.last[k] };
    }
    return null;
  }
}
