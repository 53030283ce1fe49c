// @ts-check
/** How names of kernels are written, on slices and in tables alike: their last word, or all of it. */

import { shortName } from "./format.js";

/** @typedef {"short" | "full"} Style */

/** @type {Style} */
let style = "short";

/** Changes how names are written from now on. @param {Style} wanted */
export function writeNames(wanted) {
  style = wanted;
}

/** Whether names are written whole. */
export const wholeNames = () => style === "full";

/** A name as it is written now. @param {string} name */
export function written(name) {
  return style === "full" ? name : shortName(name);
}
