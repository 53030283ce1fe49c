// @ts-check
/** Which tiles are asked for, kept, and stand in for others. */

import { Names, TileCache, levelFor, levelInMotion, tileSpan } from "../tiles.js";
import { deepEqual, equal, ok } from "./assert.js";

const settle = () => new Promise((resolve) => setTimeout(resolve, 0));

/** A cache over a server that answers at once, and what it was asked. */
function cache() {
  /** @type {import("../tiles.js").Want[]} */
  const asked = [];
  const made = new TileCache(async (want) => {
    asked.push(want);
    return new Map(want.rows.map((row) => [row, { n: 1 }]));
  }, () => {});
  return { asked, cache: made };
}

/** @param {number} level @param {number} index @param {number[]} rows @returns {import("../tiles.js").Want} */
const want = (level, index, rows) => ({ sort: "slices", level, index, rows });

export const tests = {
  "a bin is at most a pixel wide"() {
    equal(levelFor(1), 0);
    equal(levelFor(0.01), 0);
    equal(levelFor(1023), 9);
    equal(levelFor(1024), 10);
    equal(tileSpan(10), 1024 * 1024);
  },
  "in motion a bin is one to two pixels wide"() {
    equal(levelInMotion(0.01), 1);
    equal(levelInMotion(1023), 10);
    equal(levelInMotion(1024), 11);
    equal(levelInMotion(2 ** 80), levelFor(2 ** 80));
  },
  async "a stretch is covered when all its tiles are there, none of an earlier generation"() {
    const { cache: tiles } = cache();
    tiles.want([want(3, 1, [1]), want(3, 2, [1])]);
    await settle();
    const span = tileSpan(3);
    ok(tiles.covers("slices", 3, span, 3 * span - 1));
    ok(!tiles.covers("slices", 3, span - 1, 2 * span));
    ok(!tiles.covers("slices", 3, 2 * span, 3 * span));
    ok(!tiles.covers("counters", 3, span, 2 * span));
    tiles.renew(new Map([[1, 1]]));
    ok(!tiles.covers("slices", 3, span, 2 * span));
  },
  async "only rows that are missing are asked for, in groups"() {
    const { asked, cache: tiles } = cache();
    tiles.want([want(3, 0, [1, 2])]);
    await settle();
    tiles.want([want(3, 0, [1, 2, 3])]);
    await settle();
    deepEqual(asked.map(({ rows }) => rows), [[1, 2], [3]]);
    tiles.want([want(4, 0, Array.from({ length: 100 }, (_, at) => at))]);
    await settle();
    deepEqual(asked.slice(2).map(({ rows }) => rows.length), [64, 36]);
  },
  async "a coarser tile stands in until the right one comes"() {
    const { cache: tiles } = cache();
    tiles.want([want(6, 1, [5])]);
    await settle();
    const chain = tiles.chain("slices", 3, 12);
    deepEqual(chain.map((tile) => [tile.level, tile.index]), [[6, 1]]);
    equal(tiles.chain("slices", 3, 7).length, 0);
  },
  async "what is no longer wanted is aborted"() {
    /** @type {AbortSignal[]} */
    const signals = [];
    const tiles = new TileCache((_, signal) => {
      signals.push(signal);
      return new Promise((_, fail) => signal.addEventListener("abort", () => fail(signal.reason)));
    }, () => {});
    tiles.want([want(3, 0, [1])]);
    tiles.want([want(3, 9, [1])]);
    deepEqual(signals.map((signal) => signal.aborted), [true, false]);
    await settle();
    deepEqual([tiles.aborted, tiles.failed], [1, 0]);
  },
  async "a zoom asks for one tile after the other, a view at rest for several at once"() {
    /** @type {(() => void)[]} */
    const answers = [];
    const tiles = new TileCache(() => new Promise((answer) => answers.push(() => answer(new Map()))), () => {});
    const four = [0, 1, 2, 3].map((index) => want(3, index, [1]));
    tiles.want(four, true);
    equal(answers.length, 1);
    answers[0]();
    await settle();
    equal(answers.length, 2);
    tiles.want(four.slice(1));
    equal(answers.length, 4);
  },
  async "two hundred tiles are kept, the oldest go first, the view of everything stays"() {
    const { cache: tiles } = cache();
    tiles.want([{ ...want(20, 0, [1]), kept: true }]);
    await settle();
    for (let index = 0; index < 260; index += 1) {
      tiles.clock += 1;
      tiles.want([want(3, index, [1])]);
      await settle();
    }
    ok(tiles.tiles.size <= 200);
    ok(tiles.tiles.has("slices/20/0"));
    ok(tiles.tiles.has("slices/3/259"));
    ok(!tiles.tiles.has("slices/3/0"));
  },
  async "a new generation keeps the old tiles as stand-ins under the rows' new numbers"() {
    const { asked, cache: tiles } = cache();
    tiles.want([want(3, 0, [1, 2])]);
    await settle();
    tiles.renew(new Map([[2, 7]]));
    deepEqual(tiles.chain("slices", 3, 0).map((tile) => [...tile.rows.keys()]), [[7]]);
    tiles.want([want(3, 0, [7])]);
    await settle();
    equal(asked.length, 2);
    equal(tiles.chain("slices", 3, 0)[0].stale, false);
  },
  async "names are asked for together, once"() {
    /** @type {number[][]} */
    const asked = [];
    const names = new Names(async (ids) => {
      asked.push(ids);
      return { names: { 4: "four" }, colors: { 4: "#112233" } };
    }, () => {});
    equal(names.get(4), null);
    equal(names.get(5), null);
    names.get(4);
    await new Promise((resolve) => setTimeout(resolve, 60));
    equal(names.get(4), "four");
    equal(names.get(5), "");
    equal(names.colours.get(4), 0x332211);
    deepEqual(asked, [[4, 5]]);
  },
};
