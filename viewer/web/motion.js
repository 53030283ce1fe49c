// @ts-check
/** How the window moves: whether it zooms, whether that goes on, and where it is going to be. Times are milliseconds. */

/** @typedef {[number, number]} Span */

/** From so many levels a second on, the window zooms. */
const ZOOM_SPEED = 0.25;
/** Steps of a zoom that are less apart go on, as with keys that are held and wheels that turn. */
export const GOES_ON_MS = 160;
/** As far as to this share of its span a window is thought to shrink before what is fetched for it comes. */
const LEAST_AHEAD = 0.35;

const spanOf = (/** @type {Span} */ [from, to]) => to - from;

export class Motion {
  constructor() {
    /** Whether the window grows or shrinks, too quickly for details. */
    this.zooming = false;
    /** When it was last told to. @private */
    this.told = Number.NEGATIVE_INFINITY;
    /** Whether that was one of several steps. @private */
    this.again = false;
    /** How far its edges went in the last frame, and how long that was. @private @type {Span} */
    this.step = [0, 0];
    /** @private */
    this.since = 1;
  }

  /** The window is to go elsewhere. @param {Span} was @param {Span} target @param {number} now */
  aim(was, target, now) {
    // Numbers as large as times leave a moved window not quite as long as it was.
    if (Math.abs(spanOf(target) - spanOf(was)) <= 1e-6 * spanOf(was)) return;
    this.again = now - this.told < GOES_ON_MS;
    this.told = now;
  }

  /** A frame's step. @param {Span} before @param {Span} shown @param {number} ms @param {number} now */
  move(before, shown, ms, now) {
    this.step = [shown[0] - before[0], shown[1] - before[1]];
    this.since = Math.max(1, ms);
    const levels = Math.abs(Math.log2(spanOf(shown) / spanOf(before)));
    this.zooming = levels > (ZOOM_SPEED * ms) / 1000 || (this.zooming && this.goesOn(now));
  }

  /** A frame without a step, as between two of a pinch. @param {number} now @returns {boolean} whether a zoom has ended */
  rest(now) {
    const was = this.zooming;
    this.zooming &&= this.goesOn(now);
    return was && !this.zooming;
  }

  /** Whether a zoom may be going to go on. @param {number} now */
  goesOn(now) {
    return this.again && now - this.told < GOES_ON_MS;
  }

  /** Where the window will be some time after it has come to its target, if it goes on. @param {Span} target @param {number} later @returns {Span} */
  ahead([a, b], later) {
    const from = (this.step[0] * later) / this.since;
    const to = (this.step[1] * later) / this.since;
    const shrinks = from - to;
    const part = shrinks > 0 ? Math.min(1, ((1 - LEAST_AHEAD) * (b - a)) / shrinks) : 1;
    return [a + from * part, b + to * part];
  }
}
