// @ts-check
/** The same operation in the other recording: of the same name, as many times in the same step before it. */

import { ranges } from "./api.js";
import { onHost, stepAt, stretch, twinOf } from "./align.js";

/** @typedef {import("./state.js").Ref} Ref */
/**
 * What is known of a slice and of what stands for it.
 * @typedef {object} Pairing
 * @property {string} name       whole
 * @property {number} step       the place of its step; -1: before the first
 * @property {(number | undefined)[]} begins   when that begins, in the first and the second
 * @property {number} place      how many of the name come before it in the step; -1: more than are asked for
 * @property {[number, number]} counts   of the name in the step, in the first and the second
 * @property {[Ref | null, Ref | null]} refs   itself and its twin, the first's before the second's
 */

/** Slices of one name in one step at most. */
const MOST = 1000;
/** Bytes of a pattern at most; of a longer name its beginning and end are looked for. */
const PATTERN = 900;
/** Answers that are kept. */
const KEPT = 400;

/**
 * A regular expression for one name, and nothing else.
 * @param {string} name
 */
export function exactly(name) {
  const escape = (/** @type {string} */ text) =>
    text.replace(/[\\.+*?()|[\]{}^$#&\-~\s]/g, (sign) => (/\s/.test(sign) ? `\\x{${sign.charCodeAt(0).toString(16)}}` : `\\${sign}`));
  const whole = escape(name);
  const length = (/** @type {string} */ text) => new TextEncoder().encode(text).length;
  if (length(whole) <= PATTERN) return `^${whole}$`;
  const letters = [...name];
  return `(?s)^${escape(letters.slice(0, 100).join(""))}.*${escape(letters.slice(-100).join(""))}$`;
}

export class Counterparts {
  /** @param {import("./pair.js").Pair} pair */
  constructor(pair) {
    this.pair = pair;
    /** @type {Map<string, Promise<any>>} */
    this.answers = new Map();
  }

  /** Forgets everything: the recordings or the rows compared are others. */
  clear() {
    this.answers.clear();
  }

  /** Asks once. @private @param {string} key @param {() => Promise<any>} ask */
  once(key, ask) {
    let answer = this.answers.get(key);
    if (!answer) {
      if (this.answers.size >= KEPT) this.answers.clear();
      answer = ask();
      this.answers.set(key, answer);
      answer.catch(() => this.answers.delete(key));
    }
    return answer;
  }

  /** Everything about a slice. @param {0 | 1} side @param {{row: number, index: number}} ref @returns {Promise<any>} */
  slice(side, ref) {
    const { api } = this.pair.sides[side].context;
    return this.once(`slice ${side} ${ref.row} ${ref.index}`, () => api.slice(ref.row, ref.index));
  }

  /** The steps as what is in a row has them. @private @param {0 | 1} side @param {import("./rows.js").Row} row */
  stepsOf(side, row) {
    const steps = this.pair.steps[side];
    return row.device === null ? onHost(steps) : steps;
  }

  /**
   * Slices of a name in a step, by start, on rows of the sort that `like` is.
   * @private
   * @param {0 | 1} side
   * @param {import("./rows.js").Row} like
   * @param {string} name
   * @param {number} step
   * @returns {Promise<Ref[]>}
   */
  async named(side, like, name, step) {
    const { rows, context } = this.pair.sides[side];
    const steps = this.stepsOf(side, like);
    if (step >= steps.length) return [];
    const { from, to } = stretch(steps, step);
    const alike = this.pair
      .kept(side, rows)
      .filter((row) => row.type === "slices" && row.what === like.what && (row.device === null) === (like.device === null));
    if (!alike.length) return [];
    const key = `named ${side} ${like.what} ${like.device === null} ${step} ${name}`;
    const answer = await this.once(key, () =>
      context.api.rec("search", { q: exactly(name), regex: 1, case: 1, limit: MOST, from, to, rows: ranges(alike.map((row) => row.row)) }),
    );
    return answer.hits;
  }

  /**
   * Finds what stands for a slice in the other recording.
   * @param {0 | 1} side
   * @param {Ref} ref
   * @returns {Promise<Pairing>}
   */
  async of(side, ref) {
    const row = this.pair.sides[side].rows[ref.row];
    const detail = await this.slice(side, ref);
    const name = detail.full_name ?? detail.name;
    const step = stepAt(this.stepsOf(side, row), detail.start);
    const lists = await Promise.all([this.named(0, row, name, step), this.named(1, row, name, step)]);
    const { place, twin } = twinOf(detail, lists[side], lists[1 - side]);
    const own = { row: detail.row, index: detail.index, start: detail.start, duration: detail.duration, name: detail.name, kind: detail.kind };
    const begins = /** @type {(0 | 1)[]} */ ([0, 1]).map((at) => this.stepsOf(at, row)[step]?.begin);
    return { name, step, begins, place, counts: [lists[0].length, lists[1].length], refs: side === 0 ? [own, twin] : [twin, own] };
  }

  /** The first slice of a name in a step of either recording. @param {string} name @param {number} step @returns {Promise<{side: 0 | 1, ref: Ref} | null>} */
  async firstOf(name, step) {
    for (const side of /** @type {const} */ ([0, 1])) {
      const steps = this.pair.steps[side];
      if (step >= steps.length) continue;
      const ref = await this.first(side, name, stretch(steps, step));
      if (ref) return { side, ref };
    }
    return null;
  }

  /** The same at any time. @param {string} name @returns {Promise<{side: 0 | 1, ref: Ref} | null>} */
  async anywhere(name) {
    for (const side of /** @type {const} */ ([0, 1])) {
      const ref = await this.first(side, name, {});
      if (ref) return { side, ref };
    }
    return null;
  }

  /** @private @param {0 | 1} side @param {string} name @param {{from?: number | null, to?: number | null}} time @returns {Promise<Ref | null>} */
  async first(side, name, time) {
    const { rows, context } = this.pair.sides[side];
    const shown = this.pair.shownRows(side, rows).filter((row) => row.type === "slices");
    if (!shown.length) return null;
    const answer = await context.api.rec("search", { q: exactly(name), regex: 1, case: 1, limit: 1, ...time, rows: ranges(shown.map((row) => row.row)) });
    return answer.hits[0] ?? null;
  }
}
