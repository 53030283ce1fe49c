// @ts-check
import { deepEqual, equal } from "./assert.js";
import { address, decodePath } from "../api.js";
import { firstAbove, trace } from "../critical.js";
import { readChange, withChange } from "../panels/whatif.js";
import { bestFirst, changeOf } from "../panels/why.js";
import { href, parse } from "../url.js";

/** @param {[number, number, number][]} list start, end and row @returns {import("../api.js").PathColumns} */
function pieces(list) {
  const n = list.length;
  const buffer = new ArrayBuffer(16 + 28 * n);
  new Uint32Array(buffer, 0, 4).set([0x48544150, 1, n, n]);
  new Float64Array(buffer, 16, 2 * n).set([...list.map(([start]) => start), ...list.map(([, end]) => end)]);
  new Uint32Array(buffer, 16 + 16 * n, 3 * n).set([...list.map((_, at) => at), ...list.map(([, , row]) => row), ...list.map(() => 7)]);
  return decodePath(buffer);
}

/**
 * The strokes of a path from `from` to `to`, a pixel each ns; row 9 is not drawn.
 * @param {[number, number, number][]} list
 * @param {[number, number]} window
 * @param {number} [scale]
 */
function strokes(list, window, scale = 1) {
  /** @type {string[]} */
  const found = [];
  const add = (/** @type {string} */ letter) => (/** @type {number} */ x, /** @type {number} */ y) => void found.push(`${letter}${x},${y}`);
  trace(pieces(list), (at) => (at - window[0]) * scale, (row) => (row === 9 ? null : 10 * row), window, { moveTo: add("M"), lineTo: add("L") });
  return found.join(" ");
}

/** @param {any} more */
const finding = (more) => ({ code: "slow_rank", rank: null, ranks: [], saves_ns: 0, saves_per_step_ns: null, ...more });

/** @type {Record<string, () => void>} */
export const tests = {
  "pieces come as columns"() {
    const { n, total, start, end, part, row, index } = pieces([[5, 8, 1], [8, 9.5, 2]]);
    deepEqual([n, total, [...start], [...end], [...part], [...row], [...index]], [2, 2, [5, 8], [8, 9.5], [0, 1], [1, 2], [7, 7]]);
  },
  "the first greater one is found"() {
    const sorted = new Float64Array([1, 3, 3, 7]);
    deepEqual([0, 1, 3, 6, 7].map((than) => firstAbove(sorted, than)), [0, 1, 3, 3, 4]);
  },
  "the path is one line from row to row"() {
    equal(strokes([[0, 10, 1], [10, 20, 2]], [0, 20]), "M0,10 L10,10 L10,20 L20,20");
    // What is on no row is passed over, and what lies before the window but for one piece left out.
    equal(strokes([[0, 10, 1], [10, 20, 9], [20, 30, 3]], [0, 30]), "M0,10 L10,10 L20,30 L30,30");
    equal(strokes([[0, 10, 1], [10, 20, 2], [20, 30, 3], [30, 40, 4]], [25, 28]), "M-15,20 L-5,20 L-5,30 L5,30 L5,40 L15,40");
  },
  "pieces of one pixel are one stroke over their rows"() {
    const many = /** @type {[number, number, number][]} */ ([
      [0, 1000, 1],
      ...Array.from({ length: 100 }, (_, at) => [1000 + at, 1001 + at, at % 2 ? 5 : 0]),
      [1100, 2000, 2],
    ]);
    equal(strokes(many, [0, 2000], 0.001), "M0,10 L1,10 L1,0 L1,50 L1,50 L1.1,20 L2,20");
  },
  "changes are read in their halves, and one target has one change"() {
    deepEqual(readChange("kernel:a=b*=0.8x"), { target: "kernel:a=b*", value: "0.8x", how: "times", factor: 0.8 });
    deepEqual(readChange("rank:2=as-others"), { target: "rank:2", value: "as-others", how: "as-others", factor: 1 });
    equal(readChange("host=+5us").how, "plus");
    equal(readChange("host=none").factor, 0);
    deepEqual(withChange(["host=none", "rank:1=none"], "host=0.5x"), ["host=0.5x", "rank:1=none"]);
    deepEqual(withChange(["host=none"], "rank:1=none"), ["host=none", "rank:1=none"]);
  },
  "what can be tried follows from codes"() {
    equal(changeOf(/** @type {any} */ (finding({ rank: 6, ranks: [6, 7] }))), "rank:6,7=as-others");
    equal(changeOf(/** @type {any} */ (finding({ rank: 3 }))), "rank:3=as-others");
    equal(changeOf(/** @type {any} */ (finding({}))), null);
    equal(changeOf(/** @type {any} */ (finding({ code: "disk_faults" }))), null);
    const all = [finding({ saves_per_step_ns: 1 }), finding({ code: "hang" }), finding({ saves_per_step_ns: 5 }), finding({ code: "" })];
    deepEqual(bestFirst(/** @type {any} */ (all)).map((one) => (one.code === "hang" ? "hang" : one.saves_per_step_ns)), ["hang", 5, 1]);
  },
  "a link has the changes, each once, and whether the path shows"() {
    const place = { rec: "1", tab: "why", path: /** @type {true} */ (true), changes: ["rank:1,2=as-others", "kernel:*<&>*=0.5x"] };
    deepEqual(parse(href(place)), place);
    equal(address("whatif", { set: ["a=none", "b=1x"], steps: undefined }), "whatif?set=a%3Dnone&set=b%3D1x");
    equal(address("whatif", { set: [] }), "whatif");
  },
};
