// @ts-check
/** One of two timelines that show the same time: where it goes, what is folded and what is pointed at is the pair's (pair.js). */

import { Timeline } from "./timeline.js";
import { Tooltip } from "./tooltip.js";

/** @typedef {import("./api.js").RecordingApi} RecordingApi */
/** @typedef {import("./state.js").Ref} Ref */
/** @typedef {import("./rows.js").Row} Row */
/** @typedef {import("./main.js").Context & {pair: import("./pair.js").Pair, side: 0 | 1}} SideContext */

/** Words beside the pointer, with what the other recording has instead. */
class PairTooltip extends Tooltip {
  /** @param {Side} side */
  constructor(side) {
    super(side);
    this.side = side;
  }

  /** @param {import("./stage.js").Hit} hit */
  slice(hit) {
    const { pair } = this.side.context;
    return [...super.slice(hit), ...(hit.index >= 0 ? pair.words(pair.pairing) : [])];
  }
}

/** One of the two timelines. */
export class Side extends Timeline {
  /** @param {SideContext} context @param {HTMLElement} container @param {HTMLElement} overview */
  constructor(context, container, overview) {
    super(context, container, overview, container);
    /** @type {SideContext} */
    this.context = context;
    /** Whose rows there are: recording and generation. */
    this.has = "";
  }

  /** Both share one line of details, which is the pair's. */
  addParts() {
    const { pair, side } = this.context;
    const nothing = () => undefined;
    this.details = /** @type {any} */ ({ show: (/** @type {Ref | null} */ ref) => pair.selected(side, ref), put: nothing });
    this.area = /** @type {any} */ ({
      take: (/** @type {{from: number, to: number}} */ box) =>
        pair.measured(side, this.timeAt(Math.min(box.from, box.to)), this.timeAt(Math.max(box.from, box.to))),
      takeView: nothing,
    });
    this.search = /** @type {any} */ ({
      rows: null,
      inView: () => [],
      summary: nothing,
      focus: () => document.getElementById("query")?.focus(),
      step: nothing,
    });
    this.tooltip = new PairTooltip(this);
  }

  get extent() {
    return this.context.pair.extentOf(this.context.side);
  }
  get zero() {
    return this.context.pair.zeroOf(this.context.side);
  }
  get listening() {
    return !this.container.hidden && this.context.pair.active === this.context.side;
  }
  get cursor() {
    const there = this.context.pair.sides?.[this.context.side === 0 ? 1 : 0]?.pointer;
    return this.pointer ?? (there ? { x: there.x, y: -1 } : null);
  }
  get twins() {
    const ref = this.context.pair.pairing?.refs[this.context.side];
    return ref ? [ref] : [];
  }

  /** @param {Row[]} rows */
  shownRows(rows) {
    return this.context.pair.shownRows(this.context.side, rows);
  }

  /** Another recording, or the same read anew. @param {RecordingApi} api @param {boolean} same */
  async take(api, same) {
    this.context.api = api;
    if (!same) {
      this.cache.clear();
      this.rows = [];
      this.newNames();
      this.overview.data = null;
      this.state.set({ selection: null, area: null, collapsed: [], pins: [], order: {} });
    }
    await this.load();
  }

  /** @param {number} from @param {number} to @param {boolean} glide */
  aim(from, to, glide) {
    this.context.pair.leader = this.context.side;
    super.aim(from, to, glide);
  }

  /** Who follows moves only as it is led. @param {number} ms */
  step(ms) {
    return this.context.pair.leader === this.context.side ? super.step(ms) : this.input.held(ms);
  }

  /** Who leads is drawn first, and draws the other with it: both once a frame. @param {number} now @returns {void} */
  frame(now) {
    const { pair, side } = this.context;
    if (pair.leader !== side && !pair.following && pair.ready && !this.container.hidden) return pair.other(side).frame(now);
    super.frame(now);
    if (!this.container.hidden) pair.follow(side, now);
  }

  /** What is folded here is folded there. @param {string} path */
  toggle(path) {
    super.toggle(path);
    const folded = this.isFolded(path);
    const other = this.context.pair.other(this.context.side);
    const there = other.isFolded(path);
    if (folded !== null && there !== null && there !== folded) Timeline.prototype.toggle.call(other, path);
  }

  /** What was selected is found again by the pair, once both are there. */
  async reselect() {}

  /** @param {boolean} folded */
  foldAll(folded) {
    super.foldAll(folded);
    const other = this.context.pair.other(this.context.side);
    Timeline.prototype.foldAll.call(other, folded);
  }

  drawOverlay() {
    super.drawOverlay();
    this.context.pair.pointed(this.context.side, this.hover);
  }
}
