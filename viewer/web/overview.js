// @ts-check
/** The overview: for every GPU what its time went to, over the whole recording, and a brush for what is in view. */

import { tickLabel, ticks } from "./axis.js";
import { h, replace } from "./dom.js";
import { getFont } from "./draw.js";
import { percent } from "./format.js";
import { calm, rasterBand } from "./raster.js";
import { packed, rgb } from "./theme.js";

/** Height of all bands together at most, and of one, CSS pixels. */
const MOST = 132;
const BAND_MOST = [0, 30, 24, 20, 20];
const BAND_USUAL = 16;
const BAND_LEAST = 3;
const AXIS = 16;
const TICKS = 6;
const GRIP = 7;
/** An edge of the window, and the narrowest window, CSS pixels. */
const EDGE = 1.5;
const NARROWEST = 2;

/** The parts of a band from its floor up. */
const PARTS = /** @type {const} */ ([
  ["compute", "kind-compute", "compute"],
  ["both", "kind-hidden", "hidden communication"],
  ["communication", "kind-exposed", "exposed communication"],
  ["copy", "kind-copy", "copies"],
]);

export class Overview {
  /**
   * @param {import("./timeline.js").Timeline} timeline
   * @param {HTMLElement} container
   */
  constructor(timeline, container) {
    this.timeline = timeline;
    this.container = container;
    this.canvas = /** @type {HTMLCanvasElement} */ (
      h("canvas", { class: "ov-bands", role: "img", "aria-label": "What each GPU's time went to, over the whole recording" })
    );
    this.before = h("div", { class: "ov-veil" });
    this.after = h("div", { class: "ov-veil" });
    this.window = h("div", { class: "ov-window" });
    this.left = h("div", { class: "ov-edge" }, h("span", { class: "grip left" }));
    this.right = h("div", { class: "ov-edge" }, h("span", { class: "grip right" }));
    this.slider = h(
      "div",
      { class: "ov-brush", role: "slider", tabindex: "0", "aria-label": "Time in view", "aria-valuemin": "0", "aria-valuemax": "100" },
      this.before,
      this.after,
      this.window,
      this.left,
      this.right,
    );
    this.names = h("div", { class: "ov-names", "aria-hidden": "true" });
    this.area = h("div", { class: "ov-area" }, this.canvas, this.slider);
    this.legend = h(
      "div",
      { class: "ov-legend" },
      PARTS.map(([, colour, text]) => h("span", {}, h("i", { class: `swatch ${colour}` }), text)),
      h("span", {}, h("i", { class: "swatch idle" }), "idle"),
    );
    replace(container, this.names, this.area, this.legend);
    this.tip = h("div", { class: "tooltip", hidden: true });
    document.body.append(this.tip);
    /** @type {{bins: number, bands: any[]} | null} */
    this.data = null;
    /** @type {number[]} */
    this.searchTicks = [];
    this.width = 0;
    /** Counts what was asked for. */
    this.asked = 0;
    this.slider.addEventListener("pointerdown", (event) => this.press(event));
    this.slider.addEventListener("pointermove", (event) => this.point(event));
    this.slider.addEventListener("pointerleave", () => (this.tip.hidden = true));
    this.slider.addEventListener("dblclick", () => timeline.home());
    this.slider.addEventListener("wheel", (event) => {
      event.preventDefault();
      const at = this.timeAt(event.clientX);
      const [a, b] = timeline.target;
      const factor = Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006);
      timeline.moveTo(at - (at - a) * factor, at + (b - at) * factor, { user: true });
    }, { passive: false });
    new ResizeObserver(() => {
      const width = this.area.clientWidth;
      // Not while it is hidden.
      if (width > 0 && width !== this.width) {
        this.width = width;
        this.brush();
        void this.load();
      }
    }).observe(this.area);
  }

  /** The whole of the recording, with a little room: what the strip shows. @returns {[number, number]} */
  get range() {
    const [begin, end] = this.timeline.extent;
    return [begin, Math.max(begin + 1, end)];
  }

  /** Height of one band, CSS pixels. @private */
  bandHeight() {
    const bands = Math.max(1, this.data?.bands.length ?? this.timeline.context.info.bands?.length ?? 1);
    return Math.max(BAND_LEAST, Math.min(BAND_MOST[bands] ?? BAND_USUAL, Math.floor(Math.min(MOST, 0.13 * innerHeight) / bands) - (bands > 16 ? 0 : 1)));
  }

  /** Asks for the shares, one bin a pixel. */
  async load() {
    const { api } = this.timeline.context;
    const [begin, end] = this.range;
    // An answer for another stretch of time may come later than that for this one.
    this.asked += 1;
    const mine = this.asked;
    const ratio = devicePixelRatio || 1;
    const bins = Math.max(16, Math.min(4096, Math.round((this.area.clientWidth || 1000) * ratio)));
    try {
      const data = await api.overview(Math.floor(begin), Math.ceil(end), bins);
      if (api !== this.timeline.context.api || mine !== this.asked) return;
      this.data = this.calm(data);
    } catch {
      // The bands stay as they were; the timeline says when the server is gone.
    }
    this.redraw();
  }

  /** Shares instead of a texture. @private @param {{bins: number, bands: any[]}} data */
  calm(data) {
    const steps = this.timeline.context.info.steps ?? [];
    const [begin, end] = this.range;
    const bin = (/** @type {number} */ at) => Math.max(0, Math.min(data.bins, Math.round(((at - begin) / (end - begin)) * data.bins)));
    const edges = steps.map((/** @type {any} */ step) => bin(step.begin));
    if (steps.length) edges.push(bin(steps[steps.length - 1].end));
    calm(data.bands, PARTS.map(([part]) => part), edges, devicePixelRatio || 1);
    return data;
  }

  /** @param {number[]} counts */
  setTicks(counts) {
    this.searchTicks = counts;
    this.redraw();
  }

  redraw() {
    const { theme, context } = this.timeline;
    const { info } = context;
    const ratio = devicePixelRatio || 1;
    const width = Math.round(this.area.clientWidth * ratio);
    if (width < 8) return;
    const bands = info.bands ?? [];
    const tall = this.bandHeight();
    const pitch = tall + (bands.length > 16 ? 0 : 1);
    const top = AXIS;
    const height = top + Math.max(1, bands.length) * pitch + TICKS;
    const { canvas } = this;
    canvas.width = width;
    canvas.height = Math.round(height * ratio);
    this.area.style.height = `${height}px`;
    const ink = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    const [begin, end] = this.range;
    const x = (/** @type {number} */ at) => ((at - begin) / (end - begin)) * width;

    const line = Math.max(1, Math.round(tall * ratio));
    const strip = document.createElement("canvas");
    strip.width = width;
    strip.height = line;
    const stripInk = /** @type {CanvasRenderingContext2D} */ (strip.getContext("2d"));
    const colours = PARTS.map(([, name]) => packed(rgb(theme.colour[name])));
    bands.forEach((/** @type {any} */ band, /** @type {number} */ at) => {
      const y = Math.round((top + at * pitch) * ratio);
      ink.fillStyle = theme.colour.idle;
      ink.fillRect(x(Math.max(begin, info.begin)), y, x(Math.min(end, info.end)) - x(Math.max(begin, info.begin)), line);
      const shares = this.data?.bands[at];
      if (shares && this.data) {
        const image = new ImageData(width, line);
        rasterBand(new Uint32Array(image.data.buffer), width, 0, line, PARTS.map(([part]) => shares[part]), this.data.bins, colours);
        stripInk.putImageData(image, 0, 0);
        ink.drawImage(strip, 0, y);
      }
      const hatch = this.timeline.painter.hatching(theme, ratio);
      for (const gap of info.gaps ?? []) {
        if (!hatch || (gap.rank !== null && gap.rank !== undefined && gap.rank !== band.rank)) continue;
        const a = Math.max(0, x(gap.from));
        ink.fillStyle = theme.colour.surface;
        ink.fillRect(a, y, Math.max(1, x(gap.to) - a), line);
        ink.fillStyle = hatch;
        ink.fillRect(a, y, Math.max(1, x(gap.to) - a), line);
      }
    });

    ink.font = `${10.5 * ratio}px ${getFont()}`;
    ink.textBaseline = "middle";
    const { zero } = this.timeline;
    const list = ticks(begin - zero, end - zero, (end - begin) / width, 120 * ratio);
    for (const { at } of list.ticks) {
      const px = Math.round(x(at + zero));
      ink.fillStyle = theme.colour["line-strong"];
      ink.fillRect(px, 4 * ratio, Math.max(1, Math.round(ratio)), (AXIS - 5) * ratio);
      const text = tickLabel(at, list.step, Math.max(Math.abs(begin - zero), Math.abs(end - zero)));
      if (px + ink.measureText(text).width + 8 * ratio > width) continue;
      ink.fillStyle = theme.colour["text-3"];
      ink.fillText(text, px + 4 * ratio, (AXIS / 2) * ratio);
    }
    const most = Math.max(1, ...this.searchTicks);
    ink.fillStyle = theme.colour.accent;
    const bottom = Math.round(height * ratio);
    this.searchTicks.forEach((count, at) => {
      if (count === 0) return;
      const high = (2.5 + 3 * Math.sqrt(count / most)) * ratio;
      ink.fillRect(Math.floor((at * width) / this.searchTicks.length), bottom - high, Math.max(2 * ratio, width / this.searchTicks.length), high);
    });

    const several = new Set(bands.map((/** @type {any} */ band) => band.rank)).size !== bands.length;
    const every = pitch >= 6 ? Math.ceil(13 / pitch) : 0;
    const named = every > 0 ? bands : [];
    replace(
      this.names,
      named.map(
        (/** @type {any} */ band, /** @type {number} */ at) =>
          at % every === 0 &&
          h(
            "button",
            {
              type: "button",
              tabindex: "-1",
              title: `${band.device_name ?? ""} on ${band.host ?? "this host"}`,
              style: { top: `${top + at * pitch}px`, height: `${pitch}px` },
              onclick: () => this.timeline.revealRank(band.rank, band.device_index),
            },
            band.rank === null || band.rank === undefined
              ? `GPU ${band.device_index}`
              : several
                ? `rank ${band.rank} GPU ${band.device_index}`
                : `rank ${band.rank}`,
          ),
      ),
      named.length === 0 && bands.length > 0 && h("span", { class: "faint" }, `${bands.length} GPUs`),
    );
    this.brush();
  }

  /** Moves the brush to the window. */
  brush() {
    const [begin, end] = this.range;
    const [from, to] = this.timeline.shown;
    // In half pixels: what is not seen to move is not laid out and painted anew in every frame of a deep zoom.
    const steps = 2 * Math.max(1, this.width);
    const share = (/** @type {number} */ at) => Math.round(steps * Math.max(0, Math.min(1, (at - begin) / (end - begin)))) / steps;
    const a = share(from);
    const b = Math.max(share(to), a + NARROWEST / Math.max(NARROWEST, this.width));
    this.slider.classList.toggle("whole", from <= begin && to >= end);
    // Transforms alone: nothing is laid out or painted anew while the window moves.
    this.before.style.transform = `scaleX(${a})`;
    this.after.style.transform = `translateX(${100 * b}%)`;
    this.window.style.transform = `translateX(${100 * a}%) scaleX(${b - a})`;
    this.left.style.transform = `translateX(${a * this.width}px)`;
    this.right.style.transform = `translateX(${b * this.width - EDGE}px)`;
    this.slider.setAttribute("aria-valuenow", String(Math.round(50 * (a + b))));
    this.slider.setAttribute("aria-valuetext", `${this.timeline.stamp(from, 1000)} to ${this.timeline.stamp(to, 1000)}`);
  }

  /** @private @param {number} clientX */
  timeAt(clientX) {
    const box = this.area.getBoundingClientRect();
    const [begin, end] = this.range;
    return begin + ((clientX - box.left) / Math.max(1, box.width)) * (end - begin);
  }

  /** @private @param {PointerEvent} event */
  press(event) {
    if (event.button !== 0) return;
    const { timeline } = this;
    const box = this.window.getBoundingClientRect();
    const [a, b] = timeline.target;
    const at = this.timeAt(event.clientX);
    const near = (/** @type {number} */ edge) => Math.abs(event.clientX - edge) <= GRIP;
    const whole = b - a >= 0.98 * (this.range[1] - this.range[0]);
    /** @type {"left" | "right" | "move" | "draw"} */
    const way =
      near(box.left) && !whole
        ? "left"
        : near(box.right) && !whole
          ? "right"
          : event.clientX > box.left && event.clientX < box.right && !whole
            ? "move"
            : "draw";
    this.slider.setPointerCapture(event.pointerId);
    let moved = false;
    const move = (/** @type {PointerEvent} */ next) => {
      const now = this.timeAt(next.clientX);
      if (Math.abs(next.clientX - event.clientX) > 3) moved = true;
      if (!moved) return;
      const options = { glide: false, user: true };
      if (way === "move") timeline.moveTo(a + now - at, b + now - at, options);
      else if (way === "left") timeline.moveTo(Math.min(now, b - 1), b, options);
      else if (way === "right") timeline.moveTo(a, Math.max(now, a + 1), options);
      else if (now !== at) timeline.moveTo(Math.min(now, at), Math.max(now, at), options);
    };
    const up = () => {
      this.slider.removeEventListener("pointermove", move);
      // A click beside the window brings the window there.
      if (!moved && !whole && way === "draw") timeline.moveTo(at - (b - a) / 2, at + (b - a) / 2, { user: true });
    };
    this.slider.addEventListener("pointermove", move);
    this.slider.addEventListener("pointerup", up, { once: true });
    this.slider.addEventListener("pointercancel", up, { once: true });
  }

  /** @private @param {PointerEvent} event */
  point(event) {
    const box = this.area.getBoundingClientRect();
    const tall = this.bandHeight();
    const bands = this.timeline.context.info.bands ?? [];
    const pitch = tall + (bands.length > 16 ? 0 : 1);
    const at = Math.floor((event.clientY - box.top - AXIS) / pitch);
    const shares = this.data?.bands[at];
    if (!shares || !this.data || event.buttons) {
      this.tip.hidden = true;
      return;
    }
    const reach = 3;
    const bin = Math.floor(((event.clientX - box.left) / box.width) * this.data.bins);
    const mean = (/** @type {Float32Array} */ values) => {
      let sum = 0;
      let n = 0;
      for (let k = Math.max(0, bin - reach); k <= Math.min(values.length - 1, bin + reach); k += 1, n += 1) sum += values[k];
      return sum / Math.max(1, n);
    };
    const parts = PARTS.map(([part, , text]) => [text, mean(shares[part])]);
    const idle = Math.max(0, 1 - parts.reduce((sum, [, share]) => sum + /** @type {number} */ (share), 0));
    const band = bands[at];
    replace(
      this.tip,
      h(
        "div",
        { class: "tooltip-name" },
        `${band?.rank === null || band?.rank === undefined ? `GPU ${band?.device_index}` : `rank ${band.rank}`} at ${this.timeline.stamp(this.timeAt(event.clientX), 1000)}`,
      ),
      [...parts, ["idle", idle]]
        .filter(([, share]) => /** @type {number} */ (share) > 0.0005)
        .map(([text, share]) => h("div", { class: "quiet" }, `${percent(/** @type {number} */ (share))} ${text}`)),
    );
    this.tip.hidden = false;
    const left = Math.min(innerWidth - this.tip.offsetWidth - 8, event.clientX + 14);
    this.tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(event.clientY + 16)}px)`;
  }
}
