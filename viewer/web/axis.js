// @ts-check
/** The time axis: where ticks are, and what they say. */

const SCALES = /** @type {const} */ ([
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
]);

/**
 * A round step (1, 2 or 5 times a power of ten, at least 1 ns) for ticks at least `least` ns apart.
 * @param {number} least
 */
export function roundStep(least) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  for (const factor of [1, 2, 5, 10]) if (factor * power >= least) return Math.max(1, factor * power);
  return 10 * power;
}

/**
 * A time in the unit of `scale`, with the places that `step` needs: "12.34 ms".
 * @param {number} ns
 * @param {number} step
 * @param {number} [size] of the greatest time beside it, which chooses the unit
 */
export function tickLabel(ns, step, size = Math.abs(ns)) {
  const [scale, unit] = SCALES.find(([scale]) => size >= scale) ?? SCALES[3];
  const places = Math.max(0, Math.min(9, Math.ceil(Math.log10(scale / step) - 1e-9)));
  // Days and months are many seconds.
  const text = (ns / scale).toFixed(places).replace(/^-?\d{5,}/, (whole) => whole.replace(/\B(?=(\d{3})+$)/g, "\u202f"));
  return `${text.replace(/^-(?=0(\.0*)?$)/, "").replace("-", "−")}\u202f${unit}`;
}

/**
 * Ticks of a window: fixed ones by round steps, and the label each has. Far from zero and close in, labels are
 * offsets from an anchor at the left, which is given in full.
 *
 * @param {number} from
 * @param {number} to
 * @param {number} nsPerPixel
 * @param {number} apart pixels that labels need
 * @returns {{step: number, minor: number, anchor: number | null, ticks: {at: number, label: string}[]}}
 */
export function ticks(from, to, nsPerPixel, apart) {
  const step = roundStep(nsPerPixel * apart);
  const coarse = step * 1000;
  // When the step is a thousandth of the time itself, full labels would repeat the same digits.
  const anchored = Math.max(Math.abs(from), Math.abs(to)) >= coarse * 10;
  const anchor = anchored ? Math.floor(from / coarse) * coarse : null;
  const size = anchor === null ? Math.max(Math.abs(from), Math.abs(to)) : Math.max(step, to - anchor);
  const list = [];
  for (let k = Math.ceil(from / step); k * step <= to && list.length < 400; k += 1) {
    const at = k * step;
    list.push({ at, label: anchor === null ? tickLabel(at, step, size) : `+${tickLabel(at - anchor, step, size)}` });
  }
  const minor = step >= 5 && Number.isInteger(step / 5) ? step / 5 : step >= 2 ? step / 2 : step;
  return { step, minor, anchor, ticks: list };
}
