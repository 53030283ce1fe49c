// @ts-check
/** What times are counted from, and where nodes of a flame graph lie. */

import { partOf } from "../bar.js";
import { pathOf, place } from "../flame_graph.js";
import { initialState } from "../state.js";
import { clock, hasClock, stamp, ticksFrom, zeroHere, zeroName } from "../times.js";
import { href, parse } from "../url.js";
import { deepEqual, equal, ok } from "./assert.js";

/** 2026-03-01T12:00:00.250Z */
const ORIGIN = "1772366400250000000";
const THIN = "\u202f";

/** @param {number | null} parent @param {string} name @param {number} total @param {number} self */
const node = (parent, name, total, self) => ({ parent, id: 0, name, kind: 0, count: 1, total, self, longest: /** @type {any} */ ({}) });

export const tests = {
  "moments count from the beginning, a moment, or midnight"() {
    equal(stamp(1.5e6, 1e5, null, ORIGIN), `1.5${THIN}ms`);
    equal(stamp(1.5e6, 1e5, 1e6, ORIGIN), `+500${THIN}µs`);
    equal(stamp(1e6, 1e5, 3e6, ORIGIN), `−2.0${THIN}ms`);
    equal(stamp(0, 1e6, "clock", ORIGIN), "12:00:00.250");
    equal(stamp(750e6, 1e9, "clock", ORIGIN), "12:00:01");
    equal(clock(-250_000_001, 1, ORIGIN), "11:59:59.999999999");
    ok(hasClock(ORIGIN));
    ok(!hasClock("1234") && !hasClock("") && !hasClock("x") && !hasClock(undefined));
  },
  "ticks are round where they are counted from"() {
    const from = 37e6;
    const list = ticksFrom(from, from + 1e8, 1e5, 110, 41e6, ORIGIN);
    ok(list.ticks.length > 3);
    ok(list.ticks.every(({ at }) => Math.abs((at - 41e6) / list.step - Math.round((at - 41e6) / list.step)) < 1e-6), "round from the moment");
    ok(list.ticks.some(({ at, label }) => at === 41e6 && label.startsWith("0")), "its own tick");
    ok(list.ticks.some(({ label }) => label.startsWith("+")));
    const clocks = ticksFrom(0, 2e9, 2e6, 110, "clock", ORIGIN);
    deepEqual(clocks.ticks.map(({ label }) => label).filter((label) => /\.0*$/.test(label) || !label.includes(".")), ["12:00:01.0", "12:00:02.0"]);
    ok(ticksFrom(0, 7.2e12, 7.2e9, 110, "clock", ORIGIN).ticks.every(({ label }) => /:[0-5]0:00$/.test(label)), "whole ten minutes of two hours");
  },
  "from here is the area, else the selection, the mark, the step"() {
    const info = { steps: [{ number: 7, begin: 100, end: 200 }, { number: 8, begin: 200, end: 300 }] };
    const state = initialState();
    equal(zeroHere(state, info, 250), 200);
    equal(zeroHere(state, info, 50), null);
    const marked = { ...state, marks: [{ from: 5, to: 5, kept: true, label: "" }] };
    equal(zeroHere(marked, info, 250), 5);
    equal(zeroHere({ ...marked, area: { from: 11.4, to: 20, rows: [] } }, info, 250), 11);
    equal(zeroName(200, info, []), "step 8");
    equal(zeroName(5, info, marked.marks), "the mark");
    equal(zeroName(null, info, []), "the beginning");
  },
  "a link has the zero and how names are written"() {
    deepEqual(parse(href({ zero: -12, names: "full" })), { zero: -12, names: "full" });
    deepEqual(parse("#zero=clock&names=long"), { zero: "clock" });
    deepEqual(parse("#zero=&names="), {});
  },
  "steps and ranks of a download"() {
    deepEqual(partOf({ steps: " 3 .. 5 ", ranks: "0, 2-3" }), { query: { steps: "3-5", ranks: "0,2-3" }, words: ", steps 3-5 of ranks 0,2-3" });
    deepEqual(partOf({ steps: "4", ranks: "1" }), { query: { steps: "4", ranks: "1" }, words: ", step 4 of rank 1" });
    deepEqual(partOf({ steps: "5-3", ranks: "all" }), { query: {}, words: "" });
    deepEqual(partOf({ steps: "", ranks: "" }), { query: {}, words: "" });
  },
  "nodes lie under what they are in, as wide as their share"() {
    const nodes = [node(null, "step", 75, 15), node(0, "forward", 40, 40), node(0, "backward", 20, 20), node(null, "load", 25, 25)];
    const all = place(nodes, 100, null);
    deepEqual(all.map(({ depth, x, width }) => [depth, Math.round(x * 100), Math.round(width * 100)]), [[0, 0, 75], [1, 0, 40], [1, 40, 20], [0, 75, 25]]);
    // One alone: what it lies in is as wide as all, what is beside it is not there.
    const alone = place(nodes, 100, 2);
    deepEqual(alone.map((one) => one && [one.depth, one.width]).filter((one) => one), [[0, 1], [1, 1]]);
    deepEqual(place(nodes, 100, 0).map((one) => Math.round(one.width * 75)), [75, 40, 20]);
    deepEqual(pathOf(nodes, 2), ["step", "backward"]);
    // What overlaps finds room all the same.
    const over = place([node(null, "a", 10, 0), node(0, "b", 10, 10), node(0, "c", 10, 10)], 10, null);
    deepEqual(over.map(({ x, width }) => [x, width]), [[0, 1], [0, 0.5], [0.5, 0.5]]);
  },
};
