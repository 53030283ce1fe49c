// @ts-check
/** When the window counts as zooming, and where it is thought to go. */

import { GOES_ON_MS, Motion } from "../motion.js";
import { close, equal, ok } from "./assert.js";

/** @typedef {[number, number]} Span */

const FRAME = 1000 / 60;

/** A window that is zoomed by held keys: every frame it is to be `factor` of what it was. @param {number} frames @param {number} factor */
function held(frames, factor) {
  const motion = new Motion();
  /** @type {Span} */
  let shown = [-1000, 1000];
  let now = 5000;
  for (let k = 0; k < frames; k += 1) {
    now += FRAME;
    /** @type {Span} */
    const next = [shown[0] * factor, shown[1] * factor];
    motion.aim(shown, next, now);
    motion.move(shown, next, FRAME, now);
    shown = next;
  }
  return { motion, shown, now };
}

export const tests = {
  "a held key zooms on, and has come to rest soon after it was let go"() {
    const { motion, now } = held(5, 0.97);
    ok(motion.zooming && motion.goesOn(now));
    equal(motion.rest(now + GOES_ON_MS / 2), false);
    ok(motion.zooming, "between two steps it still zooms");
    equal(motion.rest(now + GOES_ON_MS), true);
    equal(motion.zooming, false);
    equal(motion.rest(now + 2 * GOES_ON_MS), false, "it ends once");
  },
  "one step alone zooms, but does not go on: its details are wanted at once"() {
    const { motion, now } = held(1, 0.7);
    ok(motion.zooming);
    equal(motion.goesOn(now), false);
    motion.move([-700, 700], [-699.99, 699.99], FRAME, now + FRAME);
    equal(motion.zooming, false, "as slow as the end of a glide");
  },
  "two steps that are far apart are two alone"() {
    const { motion, now } = held(1, 0.7);
    motion.aim([-700, 700], [-490, 490], now + GOES_ON_MS);
    equal(motion.goesOn(now + GOES_ON_MS), false);
    motion.aim([-490, 490], [-343, 343], now + GOES_ON_MS + 50);
    ok(motion.goesOn(now + GOES_ON_MS + 50));
  },
  "moving in time is no zooming, however large the times are"() {
    const motion = new Motion();
    /** @type {Span} */
    let shown = [3e15, 3e15 + 1e6];
    for (let k = 0; k < 20; k += 1) {
      /** @type {Span} */
      const next = [shown[0] + 12345.678, shown[1] + 12345.678];
      motion.aim(shown, next, k * FRAME);
      motion.move(shown, next, FRAME, k * FRAME);
      shown = next;
      ok(!motion.zooming && !motion.goesOn(k * FRAME));
    }
  },
  "where it is going to be: on along its way, but not for ever smaller"() {
    const { motion, shown } = held(5, 0.97);
    const [from, to] = motion.ahead(shown, 10 * FRAME);
    ok(from > shown[0] && to < shown[1]);
    close(from + to, 0, 1e-6);
    // Ten more such frames would leave 0.74 of it.
    ok((to - from) / (shown[1] - shown[0]) < 0.74);
    const [a, b] = motion.ahead(shown, 1000 * FRAME);
    close((b - a) / (shown[1] - shown[0]), 0.35, 1e-6);
    const out = held(5, 1.03);
    const [c, d] = out.motion.ahead(out.shown, 10 * FRAME);
    ok(c < out.shown[0] && d > out.shown[1]);
  },
};
