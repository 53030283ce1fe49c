// @ts-check
/** The critical path on the timeline: a line through what was waited for, and the way from one piece of it to the next. */

import { NOWHERE } from "./api.js";
import { h } from "./dom.js";
import { count, middle, time } from "./format.js";

/** @typedef {import("../types/analysis.js").PathPart} PathPart */

/** A piece that is gone to is so wide at least, CSS pixels, and takes so much of the window at most. */
const LEGIBLE = 4;
const MOST_OF_WINDOW = 0.8;
/** ... and is made so wide, in shares of the window. */
const COMFORTABLE = 0.12;

/** A part of the path in words. @param {PathPart} part */
export function partName(part) {
  return part.name ? `${part.what} ${part.name}` : part.what;
}

/**
 * The first of sorted numbers that is greater.
 * @param {Float64Array} sorted
 * @param {number} than
 */
export function firstAbove(sorted, than) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const at = (low + high) >> 1;
    if (sorted[at] > than) high = at;
    else low = at + 1;
  }
  return low;
}

/**
 * The line through the pieces between two times: points in pixels, those of one pixel joined to one stroke. Pieces without a
 * row are passed over.
 * @param {import("./api.js").PathColumns} pieces
 * @param {(at: number) => number} x
 * @param {(row: number) => number | null} y
 * @param {[number, number]} window
 * @param {{moveTo: (x: number, y: number) => void, lineTo: (x: number, y: number) => void}} ink
 */
export function trace(pieces, x, y, [from, to], ink) {
  let open = false;
  let pixel = NaN;
  let low = 0;
  let high = 0;
  let last = 0;
  const flush = () => {
    if (!(high > low)) return;
    ink.lineTo(pixel, low);
    ink.lineTo(pixel, high);
    ink.lineTo(pixel, last);
    high = low;
  };
  // One before and one after, so that the line leads out of the picture.
  for (let at = Math.max(0, firstAbove(pieces.end, from) - 1); at < pieces.n; at += 1) {
    const height = y(pieces.row[at]);
    if (height !== null) {
      const [a, b] = [x(pieces.start[at]), x(pieces.end[at])];
      if (open && b - pixel < 0.5) {
        low = Math.min(low, height);
        high = Math.max(high, height);
        last = height;
      } else {
        flush();
        if (open) ink.lineTo(a, height);
        else ink.moveTo(a, height);
        ink.lineTo(b, height);
        open = true;
        pixel = b;
        low = high = last = height;
      }
    }
    if (pieces.start[at] > to) break;
  }
  flush();
}

