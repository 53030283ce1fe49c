// @ts-check
/** What tests of the page's modules use. They run in the browser: each `*.test.js` exports `tests`. */

/** @param {unknown} value @param {string} [what] */
export function ok(value, what = "is not so") {
  if (!value) throw new Error(what);
}

/** @param {unknown} value @param {unknown} wanted @param {string} [what] */
export function equal(value, wanted, what = "") {
  if (!Object.is(value, wanted)) throw new Error(`${what ? what + ": " : ""}${JSON.stringify(value)} is not ${JSON.stringify(wanted)}`);
}

/** @param {unknown} value @param {unknown} wanted @param {string} [what] */
export function deepEqual(value, wanted, what = "") {
  equal(JSON.stringify(value), JSON.stringify(wanted), what);
}

/** @param {number} value @param {number} wanted @param {number} [tolerance] */
export function close(value, wanted, tolerance = 1e-9) {
  if (!(Math.abs(value - wanted) <= tolerance)) throw new Error(`${value} is not ${wanted}`);
}
