// @ts-check
import { close, deepEqual, equal } from "./assert.js";
import { around, ofSteps, onHost, stepAt, stretch, toFirst, toSecond, twinOf, union } from "../align.js";
import { exactly } from "../counterpart.js";
import { href, parse } from "../url.js";
import { changes, ordinal, sides } from "../panels/pair_view.js";

/** Steps of 40 ns from 100, and of 50 from 1000. */
const first = [{ begin: 100, end: 140 }, { begin: 140, end: 180 }, { begin: 180, end: 220 }];
const second = [{ begin: 1000, end: 1050 }, { begin: 1050, end: 1100 }];

/**
 * A step of `time`: what computes, how much communicates meanwhile, how much alone.
 * @param {number} time
 * @param {number} compute
 * @param {number} hidden
 * @param {number} exposed
 */
const step = (time, compute, hidden, exposed) => ({
  duration_ns: time,
  span_ns: time,
  parts: { compute: compute - hidden, hidden, exposed, copies: 0, idle: time - compute - exposed },
});

/** @type {Record<string, () => void>} */
export const tests = {
  "a step lies under a step, on one scale"() {
    const one = ofSteps(first[1], second[1], false);
    deepEqual(one, { first: 140, second: 1050, ratio: 1 });
    equal(toSecond(one, 140), 1050);
    equal(toSecond(one, 150), 1060);
    equal(toSecond(one, 100), 1010);
    equal(toFirst(one, 1100), 190);
  },
  "stretched, both ends of the step meet"() {
    const one = ofSteps(first[1], second[1], true);
    close(one.ratio, 1.25);
    close(toSecond(one, 140), 1050);
    close(toSecond(one, 180), 1100);
    close(toSecond(one, 160), 1075);
    close(toFirst(one, 1075), 160);
    close(toFirst(one, toSecond(one, 123.5)), 123.5);
    // A step without a length has no scale of its own.
    equal(ofSteps({ begin: 5, end: 5 }, second[0], true).ratio, 1);
  },
  "the window holds the longer step, with room at both sides"() {
    const [from, to] = around(ofSteps(first[1], second[1], false), first[1], second[1]);
    // 140 to 190, and 3 % of 50 at each side.
    close(from, 138.5);
    close(to, 191.5);
  },
  "all that either has, in the first's time"() {
    deepEqual(union(ofSteps(first[1], second[1], false), { begin: 0, end: 250 }, { begin: 900, end: 1150 }), [-10, 250]);
    deepEqual(union(ofSteps(first[0], second[0], false), { begin: 0, end: 250 }, { begin: 950, end: 1300 }), [0, 400]);
  },
  "a moment belongs to the last step that has begun"() {
    deepEqual([99, 100, 139, 140, 219, 500].map((at) => stepAt(first, at)), [-1, 0, 0, 1, 2, 2]);
    equal(stepAt([], 5), -1);
    deepEqual([-1, 0, 2].map((place) => stretch(first, place)), [{ from: null, to: 100 }, { from: 100, to: 140 }, { from: 180, to: null }]);
    deepEqual(stretch([], -1), { from: null, to: null });
  },
  "on the host a step is when it is launched"() {
    const ahead = [{ begin: 100, end: 140, host_begin: 10, host_end: 30 }, { begin: 140, end: 180, host_begin: 30, host_end: 60 }];
    deepEqual([20, 30, 70, 150].map((at) => stepAt(onHost(ahead), at)), [0, 1, 1, 1]);
    deepEqual([20, 30, 70, 150].map((at) => stepAt(ahead, at)), [-1, -1, -1, 1]);
    // Detected ones are on the GPU alone.
    deepEqual(onHost([{ begin: 1, end: 2, host_begin: null, host_end: null }, { begin: 2, end: 3 }]).map(({ begin }) => begin), [1, 2]);
  },
  "the same occurrence of a name is its twin"() {
    const refs = (/** @type {number[]} */ ...indices) => indices.map((index) => ({ row: 1, index }));
    deepEqual(twinOf({ row: 1, index: 7 }, refs(5, 7, 9), refs(20, 30)), { place: 1, twin: { row: 1, index: 30 } });
    deepEqual(twinOf({ row: 1, index: 9 }, refs(5, 7, 9), refs(20, 30)), { place: 2, twin: null });
    deepEqual(twinOf({ row: 2, index: 7 }, refs(5, 7), refs(20, 30)), { place: -1, twin: null });
  },
  "an expression for one name, whatever is in it"() {
    equal(exactly("gemm"), "^gemm$");
    equal(exactly("void f<float>(A*, b) [x]"), "^void\\x{20}f<float>\\(A\\*,\\x{20}b\\)\\x{20}\\[x\\]$");
    const long = exactly("k".repeat(5000));
    equal(long.length < 1000 && long.startsWith("(?s)^kkk") && long.endsWith("kkk$"), true);
  },
  "the answer counts each moment once"() {
    // 10 of communication that was hidden is exposed: a step is 10 longer, and computes as long as before.
    const both = sides(/** @type {any} */ ({
      step: { a_ns: 42, b_ns: 52 },
      parts_a: { compute: 20, hidden: 10, "idle.host_late": 10, rank_spread: 2 },
      parts_b: { compute: 30, exposed: 10, "idle.host_late": 10, rank_spread: 2 },
    }));
    deepEqual([both.a.time, both.b.time, both.b.parts.idle], [42, 52, 12]);
    const parts = changes(both);
    deepEqual(parts.map(({ key, by }) => [key, by]), [["exposed", 10], ["compute", 0], ["copies", 0], ["idle", 0]]);
    equal(parts.reduce((sum, { by }) => sum + by, 0), both.b.time - both.a.time);
  },
  "places are counted in words"() {
    deepEqual([1, 2, 3, 4, 11, 12, 13, 21, 22, 101, 111].map(ordinal), ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "22nd", "101st", "111th"]);
  },
  "a link says what is compared, and how"() {
    /** @type {import("../state.js").Comparison} */
    const compare = { other: "ab12", settings: { fit: true, align: "step", step: 7, place: { rank: 1, device_index: 1 }, rows: "host" }, window: [100, 250] };
    const link = href({ rec: "cd34", tab: "compare", compare });
    equal(link, "#rec=cd34&tab=compare&with=ab12&align=step:7&width=same&place=1.1&show=host&ct=100~250");
    deepEqual(parse(link).compare, compare);
    const marked = href({ compare: { other: "x", settings: { align: "mark", marks: [5, 9], place: { rank: null, device_index: 0 } }, window: null } });
    equal(marked, "#with=x&align=mark:5~9&place=none.0");
    deepEqual(parse(marked).compare, {
      other: "x",
      settings: { fit: false, align: "mark", marks: [5, 9], place: { rank: null, device_index: 0 } },
      window: null,
    });
    deepEqual(parse("#with=x&align=step:-1&place=a.b&ct=9~3&show=no").compare, { other: "x", settings: { fit: false }, window: null });
    equal(parse("#align=step:4").compare, undefined);
  },
};
