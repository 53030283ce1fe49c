// @ts-check
/** What times are counted from: the recording's beginning, a chosen moment, or midnight (the time of day). */

import { roundStep, tickLabel, ticks } from "./axis.js";

/**
 * null: since the recording's beginning; a number: since that moment, ns; "clock": the time of day, in UTC.
 * @typedef {null | number | "clock"} Zero
 */

/** Before this, 2001, nothing was recorded: such stamps count from something else than the epoch. */
const LEAST_CLOCK = 10n ** 18n;
/** Room that a time of day needs, of what others need. */
const CLOCK_WIDE = 1.45;
/** Steps of a clock's ticks above ten seconds, s. */
const CLOCK_STEPS = [10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600];

/** @param {string | undefined} origin ns since the epoch */
function epoch(origin) {
  try {
    return BigInt(origin ?? "0");
  } catch {
    return 0n;
  }
}

/** Whether the time of day is known. @param {string | undefined} origin ns since the epoch */
export const hasClock = (origin) => epoch(origin) > LEAST_CLOCK;

/**
 * The time of day, "09:41:07.250", with the decimals that a step needs.
 * @param {number} at ns since the origin
 * @param {number} step
 * @param {string | undefined} origin ns since the epoch
 */
export function clock(at, step, origin) {
  const places = Math.max(0, Math.min(9, Math.ceil(Math.log10(1e9 / step) - 1e-9)));
  const ns = epoch(origin) + BigInt(Math.round(at));
  const second = 1_000_000_000n;
  // Down, also before the epoch.
  const whole = ns / second - (ns % second < 0n ? 1n : 0n);
  const text = new Date(Number(whole) * 1000).toISOString().slice(11, 19);
  return places === 0 ? text : `${text}.${String(ns - whole * second).padStart(9, "0").slice(0, places)}`;
}

/** @param {string} label @param {number} value */
const signed = (label, value) => (value > 0 ? `+${label}` : label);

/**
 * A moment in words, as exact as `step` asks for.
 * @param {number} at ns since the origin
 * @param {number} step
 * @param {Zero} zero
 * @param {string | undefined} origin ns since the epoch
 */
export function stamp(at, step, zero, origin) {
  if (zero === "clock") return clock(at, step, origin);
  return zero === null ? tickLabel(at, step) : signed(tickLabel(at - zero, step), at - zero);
}

/**
 * What times are counted from: what the user chose, else what an alignment with another recording asks for.
 * @param {{zero: Zero}} state
 * @param {number} aligned
 * @returns {Zero}
 */
export const zeroOf = ({ zero }, aligned) => zero ?? (aligned === 0 ? null : aligned);

/**
 * Ticks of a window, as `ticks` has them, counted from the zero; `anchor` is a text.
 * @param {number} from
 * @param {number} to
 * @param {number} nsPerPixel
 * @param {number} apart pixels that labels need
 * @param {Zero} zero
 * @param {string | undefined} origin ns since the epoch
 * @returns {{anchor: string | null, step: number, ticks: {at: number, label: string}[]}}
 */
export function ticksFrom(from, to, nsPerPixel, apart, zero, origin) {
  if (zero === "clock") {
    // Round in the day's seconds, not in the recording's.
    const phase = Number(epoch(origin) % 3_600_000_000_000n);
    const fine = roundStep(nsPerPixel * apart * CLOCK_WIDE);
    const step = fine < 1e10 ? fine : 1e9 * (CLOCK_STEPS.find((seconds) => seconds * 1e9 >= fine) ?? 3600 * Math.ceil(fine / 3.6e12));
    const list = [];
    for (let k = Math.ceil((from + phase) / step); k * step - phase <= to && list.length < 400; k += 1) {
      const at = k * step - phase;
      list.push({ at, label: clock(at, step, origin) });
    }
    return { anchor: null, step, ticks: list };
  }
  const shift = zero ?? 0;
  const { anchor, step, ticks: list } = ticks(from - shift, to - shift, nsPerPixel, apart);
  const text = anchor === null ? null : tickLabel(anchor, Math.max(1, step), Math.abs(anchor));
  return {
    anchor: text === null || zero === null || anchor === null ? text : signed(text, anchor), step,
    ticks: list.map(({ at, label }) => ({ at: at + shift, label: zero === null || anchor !== null ? label : signed(label, at) })),
  };
}

/**
 * What a zero is called: "step 3", "the mark", "this moment".
 * @param {Zero} zero
 * @param {any} info
 * @param {{from: number, to: number}[]} marks
 */
export function zeroName(zero, info, marks) {
  if (zero === null) return "the beginning";
  if (zero === "clock") return "midnight, UTC";
  const step = (info.steps ?? []).find((/** @type {any} */ one) => Math.round(one.begin) === Math.round(zero));
  if (step) return `step ${step.number}`;
  return marks.some((mark) => Math.round(mark.from) === Math.round(zero)) ? "the mark" : "0";
}

/**
 * The moment that a user means by "from here": of the area, the selection, the latest mark, or the step at `at`.
 * @param {import("./state.js").ViewState} state
 * @param {any} info
 * @param {number} at
 * @returns {number | null}
 */
export function zeroHere({ area, selection, marks }, info, at) {
  if (area) return Math.round(area.from);
  if (selection) return selection.start;
  if (marks.length > 0) return Math.round(marks[marks.length - 1].from);
  const step = (info.steps ?? []).findLast((/** @type {any} */ one) => one.begin <= at);
  return step ? Math.round(step.begin) : null;
}
