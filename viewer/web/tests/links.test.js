// @ts-check
/** Addresses, the time axis, the store, and rows as the server takes them. */

import { address, ranges } from "../api.js";
import { roundStep, tickLabel, ticks } from "../axis.js";
import { Store } from "../state.js";
import { spell, unspell } from "../rows.js";
import { href, parse } from "../url.js";
import { deepEqual, equal, ok } from "./assert.js";

export const tests = {
  "a link comes back as it was"() {
    const place = {
      rec: "a b",
      window: /** @type {[number, number]} */ ([-5, 123456789012]),
      selection: { key: "r0.p0/gpu0/stream7/0", start: 77 },
      pins: ["rank 0", "x&y=1"],
      collapsed: ["rank 1/GPU 0"],
      area: { from: -3, to: 400, rows: ["r0.p0/gpu0/stream7/0..r0.p0/gpu0/stream9/1", "r1.p1/nvtx/a, b & c/0"] },
      flame: /** @type {true} */ (true),
      filter: "stream <7>",
      empty: /** @type {true} */ (true),
      matches: /** @type {true} */ (true),
      height: /** @type {"tall"} */ ("tall"),
      query: "gemm.*#",
      mode: { regex: true, case: false },
      tab: "kernels",
      marks: [
        { from: 1, to: 1, label: "" },
        { from: 5, to: 9, label: "" },
      ],
      order: { "": ["rank 1", "rank 0 & more"], "rank 1": ["rank 1/GPU 0", 'rank 1/a~b"c'] },
    };
    deepEqual(parse(href(place)), place);
  },
  "what is compared comes back too"() {
    const compare = {
      other: "b",
      settings: { fit: false, align: /** @type {"step"} */ ("step"), step: 3, rows: /** @type {"host"} */ ("host") },
      window: /** @type {[number, number]} */ ([-5, 10]),
      selection: { side: /** @type {1} */ (1), key: "r0.p0/gpu0/stream7/0", start: -77 },
      area: /** @type {[number, number]} */ ([2, 7]),
    };
    deepEqual(parse(href({ rec: "a", tab: "compare", compare })), { rec: "a", tab: "compare", compare });
    // A link that was made before selections were in it.
    const old = parse("#rec=a&tab=compare&with=b&align=step:3&show=host&ct=-5~10").compare;
    deepEqual(old, { other: "b", settings: compare.settings, window: compare.window });
  },
  "rows of an area, by their keys"() {
    const keys = ["a/0", "a/1", "c..d", "power", "b..", "e"];
    const rows = /** @type {any[]} */ (keys.map((key, row) => ({ key, row, type: key === "power" ? "counter" : "slices" })));
    const numbers = (/** @type {number[]} */ chosen) => spell(rows, chosen);
    deepEqual(numbers([0, 1, 2, 4]), ["a/0..b.."]);
    deepEqual(numbers([5, 0, 2]), ["a/0", "c..d", "e"]);
    for (const chosen of [[0, 1, 2, 4], [0, 2, 5], [2, 4], [4], [], [0, 1, 2, 4, 5]]) deepEqual(unspell(rows, numbers(chosen)), chosen);
    // Rows that came since lie in between; what is not there is left out.
    const grown = /** @type {any[]} */ (["a/0", "a/0b", "a/1", "x"].map((key, row) => ({ key, row, type: "slices" })));
    deepEqual(unspell(grown, ["a/0..a/1", "gone", "gone..x", "x..gone"]), [0, 1, 2]);
  },
  "a link that makes no sense is nothing"() {
    deepEqual(parse("#t=9~1&sel=nowhere&mark=x&area=5~1&on=a&height=9&qm=x&empty=no"), {});
    deepEqual(parse("#area=1~5"), {}, "an area of no rows");
    deepEqual(parse(""), {});
    deepEqual(parse("#t=NaN~Infinity"), {});
    deepEqual(parse("#order=x&order=%7B%7D&order=%5B%22a%22%5D&order=%5B%22a%22%2C1%5D"), {});
  },
  "rows as ranges"() {
    equal(ranges([9, 0, 1, 2, 5, 4]), "0-2,4-5,9");
    equal(ranges([]), "");
    equal(address("/x", { a: 1, b: null, c: "ü&" }), "/x?a=1&c=%C3%BC%26");
  },
  "ticks are round, in the window, and far enough apart"() {
    equal(roundStep(3), 5);
    equal(roundStep(0.2), 1);
    equal(roundStep(2e6), 2e6);
    for (const [from, to] of [[0, 1e9], [1.2345e9, 1.2346e9], [-50, 50], [5e12, 5e12 + 20]]) {
      const { ticks: list, step } = ticks(from, to, (to - from) / 1000, 110);
      ok(list.length >= 1 && list.length <= 10, `${list.length}`);
      ok(list.every(({ at }) => at >= from && at <= to && Math.abs(at / step - Math.round(at / step)) < 1e-6));
    }
  },
  "labels have the digits that the step needs"() {
    equal(tickLabel(1.5e6, 1e5), "1.5\u202fms");
    equal(tickLabel(0, 1000, 5e6), "0.000\u202fms");
    equal(tickLabel(-2e3, 1e3), "−2\u202fµs");
    equal(tickLabel(5e15, 1e15), "5\u202f000\u202f000\u202fs");
    equal(tickLabel(-1234567.891e9, 1e6), "−1\u202f234\u202f567.891\u202fs");
    equal(tickLabel(9999e9, 1e9), "9999\u202fs");
    const far = ticks(5e9, 5e9 + 1000, 1, 110);
    ok(far.anchor !== null && far.ticks.every(({ label }) => label.startsWith("+")));
  },
  async "listeners hear once of several changes, and only of those they asked for"() {
    const store = new Store({ a: 1, b: 1 });
    let heard = 0;
    store.subscribe(["a"], () => (heard += 1));
    store.set({ a: 2 });
    store.set({ a: 3 });
    store.set({ b: 2 });
    await Promise.resolve();
    equal(heard, 1);
    store.set({ b: 3 });
    await Promise.resolve();
    equal(heard, 1);
  },
};
