// @ts-check
/** Which steps all numbers are of. */

import { partOf } from "../bar.js";
import { number, rangeOf, within } from "../panels/step_choice.js";
import { panel } from "../panels/shared.js";
import { initialState, Store } from "../state.js";
import { isAmong, stepRange, stepWords } from "../step_range.js";
import { href, parse } from "../url.js";
import { deepEqual, equal, ok } from "./assert.js";

/** @param {string} name */
const step = (name) => ({ name });

/** @type {Record<string, () => void | Promise<void>>} */
export const tests = {
  "a range of steps is written in several ways"() {
    for (const text of ["5-20", " 5 .. 20 ", "5–20", "5..20"]) equal(stepRange(text), "5-20", text);
    for (const text of ["7", "7..7", " 7-7"]) equal(stepRange(text), "7", text);
    for (const wrong of ["", "5-3", "-3", "5-", "all", "1,2", "1-2-3", "1e3", "12345678901"]) equal(stepRange(wrong), null, wrong);
    equal(stepWords("5-20"), "steps 5–20");
    equal(stepWords("7"), "step 7");
    deepEqual([4, 5, 20, 21].map((one) => isAmong("5-20", one)), [false, true, true, false]);
    ok(isAmong("", 3) && isAmong("3", 3) && !isAmong("3", 4));
  },
  "the range is in the link; one that makes no sense is none"() {
    deepEqual(parse(href({ tab: "idle", steps: "5-20" })), { tab: "idle", steps: "5-20" });
    deepEqual(parse("#steps=5..20"), { steps: "5-20" });
    deepEqual(parse("#steps=20-5&steps=x"), {});
    equal(initialState().steps, "");
  },
  "steps that are chosen in the chart are a range of their numbers"() {
    equal(number(step("ProfilerStep#12")), "12");
    equal(number(step("step 3 (detected)")), "3");
    equal(number(step("warm up"), 4), "4");
    equal(rangeOf([step("step 9"), step("step 5"), step("step 7")]), "5-9");
    equal(rangeOf([step("step 5")]), "5");
    equal(rangeOf([]), "");
    deepEqual(partOf({ steps: rangeOf([step("step 5"), step("step 6")]), ranks: "" }).query, { steps: "5-6" });
  },
  "collectives of steps are those that begin in them"() {
    const at = (/** @type {number} */ start_ns, /** @type {number} */ end_ns) => ({ start_ns, end_ns });
    const isWithin = within(/** @type {any} */ ({ ranks: [{ steps: [at(10, 20), at(20, 30)] }, { steps: [at(12, 33)] }, { steps: [] }] }));
    deepEqual([9, 10, 32, 33, null].map((start_ns) => isWithin({ start_ns })), [false, true, true, false, false]);
  },
  async "a panel says which steps it is of, and one that knows no steps asks for the whole"() {
    if (typeof document === "undefined") return;
    const state = new Store(initialState());
    state.set({ steps: "3-5" });
    /** @type {any} */
    const context = { state, info: {}, analysis: async () => ({ of: "some" }), wholeAnalysis: async () => ({ of: "all" }) };
    /** @param {Parameters<typeof panel>[3]} of */
    const said = async (of) => {
      const container = document.createElement("div");
      panel("a", "A", (/** @type {any} */ analysis) => analysis.of, of).mount(container, context);
      await new Promise((resolve) => setTimeout(resolve));
      return container.textContent;
    };
    equal(await said({}), "Only steps 3–5.some");
    equal(await said({ partly: "Losses are" }), "Only steps 3–5. Losses are of the whole run.some");
    equal(await said({ whole: true }), "all");
    context.analysis = async () => {
      throw Object.assign(new Error("the recording has none of these steps"), { status: 404 });
    };
    equal(await said({}), "Only steps 3–5: the recording has none of these stepsAll steps");
    state.set({ steps: "" });
    context.analysis = async () => ({ of: "all" });
    equal(await said({ partly: "Losses are" }), "all");
  },
};
