// @ts-check
/** Marks of what changed from a first recording to a second: a sign, a word and a colour. */

import { h } from "../dom.js";
import * as format from "../format.js";

/** Differences up to this share of the first have no colour; what is sure to be a change the analysis says. */
const SAME = 0.02;

/** @param {number | null | undefined} a @param {number | null | undefined} b */
export function relative(a, b) {
  return typeof a === "number" && typeof b === "number" && a > 0 ? (b - a) / a : null;
}

export const CHANGES = /** @type {const} */ ({
  slower: { sign: "▲", title: "slower", class: "p-slower" },
  faster: { sign: "▼", title: "faster", class: "p-faster" },
  new: { sign: "+", title: "new", class: "p-slower" },
  gone: { sign: "\u2212", title: "gone", class: "p-faster" },
  same: { sign: "=", title: "same", class: "p-faint" },
  unknown: { sign: "?", title: "can't be decided", class: "p-faint" },
});

/** @typedef {keyof typeof CHANGES} Change */

/** Of two times. @param {number} a @param {number} b @returns {Change} */
export function changeOf(a, b) {
  if (Math.abs(b - a) <= SAME * a) return "same";
  return b > a ? "slower" : "faster";
}

/** @param {Change} change */
export function changed(change) {
  const { sign, title, class: tone } = CHANGES[change] ?? CHANGES.same;
  return h("span", { class: `p-change ${tone}` }, h("span", { "aria-hidden": "true" }, sign), " ", title);
}

/** A difference of two times with its share of the first. @param {number | null | undefined} a @param {number | null | undefined} b */
export function difference(a, b) {
  if (typeof a !== "number" || typeof b !== "number") return format.NONE;
  const ratio = relative(a, b);
  const tone = ratio === null || Math.abs(ratio) <= SAME ? "p-faint" : b > a ? "p-slower" : "p-faster";
  return h(
    "span",
    { class: tone },
    format.signed(format.time, b - a),
    ratio === null ? null : h("small", { class: "p-range" }, format.signed(format.percent, ratio)),
  );
}
