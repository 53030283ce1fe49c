// @ts-check
/** The roofline of matrix products: how fast each could go by what it computes for each byte that it moves. */

import { legend, scatter, seriesColour, tipLines } from "../charts.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { logarithmic } from "../scales.js";
import { shortType } from "../shapes.js";
import { sizeOf } from "./operator_tables.js";

/** @typedef {import("../../types/analysis.js").Attribution} Attribution */
/** @typedef {import("../../types/analysis.js").ProductAnalysis} Product */
/** @typedef {{product: Product, x: number, y: number, size: number, type: string}} Mark */

/** Radius of the mark of what takes most, and of the least that is seen, pixels. */
const LARGEST = 17;
const SMALLEST = 2.5;

/** A rate of computing: "47.7 TFLOP/s". @param {number} rate FLOP a second @param {string} [unit] what follows the prefix */
function rateOf(rate, unit = "FLOP/s") {
  const [prefix, one] = rate >= 1e12 ? ["T", 1e12] : rate >= 1e9 ? ["G", 1e9] : ["M", 1e6];
  return `${format.digits(rate / Number(one))}\u202f${prefix}${unit}`;
}

/**
 * What is drawn: a mark for each size of which FLOP, bytes and time are known, its area as its time; and a roof for each type.
 * @param {Attribution} all
 */
export function roofs({ products, peak }) {
  const known = peak ? products.filter(({ flops, bytes, flops_per_second: rate }) => flops > 0 && bytes && rate) : [];
  const most = known.reduce((longest, { time_ns: time }) => Math.max(longest, time), 1);
  /** @type {Mark[]} */
  const marks = known.map((product) => ({
    product,
    x: product.flops / (product.bytes ?? 1),
    y: product.flops_per_second ?? 0,
    size: Math.max(SMALLEST, LARGEST * Math.sqrt(product.time_ns / most)),
    type: shortType(product.dtype),
  }));
  /** By type, the most that it can compute. @type {Map<string, number>} */
  const peaks = new Map();
  for (const { product, type } of marks) if (product.peak_flops_per_second) peaks.set(type, product.peak_flops_per_second);
  if (!peaks.size && marks.length && peak) peaks.set(shortType(peak.dtype), peak.flops_per_second);
  return { marks, peaks, bytes: peak?.bytes_per_second ?? 0 };
}

/**
 * The picture; nothing where it is not known what the GPU can do.
 * @param {Attribution} all
 * @param {(product: Product) => void} open
 */
export function roofline(all, open) {
  const { marks, peaks, bytes } = roofs(all);
  if (!marks.length || !bytes) return null;
  const highest = Math.max(...peaks.values());
  const xs = [...marks.map(({ x }) => x), ...[...peaks.values()].map((most) => most / bytes)];
  /** @type {[number, number]} */
  const across = [Math.min(...xs) / 2, Math.max(...xs) * 4];
  /** @type {[number, number]} */
  const up = [Math.min(...marks.map(({ y }) => y)) / 2, highest * 1.5];
  // Roofs go from where they come into the picture to its end, as wide as the axes make it.
  const [left, right] = logarithmic(across, [0, 1], 10).domain;
  const begin = Math.max(left, logarithmic(up, [0, 1], 10).domain[0] / bytes);
  const types = [...new Set(marks.map(({ type }) => type))].sort();
  const chart = scatter({
    label:
      `${marks.length} sizes of products by FLOP for each byte and FLOP a second, both on logarithmic axes, under what the GPU can do; ` +
      "the table below has the same numbers",
    series: types,
    // The longest first: what is smaller lies on it.
    points: [...marks].sort((a, b) => b.size - a.size).map((mark) => ({ x: mark.x, y: mark.y, size: mark.size, series: types.indexOf(mark.type), data: mark })),
    x: { log: 10, title: "FLOP for each byte", format: (value) => format.digits(value), domain: across },
    y: { log: 10, title: "FLOP/s", format: (value) => rateOf(value, ""), domain: up },
    lines: [...peaks].map(([type, most]) => ({
      points: /** @type {[number, number][]} */ ([[begin, begin * bytes], [most / bytes, most], [right, most]]),
      title: `${type}: ${rateOf(most)}, memory ${format.bandwidth(bytes / 1e9)}`,
      label: `${type}: ${rateOf(most)}`,
    })),
    open: ({ data }) => open(data.product),
    tip: ({ data }) => words(data.product, data.x),
    height: 320,
  });
  return h(
    "div",
    { class: "p-roofline" },
    h("p", { class: "p-note" },
      "Each size by what it computes for each byte of its tensors, as large as the time that it takes. Under the slope memory is the limit, " +
        "under the flat line computing. Choose one to see its row."),
    types.length > 1 ? h("div", { class: "p-bar" }, legend(types.map((title, at) => ({ title, colour: seriesColour(at), shape: at })))) : null,
    chart.element,
  );
}

/** @param {Product} product @param {number} intensity */
function words(product, intensity) {
  return tipLines(
    [product.name, h("span", { class: "p-faint" }, ` ${sizeOf(product)} ${shortType(product.dtype)}`)],
    [
      { name: "FLOP for each byte", value: format.digits(intensity) },
      { name: "computed", value: rateOf(product.flops_per_second ?? 0) },
      { name: "of the peak", value: format.percent(product.peak_share) },
      { name: "moved", value: format.bandwidth((product.bytes_per_second ?? 0) / 1e9) },
      { name: "time", value: format.time(product.time_ns), strong: true },
      { name: "calls", value: format.count(product.calls) },
    ],
    product.bound ? `bound by ${product.bound === "memory" ? "memory" : "computing"}; click for its row` : "click for its row",
  );
}
