// @ts-check
/** The ruler over the rows: times, steps, marks, and where the pointer is. */

import { getFont } from "./draw.js";
import { time } from "./format.js";
import { stamp, zeroName, zeroOf } from "./times.js";

export class Ruler {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.ink = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
  }

  /**
   * @param {import("./draw.js").View} view
   * @param {import("./theme.js").Theme} theme
   * @param {any} info
   * @param {import("./state.js").ViewState} state
   * @param {{x: number, y: number} | null} pointer
   * @param {ReturnType<typeof import("./times.js").ticksFrom>} axis
   */
  draw(view, theme, info, state, pointer, axis) {
    const { ink, canvas } = this;
    const { from, nsPerPixel, width, ratio } = view;
    const height = Math.round(canvas.clientHeight * ratio);
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
      canvas.style.width = `${width / ratio}px`;
    }
    const to = from + width * nsPerPixel;
    const x = (/** @type {number} */ at) => (at - from) / nsPerPixel;
    ink.fillStyle = theme.colour.background;
    ink.fillRect(0, 0, width, height);
    ink.font = `${11 * ratio}px ${getFont()}`;
    ink.textBaseline = "middle";

    // Steps: a band at the bottom, named where there is room.
    const band = Math.round(15 * ratio);
    const steps = (info.steps ?? []).filter((/** @type {any} */ step) => step.begin < to && step.end > from);
    const hasSteps = (info.steps ?? []).length > 0;
    const middle = hasSteps ? (height - band) / 2 : height / 2;
    const named = steps.length * 18 * ratio < width;
    const wordy = steps.filter((/** @type {any} */ step) => (step.end - step.begin) / nsPerPixel > 74 * ratio).length * 2 > steps.length;
    let first = true;
    if (steps.length > 0 && steps.length < width / (3 * ratio)) {
      for (const step of steps) {
        const a = Math.max(-2, x(step.begin));
        const b = Math.min(width + 2, x(step.end));
        ink.fillStyle = step.chosen ? theme.colour["accent-soft"] : theme.colour.idle;
        ink.fillRect(a, height - band, Math.max(1, b - a - ratio), band - Math.round(2 * ratio));
        // All in words, or the first alone.
        const text = (wordy || first) && b - a > 62 * ratio ? `step ${step.number}` : String(step.number);
        const room = b - a - 6 * ratio;
        if (named && ink.measureText(text).width < room) {
          ink.fillStyle = theme.colour[step.chosen ? "text" : "text-2"];
          ink.fillText(text, Math.max(0, a) + 4 * ratio, height - band / 2 - ratio);
          first = false;
        }
      }
    }

    const zero = zeroOf(state, view.zero);
    const inView = `${time(to - from)} in view${state.zero === null ? "" : zero === "clock" ? ", UTC" : `, from ${zeroName(zero, info, state.marks)}`}`;
    const free = pointer || state.marks.length > 0 ? width : width - ink.measureText(inView).width - 14 * ratio;
    const { ticks: list, anchor } = axis;
    let left = 0;
    if (anchor !== null) {
      ink.fillStyle = theme.colour["text-3"];
      ink.fillText(anchor, 6 * ratio, middle);
      left = ink.measureText(anchor).width + 14 * ratio;
    }
    for (const { at, label } of list) {
      const px = Math.round(x(at));
      if (px > free - 4 * ratio) continue;
      ink.fillStyle = theme.colour["line-strong"];
      ink.fillRect(px, 0, Math.max(1, Math.round(ratio)), hasSteps ? height - band : height);
      if (px + 4 * ratio < left || px + 4 * ratio + ink.measureText(label).width > free) continue;
      ink.fillStyle = theme.colour["text-2"];
      ink.fillText(label, px + 4 * ratio, middle);
    }

    if (typeof state.zero === "number") {
      // Where times begin: a flag.
      const a = x(state.zero);
      ink.fillStyle = theme.colour.accent;
      ink.fillRect(Math.round(a), 0, Math.max(1, Math.round(2 * ratio)), hasSteps ? height - band : height);
      ink.fillRect(Math.round(a), 0, 7 * ratio, 5 * ratio);
    }
    for (const mark of state.marks) {
      const a = x(mark.from);
      ink.fillStyle = theme.colour.accent;
      ink.globalAlpha = 0.16;
      if (mark.to > mark.from) ink.fillRect(a, 0, x(mark.to) - a, height);
      ink.globalAlpha = 1;
      ink.beginPath();
      ink.moveTo(a - 4 * ratio, 0);
      ink.lineTo(a + 4 * ratio, 0);
      ink.lineTo(a, 7 * ratio);
      ink.fill();
    }
    if (pointer) {
      const text = stamp(from + pointer.x * ratio * nsPerPixel, Math.max(1, 10 ** Math.floor(Math.log10(nsPerPixel * ratio))), zero, info.origin_ns);
      this.tag(theme, text, pointer.x * ratio, middle, ratio, width);
    } else if (free < width) {
      ink.fillStyle = theme.colour["text-3"];
      ink.fillText(inView, free + 8 * ratio, middle);
    }
  }

  /**
   * A text on the ruler that covers what is beneath.
   * @private
   * @param {import("./theme.js").Theme} theme
   * @param {string} text
   * @param {number} at
   * @param {number} middle
   * @param {number} ratio
   * @param {number} width
   */
  tag(theme, text, at, middle, ratio, width) {
    const { ink } = this;
    const wide = ink.measureText(text).width + 10 * ratio;
    const left = Math.min(width - wide, Math.max(0, at - wide / 2));
    ink.fillStyle = theme.colour.text;
    ink.beginPath();
    ink.roundRect(left, middle - 8 * ratio, wide, 16 * ratio, 4 * ratio);
    ink.fill();
    ink.fillStyle = theme.colour.background;
    ink.fillText(text, left + 5 * ratio, middle + ratio / 2);
  }
}
