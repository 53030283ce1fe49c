// @ts-check
import { changed } from "../panels/change.js";
import { interval, partsOf, verdictOf } from "../panels/changed_step.js";
import * as format from "../format.js";
import { tick } from "../library.js";
import { deepEqual, equal } from "./assert.js";

const run = { source: "a", device: "sim", gpus: 2, steps: 40, warm_up: 1, losses: [] };
/** @param {Partial<import("../../types/analysis.js").StepChange>} step @returns {any} */
const diff = (step) => ({
  a: [run], b: [run], notes: [],
  step: { a_ns: 1e6, b_ns: 1.2e6, change_ns: 2e5, low_ns: 1e5, high_ns: 3e5, least_ns: 1e5, verdict: "slower", ...step },
  parts: { compute: 5e4, exposed: -1e5, "idle.host_late": 2.5e5 },
  parts_a: { compute: 5e5, exposed: 5e5 }, parts_b: { compute: 5.5e5, exposed: 4e5, "idle.host_late": 2.5e5 },
  part_verdicts: { compute: "same", exposed: "faster" },
});

export const tests = {
  "a change comes with its interval, or with what it lacks"() {
    equal(verdictOf(diff({})), `${interval(1e5, 3e5)}, with 95 % confidence.`);
    equal(verdictOf(diff({ verdict: "same" })), `No difference that these runs can show: one of ${format.time(1e5)} would have been.`);
    equal(verdictOf(diff({ verdict: "same", change_ns: 0 })), "Nothing differs.");
    equal(verdictOf(diff({ verdict: "unknown", low_ns: null })), "There are too few steps to say how sure that is.");
    equal(interval(null, 3), format.NONE);
  },
  "parts come with the greatest change first, those of one run alone too"() {
    deepEqual(partsOf(diff({})).map(({ name, a_ns, b_ns, verdict }) => [name, a_ns, b_ns, verdict]), [
      ["idle.host_late", 0, 2.5e5, null],
      ["exposed", 5e5, 4e5, "faster"],
      ["compute", 5e5, 5.5e5, "same"],
    ]);
  },
  "what can't be decided is marked so"() {
    equal(changed("unknown").textContent?.includes("can't be decided"), true);
  },
  "the last two that are ticked are compared"() {
    deepEqual(tick(tick(tick([], "1", true), "2", true), "3", true), ["2", "3"]);
    deepEqual(tick(["2", "3"], "2", false), ["3"]);
  },
};
