// @ts-check
/** Steps that are chosen in a chart, and what can be done with them. */

import { h, replace } from "../dom.js";
import { stepRange, stepWords } from "../step_range.js";

/** A step's number: what its name ends with. @param {{name: string}} step @param {number} [index] where it has none */
export function number(step, index = 0) {
  return /(\d+)(?: \(detected\))?$/.exec(step.name)?.[1] ?? String(index);
}

/**
 * From the first to the last of some steps, as the server takes it; "" of none.
 * @param {{name: string}[]} steps
 */
export function rangeOf(steps) {
  const numbers = steps.map((step) => Number(number(step)));
  return steps.length ? stepRange(`${Math.min(...numbers)}-${Math.max(...numbers)}`) ?? "" : "";
}

/**
 * Whether something begins within the steps that an analysis is of, for lists that know of no steps.
 * @param {import("../../types/analysis.js").Analysis} analysis
 * @returns {(one: {start_ns: number | null}) => boolean}
 */
export function within(analysis) {
  let from = Infinity;
  let to = -Infinity;
  for (const { steps } of analysis.ranks)
    for (const { start_ns: start, end_ns: end } of steps) {
      from = Math.min(from, start);
      to = Math.max(to, end);
    }
  return ({ start_ns: start }) => start !== null && start >= from && start < to;
}

/**
 * A line that names the chosen steps, with what to do with them; nothing while none is chosen.
 * @param {import("./shared.js").Context} context
 * @param {() => void} clear
 */
export function rangeLine(context, clear) {
  const element = h("p", { class: "p-bar p-range-line", "aria-live": "polite", hidden: true });
  /** @type {any[]} */
  let steps = [];
  const only = () => {
    const range = rangeOf(steps);
    if (range) context.state.set({ steps: range });
  };
  return {
    element,
    only,
    /** @param {any[]} chosen */
    show(chosen) {
      steps = chosen;
      const range = rangeOf(steps);
      element.hidden = range === "";
      if (range === "") return replace(element);
      const words = stepWords(range);
      const go = () => context.goTo({ from: Math.min(...steps.map((step) => step.start_ns)), to: Math.max(...steps.map((step) => step.end_ns)) });
      replace(element, h("strong", null, words[0].toUpperCase() + words.slice(1)),
        h("button", { type: "button", class: "p-button", title: "Limit all numbers of the page to them (Shift+Enter)", onclick: only }, "Only these"),
        h("button", { type: "button", class: "p-link", onclick: go }, "Show on the timeline"),
        h("button", { type: "button", class: "p-link", onclick: clear }, "None"));
    },
  };
}
