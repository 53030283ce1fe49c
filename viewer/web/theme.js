// @ts-check
/** Colours of the canvases, read from the style sheet, which alone knows them. */

import { KINDS, SHADES } from "./raster.js";

/**
 * @typedef {object} Theme
 * @property {Uint32Array} palette    0xBBGGRR by kind and shade
 * @property {string[]} inks          colour of text on them
 * @property {Record<string, string>} colour   the style sheet's own, by name without dashes
 * @property {boolean} dark
 */

/**
 * Red, green, blue of "#rrggbb".
 * @param {string} text
 * @returns {[number, number, number]}
 */
export function rgb(text) {
  const value = Number.parseInt(text.trim().slice(1, 7), 16);
  return Number.isNaN(value) ? [128, 128, 128] : [value >> 16, (value >> 8) & 255, value & 255];
}

/** @param {[number, number, number]} colour */
export function packed([r, g, b]) {
  return (b << 16) | (g << 8) | r;
}

/** Luminance by WCAG 2. @param {[number, number, number]} colour */
export function luminance(colour) {
  const [r, g, b] = colour.map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Contrast by WCAG 2. @param {number} a luminance @param {number} b luminance */
export function contrast(a, b) {
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

/**
 * Shade `k` of a colour: from a little darker to a little lighter.
 * @param {[number, number, number]} colour
 * @param {number} k
 * @returns {[number, number, number]}
 */
function shade(colour, k) {
  const t = (k / (SHADES - 1)) * 0.34 - 0.1;
  const towards = t < 0 ? 0 : 255;
  return /** @type {[number, number, number]} */ (colour.map((value) => Math.round(value + (towards - value) * Math.abs(t))));
}

/**
 * The text colour that reads best on a colour.
 * @param {[number, number, number]} colour
 */
export function inkOn(colour) {
  const light = luminance(colour);
  return contrast(light, luminance(rgb(INKS.dark))) >= contrast(light, 1) ? INKS.dark : INKS.light;
}

const INKS = { dark: "#0f1419", light: "#ffffff" };
const NAMES = [
  "background", "surface", "raised", "hover", "line", "line-strong", "text", "text-2", "text-3", "accent", "accent-soft", "focus", "idle", "counter",
  "kind-compute", "kind-communication", "kind-hidden", "kind-exposed", "kind-copy", "warn", "bad", "good",
];

/** @returns {Theme} */
export function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const palette = new Uint32Array(KINDS * SHADES);
  const inks = [];
  for (let kind = 0; kind < KINDS; kind += 1) {
    const base = rgb(style.getPropertyValue(`--kind-${kind}`));
    const shades = Array.from({ length: SHADES }, (_, k) => shade(base, k));
    shades.forEach((colour, k) => (palette[kind * SHADES + k] = packed(colour)));
    // One colour of text for all shades of a kind: whichever reads better on the worst of them.
    const worst = (/** @type {string} */ ink) => Math.min(...shades.map((colour) => contrast(luminance(colour), luminance(rgb(ink)))));
    const ink = worst(INKS.dark) >= worst(INKS.light) ? INKS.dark : INKS.light;
    for (let k = 0; k < SHADES; k += 1) inks.push(ink);
  }
  /** @type {Record<string, string>} */
  const colour = {};
  for (const name of NAMES) colour[name] = style.getPropertyValue(`--${name}`).trim();
  return { palette, inks, colour, dark: document.documentElement.dataset.theme === "dark" };
}
