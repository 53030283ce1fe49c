// @ts-check
/** Scales of charts: from values to pixels, with ticks at numbers that read well. */

/** @typedef {{toPixel: (value: number) => number, ticks: number[], domain: [number, number]}} Scale */

/**
 * Round numbers from `low` to `high`, about `wanted` of them: steps of 1, 2, 2.5 or 5 times a power of ten.
 * @param {number} low
 * @param {number} high
 * @param {number} [wanted]
 * @returns {number[]}
 */
export function linearTicks(low, high, wanted = 5) {
  if (!(high > low) || !Number.isFinite(high - low)) return [low];
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999) ?? 10 * power;
  const ticks = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-9; index++) ticks.push(index * step);
  return ticks;
}

/**
 * Multiples of a power of two from 0 to `high`, about `wanted` of them: sizes.
 * @param {number} high
 * @param {number} [wanted]
 * @returns {number[]}
 */
export function binaryTicks(high, wanted = 4) {
  if (!(high > 0) || !Number.isFinite(high)) return [0];
  const step = 2 ** Math.max(0, Math.ceil(Math.log2(high / Math.max(1, wanted)) - 0.2));
  return Array.from({ length: Math.floor(high / step) + 1 }, (_, index) => index * step);
}

/**
 * Powers of `base` from `low` to `high`, thinned to about `wanted`.
 * @param {number} low above 0
 * @param {number} high
 * @param {number} base
 * @param {number} [wanted]
 * @returns {number[]}
 */
export function logTicks(low, high, base, wanted = 6) {
  const first = Math.ceil(Math.log(low) / Math.log(base) - 1e-9);
  const last = Math.floor(Math.log(high) / Math.log(base) + 1e-9);
  const every = Math.max(1, Math.ceil((last - first + 1) / Math.max(1, wanted)));
  const ticks = [];
  for (let power = Math.ceil(first / every) * every; power <= last; power += every) ticks.push(base ** power);
  return ticks;
}

/**
 * A scale with equal distances.
 * @param {[number, number]} domain
 * @param {[number, number]} range pixels
 * @param {number} [wanted]
 * @returns {Scale}
 */
export function linear(domain, range, wanted = 5) {
  const [low, high] = domain[1] > domain[0] ? domain : [domain[0], domain[0] + 1];
  return { toPixel: (value) => range[0] + ((value - low) / (high - low)) * (range[1] - range[0]), ticks: linearTicks(low, high, wanted), domain: [low, high] };
}

/**
 * A logarithmic scale. Its domain is widened a little, and to two powers of its base at least.
 * @param {[number, number]} domain above 0
 * @param {[number, number]} range pixels
 * @param {number} base
 * @param {number} [wanted]
 * @returns {Scale}
 */
export function logarithmic(domain, range, base, wanted = 6) {
  let low = Math.log(domain[0]) / Math.log(base);
  let high = Math.log(Math.max(domain[1], domain[0])) / Math.log(base);
  const room = Math.max(0.06 * (high - low), (2 - (high - low)) / 2, 0.1);
  low -= room;
  high += room;
  return {
    toPixel: (value) => range[0] + ((Math.log(value) / Math.log(base) - low) / (high - low)) * (range[1] - range[0]),
    ticks: logTicks(base ** low, base ** high, base, wanted),
    domain: [base ** low, base ** high],
  };
}
