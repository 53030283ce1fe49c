// @ts-check
/** Rows as pixels: what is drawn where, with which opacity. */

import { FLAG_DENSITY, LEAST_ALPHA, colourIndex, firstEndingAfter, lift, rasterBand, rasterRow, recordAt } from "../raster.js";
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

export const tests = {
  "a slice covers whole pixels wholly and parts of pixels in part"() {
    const px = new Uint32Array(8);
    rasterRow(px, 0, columns([[1.5, 3.5, meta(0), 0]]), 1, 0, 0, 8, PALETTE);
    deepEqual(alphas(px).map((value) => Math.round(value / 16)), [0, 8, 16, 8, 0, 0, 0, 0]);
  },
  "only the asked part of the line is touched"() {
    const px = new Uint32Array(8);
    rasterRow(px, 0, columns([[-100, 100, meta(1), 0]]), 1, 0, 2, 5, PALETTE);
    deepEqual(alphas(px), [0, 0, 255, 255, 255, 0, 0, 0]);
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
  "a band stacks its parts from the floor"() {
    const px = new Uint32Array(4);
    rasterBand(px, 1, 0, 4, [Float32Array.from([0.5]), Float32Array.from([0.25])], 1, [0x11, 0x22]);
    deepEqual([...px].map((value) => value & 255), [0, 0x22, 0x11, 0x11]);
    equal(px[0], 0);
  },
};
