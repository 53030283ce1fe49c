// @ts-check
import { deepEqual, equal, ok } from "./assert.js";
import { shape } from "../charts.js";
import { binaryTicks, linear, linearTicks, logTicks, logarithmic } from "../scales.js";

/** @type {Record<string, () => void>} */
export const tests = {
  "ticks are round and lie within"() {
    deepEqual(linearTicks(0, 52_000_000, 4), [0, 20_000_000, 40_000_000]);
    deepEqual(linearTicks(0, 1, 5), [0, 0.2, 0.4, 0.6000000000000001, 0.8, 1]);
    deepEqual(linearTicks(5, 5), [5]);
    deepEqual(linearTicks(0, Infinity), [0]);
    for (const [low, high] of [
      [0, 3],
      [1e9, 1.0001e9],
      [-7, 4],
      [0, 1e18],
    ]) {
      for (const tick of linearTicks(low, high, 6))
        ok(tick >= low - 1e-9 * Math.abs(high) && tick <= high * (1 + 1e-9), `${tick} lies outside ${low} to ${high}`);
    }
  },
  "sizes have ticks at powers of two"() {
    deepEqual(binaryTicks(61e9, 4), [0, 17179869184, 34359738368, 51539607552]);
    deepEqual(binaryTicks(0), [0]);
  },
  "logarithmic ticks are powers of their base, thinned"() {
    deepEqual(logTicks(1, 1000, 10), [1, 10, 100, 1000]);
    equal(logTicks(1, 2 ** 40, 2, 6).length <= 7, true);
  },
  "scales map ends to ends"() {
    const scale = linear([0, 10], [100, 200]);
    equal(scale.toPixel(0), 100);
    equal(scale.toPixel(10), 200);
    const log = logarithmic([4, 4], [0, 100], 2);
    ok(Math.abs(log.toPixel(4) - 50) < 1e-9, "a lone value stands in the middle");
  },
  "every shape closes and lies around its place"() {
    for (let index = 0; index < 6; index++) ok(/^M.*z$/.test(shape(index, 4, 10, 20)));
  },
};
