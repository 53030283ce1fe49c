// @ts-check
/** What changed in a step between two recordings, how sure that is, and what the change is made of. */

import { h } from "../dom.js";
import * as format from "../format.js";
import { table } from "../table.js";
import { changed, difference } from "./change.js";
import { section } from "./shared.js";

/** @typedef {import("../../types/analysis.js").Diff} Diff */

/** From `low` to `high`, as changes. @param {number | null | undefined} low @param {number | null | undefined} high */
export function interval(low, high) {
  if (typeof low !== "number" || typeof high !== "number") return format.NONE;
  return `${format.signed(format.time, low)} to ${format.signed(format.time, high)}`;
}

/** The answer in words. @param {Diff} diff */
export function verdictOf({ step, a, b }) {
  const whole = [...a, ...b].some((run) => run.steps === 0);
  if (step.change_ns === 0 && step.verdict === "same") return "Nothing differs.";
  if (step.verdict === "unknown") {
    return whole ? "Without steps nothing says how sure that is." : "There are too few steps to say how sure that is.";
  }
  if (step.verdict === "same" && step.least_ns !== null) {
    return `No difference that these runs can show: one of ${format.time(step.least_ns)} would have been.`;
  }
  return `${interval(step.low_ns, step.high_ns)}, with 95 % confidence.`;
}

/** What a part is called. @param {string} name */
function titleOf(name) {
  if (name === "rank_spread") return "the slowest GPU beyond the mean";
  return name.replace(/^(exposed|hidden)$/, "$1 communication").replace("idle.", "idle: ").replaceAll("_", " ");
}

/** The parts, the greatest change first. @param {Diff} diff */
export function partsOf(diff) {
  return Object.entries(diff.parts)
    .map(([name, change_ns]) => ({
      name,
      change_ns,
      a_ns: diff.parts_a[name] ?? 0,
      b_ns: diff.parts_b[name] ?? 0,
      verdict: diff.part_verdicts[name] ?? null,
    }))
    .sort((a, b) => Math.abs(b.change_ns) - Math.abs(a.change_ns));
}

/** @param {Diff} diff */
export function changedStep(diff) {
  const whole = [...diff.a, ...diff.b].some((run) => run.steps === 0);
  const list = table({
    name: "changed-parts",
    plain: true,
    rows: partsOf(diff),
    columns: [
      { key: "name", title: "Part", value: (row) => row.name, text: (row) => titleOf(row.name) },
      { key: "a_ns", title: "First", number: true, value: (row) => row.a_ns, text: (row) => format.time(row.a_ns) },
      { key: "b_ns", title: "Second", number: true, value: (row) => row.b_ns, text: (row) => format.time(row.b_ns) },
      { key: "change_ns", title: "Difference", number: true, value: (row) => row.change_ns, cell: (row) => difference(row.a_ns, row.b_ns) },
      { key: "verdict", title: "Change", value: (row) => row.verdict ?? "", cell: (row) => (row.verdict ? changed(row.verdict) : format.NONE) },
    ],
  });
  const notes = diff.notes.length ? h("details", { class: "p-note" },
    h("summary", null, `${diff.notes.length} ${diff.notes.length === 1 ? "note" : "notes"}`),
    h("ul", null, diff.notes.map((note) => h("li", null, note)))) : null;
  return section(whole ? "What the runs are made of" : "What a step is made of", "The parts sum to the change.",
    list.element, notes);
}
