// @ts-check
import { clockTicks, events } from "../jobs.js";
import { deepEqual, ok } from "./assert.js";

const MINUTE = 60e9;

export const tests = {
  "ticks are at whole minutes and hours of the clock"() {
    // 2026-11-24, 10:07:30 of the local clock.
    const from = new Date(2026, 10, 24, 10, 7, 30).getTime() * 1e6;
    const at = (/** @type {number[]} */ ticks) => ticks.map((tick) => `${new Date(tick / 1e6).getHours()}:${new Date(tick / 1e6).getMinutes()}`);
    deepEqual(at(clockTicks([from, from + 5 * MINUTE], 6)), ["10:8", "10:9", "10:10", "10:11", "10:12"]);
    deepEqual(at(clockTicks([from, from + 180 * MINUTE], 6)), ["10:30", "11:0", "11:30", "12:0", "12:30", "13:0"]);
    ok(clockTicks([from, from + 24 * 60 * MINUTE], 3).length <= 4);
  },
  "what was found and what changed are in the order of time"() {
    const found = events({
      changes: [{ time_ns: 20, step: 7, before_ns: 1e6, after_ns: 2e6 }],
      findings: [
        { time_ns: 30, trigger: "late-rank", step: 9, title: "rank 1 is late", recording: "x" },
        { time_ns: 10, trigger: "hang", step: null, title: "nothing goes on", recording: null },
      ],
    });
    deepEqual(found.map(({ what, step, recording, change }) => [what, step, recording, change]), [
      ["hang", null, null, false], ["change", 7, null, true], ["late-rank", 9, "x", false],
    ]);
  },
};
