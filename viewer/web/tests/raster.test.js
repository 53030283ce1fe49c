// @ts-check
/** Rows as pixels: what is drawn where, with which opacity. */

import { FLAG_DENSITY, LEAST_ALPHA, calm, colourIndex, firstEndingAfter, lift, rasterBand, rasterCounter, rasterRow, recordAt } from "../raster.js";
import { deepEqual, equal, ok } from "./assert.js";

const PALETTE = new Uint32Array(14 * 8).map((_, at) => 0x010000 * at + 0x33);

/** @param {[number, number, number, number][]} records x0, x1, meta, id */
function columns(records) {
  return {
    n: records.length, x0: Float32Array.from(records, ([x0]) => x0), x1: Float32Array.from(records, ([, x1]) => x1), name: Uint32Array.from(records, () => 0),
    meta: Uint32Array.from(records, ([, , meta]) => meta), id: Uint32Array.from(records, ([, , , id]) => id),
  };
}

/** @param {number} kind @param {number} [fill] @param {number} [flags] */
const meta = (kind, fill = 255, flags = 0) => (kind | (fill << 8) | (flags << 16)) >>> 0;
const alphas = (/** @type {Uint32Array} */ px) => [...px].map((value) => value >>> 24);

/**
 * A counter from 0 to 8 drawn 10 pixels high, of which 2 are room: one value is one line of pixels.
 * @param {[number, number, number, number, number][]} records x0, x1, min, max, last
 * @param {number} width
 */
function counter(records, width, scale = 1, offset = 0) {
  const of = (/** @type {number} */ k) => Float32Array.from(records, (record) => record[k]);
  const px = new Uint32Array(width * 12);
  const columns = { n: records.length, x0: of(0), x1: of(1), min: of(2), max: of(3), last: of(4) };
  const drawn = rasterCounter(px, width, 1, 10, [{ columns, scale, offset, low: 0, high: width }], 0, 8, 0x332211, 1);
  return { px, drawn, column: (/** @type {number} */ x) => Array.from({ length: 12 }, (_, line) => px[line * width + x] >>> 24) };
}

