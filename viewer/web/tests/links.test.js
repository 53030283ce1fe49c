// @ts-check
/** Addresses, the time axis, the store, and rows as the server takes them. */

import { address, ranges } from "../api.js";
import { roundStep, tickLabel, ticks } from "../axis.js";
import { Store } from "../state.js";
import { href, parse } from "../url.js";
import { deepEqual, equal, ok } from "./assert.js";

export const tests = {
  "a link comes back as it was"() {
    const place = {
      rec: "a b", window: /** @type {[number, number]} */ ([-5, 123456789012]), selection: { key: "r0.p0/gpu0/stream7/0", start: 77 }, pins: ["rank 0", "x&y=1"], collapsed: ["rank 1/GPU 0"],
      filter: "stream <7>", query: "gemm.*#", tab: "kernels", marks: [{ from: 1, to: 1, label: "" }, { from: 5, to: 9, label: "" }],
      order: { "": ["rank 1", "rank 0 & more"], "rank 1": ["rank 1/GPU 0", "rank 1/a~b\"c"] },
    };
    deepEqual(parse(href(place)), place);
  },
  "a link that makes no sense is nothing"() {
    deepEqual(parse("#t=9~1&sel=nowhere&mark=x"), {});
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
