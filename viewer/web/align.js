// @ts-check
/** Which moment of one recording lies over which of another. Arithmetic alone: nothing is drawn or asked for here. */

/**
 * How two recordings lie: `first` over `second`, and what is one ns of the first wide is `ratio` ns of the second.
 * @typedef {{first: number, second: number, ratio: number}} Alignment
 *
 * A step, ns since its recording's origin: on a GPU, and where ranges name it, on the host.
 * @typedef {{begin: number, end: number, host_begin?: number | null, host_end?: number | null}} Step
 */

/** Blank at each side of a step that fills the view, as a share of it. */
const MARGIN = 0.03;

/** Both from their beginnings, as they are before anything is chosen. @type {Alignment} */
export const BEGINNINGS = { first: 0, second: 0, ratio: 1 };

/** @param {Alignment} alignment @param {number} at of the first @returns {number} what lies under it in the second */
export function toSecond({ first, second, ratio }, at) {
  return second + (at - first) * ratio;
}

/** @param {Alignment} alignment @param {number} at of the second @returns {number} what lies over it in the first */
export function toFirst({ first, second, ratio }, at) {
  return first + (at - second) / ratio;
}

/**
 * One step over another; `fit`: as wide as it.
 * @param {Step} first
 * @param {Step} second
 * @param {boolean} fit
 * @returns {Alignment}
 */
export function ofSteps(first, second, fit) {
  const [a, b] = [first.end - first.begin, second.end - second.begin];
  return { first: first.begin, second: second.begin, ratio: fit && a > 0 && b > 0 ? b / a : 1 };
}

/**
 * All the time that either recording has, in the first's.
 * @param {Alignment} alignment
 * @param {Step} first
 * @param {Step} second
 * @returns {[number, number]}
 */
export function union(alignment, first, second) {
  return [Math.min(first.begin, toFirst(alignment, second.begin)), Math.max(first.end, toFirst(alignment, second.end))];
}

/**
 * The window in which a step of both is whole, with a little room, in the first's time.
 * @param {Alignment} alignment
 * @param {Step} first
 * @param {Step} second
 * @returns {[number, number]}
 */
export function around(alignment, first, second) {
  const [from, to] = union(alignment, first, second);
  const room = Math.max(1, (to - from) * MARGIN);
  return [from - room, to + room];
}

/**
 * The step that a moment belongs to: the last one that has begun; -1 before the first. What a step launches may run
 * when it is over, and the next begins where it ends.
 * @param {Step[]} steps by begin
 * @param {number} at
 */
export function stepAt(steps, at) {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle].begin <= at) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/**
 * Steps as what runs on the host has them: there each is when it is launched, on a GPU when that runs.
 * @param {Step[]} steps
 * @returns {Step[]}
 */
export function onHost(steps) {
  return steps.map((step) => {
    const { host_begin: begin, host_end: end } = step;
    return typeof begin === "number" && typeof end === "number" ? { ...step, begin, end } : step;
  });
}

/**
 * The stretch of time of what belongs to a step, whole ns, its end not in it; null where there is no end (or no beginning).
 * @param {Step[]} steps
 * @param {number} place as of stepAt
 * @returns {{from: number | null, to: number | null}}
 */
export function stretch(steps, place) {
  return { from: place >= 0 ? steps[place].begin : null, to: place + 1 < steps.length ? steps[place + 1].begin : null };
}

/**
 * The slice that stands for another: the one as many places after the beginning of its stretch.
 * @template {{row: number, index: number}} T
 * @param {{row: number, index: number}} one
 * @param {T[]} own those of its name, by start
 * @param {T[]} others those of the other recording
 * @returns {{place: number, twin: T | null}} place: from 0; -1: it is not among its own
 */
export function twinOf(one, own, others) {
  const place = own.findIndex(({ row, index }) => row === one.row && index === one.index);
  return { place, twin: place < 0 ? null : (others[place] ?? null) };
}