export class PathLine {
  /** @param {import("./timeline.js").Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    /** @type {import("./api.js").PathColumns | null} */
    this.pieces = null;
    /** @type {PathPart[]} */
    this.parts = [];
    /** The piece that was gone to last; -1: none. */
    this.at = -1;
    /** Of which generation and steps the pieces are, or will be. */
    this.of = "";
    /** @type {Promise<void>} */
    this.loading = Promise.resolve();
    timeline.state.subscribe(["path", "steps"], () => {
      void this.load();
      timeline.invalidateOverlay();
    });
  }

  /** What is to be drawn. @returns {PathLine | null} */
  get shown() {
    return this.timeline.state.get().path && this.pieces ? this : null;
  }

  /** Of what the pieces should be. @private */
  wanted() {
    return `${this.timeline.context.api.generation} ${this.timeline.state.get().steps}`;
  }

  /** Asks for the pieces of the present generation and steps, where they are to be shown and are not there. @returns {Promise<void>} */
  load() {
    const { context } = this.timeline;
    const wanted = this.wanted();
    if (this.of !== wanted) {
      // Rows may have other numbers.
      this.pieces = null;
      this.at = -1;
    }
    if (!this.timeline.state.get().path || this.of === wanted) return this.loading;
    this.of = wanted;
    this.loading = this.ask(context.api, wanted);
    return this.loading;
  }

  /** @private @param {import("./api.js").RecordingApi} api @param {string} wanted */
  async ask(api, wanted) {
    const { timeline } = this;
    const { steps } = timeline.state.get();
    try {
      if (timeline.context.info.growing) throw new Error("there when the recording has ended");
      const [path, pieces] = await Promise.all([api.criticalPath(steps), api.pathPieces(steps)]);
      if (this.of !== wanted) return;
      this.parts = path.parts;
      this.pieces = pieces;
      timeline.invalidateOverlay();
    } catch (error) {
      if (this.of !== wanted) return;
      this.of = "";
      timeline.state.set({ path: false });
      const line = /** @type {any} */ (error)?.message ?? String(error);
      timeline.context.announce(`Critical path: ${line}`);
      timeline.labels.path.title = `Critical path: ${line}`;
    }
  }

  toggle() {
    if (!this.timeline.state.get().path) return void this.showLongest();
    this.timeline.state.set({ path: false });
    this.timeline.context.announce("The critical path is not drawn");
  }

  /** @param {CanvasRenderingContext2D} ink @param {import("./overlay.js").Scene} scene */
  draw(ink, { view, theme, yOf }) {
    const { pieces } = this;
    if (!pieces) return;
    const { ratio } = view;
    const to = view.from + view.width * view.nsPerPixel;
    /** @type {Map<number, number | null>} */
    const heights = new Map();
    const y = (/** @type {number} */ row) => {
      let height = heights.get(row);
      if (height === undefined) {
        const at = row === NOWHERE ? null : yOf(row);
        // Along the foot of the row: names stay legible.
        height = at && (at.y + at.height - 2) * ratio;
        heights.set(row, height);
      }
      return height;
    };
    const x = (/** @type {number} */ at) => Math.min(view.width + 8, Math.max(-8, (at - view.from) / view.nsPerPixel));
    const line = new Path2D();
    trace(pieces, x, y, [view.from, to], line);
    ink.save();
    ink.lineJoin = "round";
    ink.strokeStyle = theme.colour.surface;
    ink.globalAlpha = 0.75;
    ink.lineWidth = 4.5 * ratio;
    ink.stroke(line);
    ink.globalAlpha = 1;
    ink.strokeStyle = theme.colour.bad;
    ink.lineWidth = 2 * ratio;
    ink.stroke(line);
    const height = this.at >= 0 ? y(pieces.row[this.at]) : null;
    if (height !== null) {
      ink.lineCap = "round";
      ink.lineWidth = 5 * ratio;
      ink.beginPath();
      ink.moveTo(x(pieces.start[this.at]), height);
      ink.lineTo(x(pieces.end[this.at]), height);
      ink.stroke();
    }
    ink.restore();
  }

  /** The piece that steps are counted from: the one gone to last, where it is still looked at; else what is selected, or in the middle. @private */
  current() {
    const { pieces } = this;
    if (!pieces) return -1;
    const { selection } = this.timeline.state.get();
    const is = (/** @type {number} */ at) => !selection || (pieces.row[at] === selection.row && pieces.index[at] === selection.index);
    const [a, b] = this.timeline.target;
    if (this.at >= 0 && is(this.at) && pieces.end[this.at] >= a && pieces.start[this.at] <= b) return this.at;
    const from = selection ? selection.start : (a + b) / 2;
    const near = Math.min(pieces.n - 1, firstAbove(pieces.end, from));
    if (selection) for (let at = near; at < pieces.n && pieces.start[at] <= from + selection.duration; at += 1) if (is(at)) return at;
    // Without one that is looked at, the first step leads to it.
    return near - 0.5;
  }

  /** Goes to the next piece, or the one before. @param {1 | -1} direction */
  async step(direction) {
    const { timeline } = this;
    timeline.state.set({ path: true });
    await this.load();
    const { pieces } = this;
    if (!pieces) return;
    const now = this.current();
    const next = direction > 0 ? Math.floor(now) + 1 : Math.ceil(now) - 1;
    if (next < 0 || next >= pieces.n) timeline.context.announce(`The critical path ${direction > 0 ? "ends" : "begins"} here`);
    else this.goTo(next);
  }

  /** Draws the path; goes to its longest piece of a part, or only to the row of what is longest in view. @param {PathPart} [part] */
  async showLongest(part) {
    const { timeline } = this;
    timeline.state.set({ path: true });
    await this.load();
    const { pieces } = this;
    if (!pieces) return;
    if (!part) {
      timeline.context.announce("The critical path is drawn");
      const [from, to] = timeline.target;
      const best = this.longest((at) => pieces.row[at] !== NOWHERE && pieces.end[at] > from && pieces.start[at] < to);
      if (best >= 0 && !this.isInView(pieces.row[best])) timeline.reveal(pieces.row[best]);
      return;
    }
    const wanted = this.parts.findIndex(({ what, name, rank }) => what === part.what && name === part.name && rank === part.rank);
    const best = this.longest((at) => pieces.part[at] === wanted);
    if (best >= 0) this.goTo(best);
  }

  /** @private @param {number} row */
  isInView(row) {
    const at = this.timeline.yOf(row);
    return at !== null && at.y >= 0 && at.y + at.height <= this.timeline.plotHeight;
  }

  /** The longest piece of some; -1 without any. @private @param {(at: number) => boolean} is */
  longest(is) {
    const pieces = /** @type {import("./api.js").PathColumns} */ (this.pieces);
    let best = -1;
    for (let at = 0; at < pieces.n; at += 1) {
      if (is(at) && (best < 0 || pieces.end[at] - pieces.start[at] > pieces.end[best] - pieces.start[best])) best = at;
    }
    return best;
  }

  /** Selects a piece and brings it to the middle. @private @param {number} at */
  goTo(at) {
    const { timeline } = this;
    const pieces = /** @type {import("./api.js").PathColumns} */ (this.pieces);
    this.at = at;
    const part = this.parts[pieces.part[at]];
    const [start, duration] = [pieces.start[at], pieces.end[at] - pieces.start[at]];
    const [row, index] = [pieces.row[at], pieces.index[at]];
    const whose = part.rank === null ? "" : ` on rank ${part.rank}`;
    const said = `${partName(part)}${whose}, ${time(duration)}`;
    const place = this.place();
    if (index !== NOWHERE) timeline.select({ row, index, start, duration, name: part.name, kind: 0 });
    else {
      timeline.select(null);
      timeline.context.announce(`${said}; ${place}`);
      timeline.details.put(
        [h("strong", { class: "details-name" }, middle(said, 160)), h("span", { class: "quiet" }, place)],
        h(
          "p",
          { class: "quiet" },
          part.what === "host" ? "What the host did between two calls: nothing of it was recorded as an operation." : "It lies on no row.",
        ),
      );
    }
    if (row !== NOWHERE) timeline.reveal(row);
    const [a, b] = timeline.target;
    const share = duration / (b - a);
    const fits = share * timeline.plotWidth >= LEGIBLE && share <= MOST_OF_WINDOW;
    const span = fits ? b - a : duration / COMFORTABLE;
    timeline.moveTo(start + duration / 2 - span / 2, start + duration / 2 + span / 2, { user: true });
    timeline.invalidateOverlay();
  }

  /** Which piece was gone to. @private */
  place() {
    return `piece ${count(this.at + 1)} of ${count(this.pieces?.n)} of the critical path`;
  }

  /** What is said of a slice that was gone to as a piece. @param {{row: number, index: number}} slice */
  words({ row, index }) {
    const { at, shown } = this;
    return shown?.pieces && at >= 0 && shown.pieces.row[at] === row && shown.pieces.index[at] === index ? this.place() : "";
  }

  /** What tests ask for. */
  summary() {
    const { pieces, at } = this;
    return { pieces: pieces?.n ?? null, at, part: pieces && at >= 0 ? this.parts[pieces.part[at]] : null, start: pieces && at >= 0 ? pieces.start[at] : null };
  }
}
