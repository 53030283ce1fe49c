// @ts-check
/** How much of what a GPU can compute a step used, where operators and their shapes are recorded. */

import * as format from "../format.js";

/** @typedef {import("../../types/analysis.js").StepAnalysis} Step */

/** @type {{key: "mfu" | "hfu", title: string, hint: string}[]} */
const RATES = [
  { key: "mfu", title: "MFU", hint: "Model FLOP utilization: FLOP of the forward and backward pass over what the GPU can do at most in the step's time" },
  { key: "hfu", title: "HFU", hint: "Hardware FLOP utilization: the same with what was recomputed" },
];

/**
 * Columns of steps' utilization; none where no step has any.
 * @param {{step: Step}[]} rows
 * @returns {import("../table.js").Column<any>[]}
 */
export function utilization(rows) {
  return RATES.filter(({ key }) => rows.some(({ step }) => typeof step[key] === "number")).map(({ key, title, hint }, at) => ({
    key,
    title,
    hint,
    number: true,
    ...(at > 0 ? { spare: /** @type {2} */ (2) } : {}),
    value: (row) => row.step[key],
    text: (row) => format.percent(row.step[key]),
  }));
}

/** The same as lines of a tooltip. @param {Step} step @returns {{name: string, value: string}[]} */
export function ratesOf(step) {
  return RATES.flatMap(({ key, title }) => (typeof step[key] === "number" ? [{ name: title, value: format.percent(step[key]) }] : []));
}
