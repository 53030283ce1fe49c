// @ts-check
/** How far times of several hosts may be off each other. */

import { clockError } from "../clock_error.js";
import { equal } from "./assert.js";

export const tests = {
  "operations by one clock lie exactly to each other, those of two as well as both are known"() {
    equal(clockError({ clock: 1, clock_error: 700 }, { clock: 1, clock_error: 700 }), 0);
    equal(clockError({ clock: 1, clock_error: 3000 }, { clock: 0, clock_error: 0 }), 3000);
    equal(clockError({ clock: 1, clock_error: 3000 }, { clock: 2, clock_error: 4000 }), 5000);
    equal(clockError({ clock: null, clock_error: null }, { clock: null, clock_error: null }), 0);
    equal(clockError({}, {}), 0);
  },
};
