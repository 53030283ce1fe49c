// @ts-check
/** How far times of several hosts may be off each other. */

/**
 * Which clock stamped an operation, and how well it is known.
 * @typedef {object} Stamped
 * @property {number | null} [clock]         null where clocks were not compared
 * @property {number | null} [clock_error]   99 % half width against the clock that times are given by, ns
 */

/**
 * The 99 % half width of how two operations lie to each other, ns: 0 by one clock. Errors that do not depend on each other add up as the
 * root of their squares.
 * @param {Stamped} one
 * @param {Stamped} other
 */
export function clockError(one, other) {
  if (one.clock === null || one.clock === undefined || one.clock === other.clock) return 0;
  return Math.hypot(one.clock_error ?? 0, other.clock_error ?? 0);
}