export const tests = {
  "shares that change every few pixels become the means of their steps"() {
    // Ten steps of 20 bins each; compute and communication take turns every 2 bins, and the last step computes alone.
    const bins = 200;
    const turn = (/** @type {number} */ bin) => bin >= 180 || bin % 4 < 2;
    const band = () => ({
      compute: Float32Array.from({ length: bins }, (_, bin) => Number(turn(bin))),
      communication: Float32Array.from({ length: bins }, (_, bin) => Number(!turn(bin))),
    });
    const edges = Array.from({ length: 11 }, (_, at) => 20 * at);
    const parts = ["compute", "communication"];
    const means = band();
    calm([means], parts, edges, 1);
    deepEqual([...new Set(means.compute)], [0.5, 1]);
    deepEqual([...new Set(means.communication)], [0.5, 0]);
    // Without steps it is smoothed, and nothing is lost.
    const smooth = band();
    calm([smooth], parts, [], 1);
    ok(Math.max(...smooth.compute.slice(10, 160)) < 0.65 && smooth.compute[195] > 0.95);
    smooth.compute.forEach((value, bin) => ok(Math.abs(value + smooth.communication[bin] - 1) < 1e-6));
    // What can be read as it is stays: turns of 20 pixels.
    const plain = { compute: Float32Array.from({ length: bins }, (_, bin) => Number(bin % 40 < 20)), communication: new Float32Array(bins) };
    const before = [...plain.compute];
    calm([plain], parts, edges, 1);
    deepEqual([...plain.compute], before);
  },
  "a slice covers whole pixels wholly and parts of pixels in part"() {
    const px = new Uint32Array(8);
    rasterRow(px, 0, columns([[1.5, 3.5, meta(0), 0]]), 1, 0, 0, 8, PALETTE);
    deepEqual(alphas(px).map((value) => Math.round(value / 16)), [0, 8, 16, 8, 0, 0, 0, 0]);
  },
  "only the asked part of the line is touched"() {
    const px = new Uint32Array(8);
    rasterRow(px, 0, columns([[-100, 100, meta(1), 0]]), 1, 0, 2, 5, PALETTE);
    deepEqual(alphas(px), [0, 0, 255, 255, 255, 0, 0, 0]);
    // Without the hair before its neighbour it ends before that part.
    const ended = new Uint32Array(16);
    rasterRow(ended, 0, columns([[0, 10.5, meta(0), 0]]), 1, 0, 10, 16, PALETTE);
    deepEqual(alphas(ended).slice(0, 10), Array(10).fill(0));
  },
  "two tiles that meet in a pixel add up to it"() {
    const px = new Uint32Array(4);
    const both = columns([[0, 4, meta(0), 0]]);
    rasterRow(px, 0, both, 1, 0, 0, 1.5, PALETTE);
    rasterRow(px, 0, both, 1, 0, 1.5, 4, PALETTE);
    ok(px.every((value) => value >>> 24 >= 254 || value === px[3]), `${alphas(px)}`);
  },
  "density is as opaque as its time is busy, and never invisible"() {
    const px = new Uint32Array(2);
    rasterRow(px, 0, columns([[0, 1, meta(0, 128, FLAG_DENSITY), 9], [1, 2, meta(0, 1, FLAG_DENSITY), 3]]), 1, 0, 0, 2, PALETTE);
    ok(Math.abs((px[0] >>> 24) - 128) <= 2);
    lift(px, 0, 2);
    equal(px[1] >>> 24, LEAST_ALPHA);
    ok(Math.abs((px[0] >>> 24) - 128) <= 2);
  },
  "a slice of no duration leaves a trace"() {
    const px = new Uint32Array(3);
    rasterRow(px, 0, columns([[1.2, 1.2, meta(0), 0]]), 1, 0, 0, 3, PALETTE);
    ok(px[1] >>> 24 > 0);
  },
  "neighbours that are wide are parted by a hair"() {
    const px = new Uint32Array(20);
    rasterRow(px, 0, columns([[0, 10, meta(0), 0], [10, 20, meta(0), 1]]), 1, 0, 0, 20, PALETTE);
    equal(px[9] >>> 24, 0);
    equal(px[10] >>> 24, 255);
  },
  "colours of two kinds mix by their shares"() {
    const palette = new Uint32Array(14 * 8);
    palette.fill(0x0000ff, 0, 8);
    palette.fill(0xff0000, 8, 16);
    const px = new Uint32Array(1);
    rasterRow(px, 0, columns([[0, 0.5, meta(0), 0], [0.5, 1, meta(1), 1]]), 1, 0, 0, 1, palette);
    ok(Math.abs((px[0] & 255) - 128) < 8 && Math.abs(((px[0] >> 16) & 255) - 128) < 8, px[0].toString(16));
  },
  "unknown kinds are drawn as other, shades come from the name's hash"() {
    equal(colourIndex(200), 11 * 8);
    equal(colourIndex((3 | (0xff << 24)) >>> 0), 3 * 8 + 7);
  },
  "the first record that ends after a place"() {
    const ends = Float32Array.from([1, 3, 3, 7]);
    equal(firstEndingAfter(ends, 4, 0), 0);
    equal(firstEndingAfter(ends, 4, 1), 1);
    equal(firstEndingAfter(ends, 4, 3), 3);
    equal(firstEndingAfter(ends, 4, 8), 4);
  },
  "what is under the pointer, or just beside it"() {
    const some = columns([[0, 2, meta(0), 0], [10, 11, meta(0), 1]]);
    equal(recordAt(some, 1, 0, 1, 3), 0);
    equal(recordAt(some, 1, 0, 9, 3), 1);
    equal(recordAt(some, 1, 0, 6, 3), -1);
  },
  "a counter is a line over an area, and stays on its own lines"() {
    const { px, column, drawn } = counter([[0, 2, 4, 4, 4], [2, 3, 0, 0, 0]], 4);
    equal(drawn, 2);
    // Value 4 of 8 is 6 pixels down from the top; the line takes half a pixel on either side; an area of a fifth is under it.
    deepEqual(column(0), [0, 0, 0, 0, 0, 0, 128, 153, 51, 51, 51, 0]);
    ok(px.every((value) => value === 0 || (value & 0xffffff) === 0x332211));
    // On the foot it is whole, and what it fell from is joined.
    deepEqual(column(2).slice(6), [128, 255, 255, 255, 255, 0]);
    ok(column(3).every((alpha) => alpha === 0));
  },
  "a counter's pixel of many values shows them all, and the band between least and greatest"() {
    const many = Array.from(
      { length: 100 },
      (_, at) => /** @type {[number, number, number, number, number]} */ ([at / 100, (at + 1) / 100, 1, 7, at % 2 ? 3 : 5]),
    );
    const { column } = counter(many, 1);
    // The line from 5 down to 3, the band from 7 to 1, the area under 3.
    deepEqual(column(0), [0, 0, 0, 0, 77, 166, 255, 255, 184, 112, 51, 0]);
  },
  "nothing is drawn of a counter where it has no value"() {
    const { column } = counter([[0, 1, 2, 2, 2], [3, 4, 2, 2, 2]], 4);
    ok(column(1).every((alpha) => alpha === 0) && column(2).every((alpha) => alpha === 0));
    deepEqual(column(0), column(3));
  },
  "a counter's value that reaches over many pixels is the same in each"() {
    const { column, drawn } = counter([[-5, 50, 6, 6, 6]], 9, 1.37, 0.4);
    equal(drawn, 1);
    for (let x = 1; x < 9; x += 1) deepEqual(column(x), column(0));
  },
  "a band stacks its parts from the floor"() {
    const px = new Uint32Array(4);
    rasterBand(px, 1, 0, 4, [Float32Array.from([0.5]), Float32Array.from([0.25])], 1, [0x11, 0x22]);
    deepEqual([...px].map((value) => value & 255), [0, 0x22, 0x11, 0x11]);
    equal(px[0], 0);
  },
};
