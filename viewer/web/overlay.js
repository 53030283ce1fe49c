// @ts-check
/** What lies over the rows: pointer, selection with its arrows, the gap before it, areas, marks and distances. */

import { clockError } from "./clock_error.js";
import { getFont } from "./draw.js";
import { time } from "./format.js";

/** @typedef {import("./draw.js").View} View */
/** @typedef {import("./theme.js").Theme} Theme */
/**
 * @typedef {object} Scene
 * @property {View} view
 * @property {Theme} theme
 * @property {import("./state.js").ViewState} state
 * @property {import("./draw.js").Pane} pinned
 * @property {import("./draw.js").Pane} scrolled
 * @property {{x: number, y: number} | null} pointer
 * @property {import("./stage.js").Hit | null} hover
 * @property {any} detail
 * @property {{from: number, to: number, top: number, bottom: number} | null} drag   an area that is being drawn, CSS pixels
 * @property {import("./state.js").Ref[]} hits
 * @property {import("./critical.js").PathLine | null} path   the critical path, where it is to be drawn
 * @property {import("./state.js").Ref[]} twins   framed beside the selection
 * @property {(row: number) => {y: number, height: number} | null} yOf
 */

export class Overlay {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.ink = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    /** Arrows drawn last, for tests. */
    this.arrows = 0;
    /** Bands of clocks' errors drawn last, for tests. */
    this.bands = 0;
    /** What was drawn last, where that does not change with the window. @type {string | null} */
    this.still = null;
  }

  /**
   * What is to be drawn, in a word, where none of it moves with the window; null otherwise. Drawing the same again would
   * cost a fifth of a frame: the canvas is as large as the plot, and has to be copied and blended anew.
   * @private
   * @param {Scene} scene
   */
  stillness({ view, theme, state, pinned, pointer, hover, drag, hits, twins, path }) {
    if (path || hover || drag || hits.length > 0 || twins.length > 0 || state.selection || state.area || state.marks.length > 0) return null;
    return [view.width, view.height, view.ratio, pinned.bottom, pointer?.x, theme.colour.text, theme.colour["line-strong"]].join();
  }

  /** @param {Scene} scene */
  draw(scene) {
    const { ink, canvas } = this;
    const { view, theme, state } = scene;
    const { width, height, ratio } = view;
    const still = this.stillness(scene);
    if (still !== null && still === this.still) return;
    this.still = still;
    if (canvas.width !== width || canvas.height !== height) {
      canvas.width = width;
      canvas.height = height;
    } else ink.clearRect(0, 0, width, height);
    this.arrows = 0;
    this.bands = 0;
    ink.font = `${11 * ratio}px ${getFont()}`;
    ink.textBaseline = "middle";

    if (scene.pinned.bottom > 0) {
      ink.fillStyle = theme.colour["line-strong"];
      ink.fillRect(0, scene.pinned.bottom - Math.round(2 * ratio), width, Math.max(1, Math.round(ratio)));
    }
    this.marks(scene);
    this.area(scene);
    ink.save();
    this.clip(scene);
    for (const hit of scene.hits) this.underline(scene, hit);
    if (scene.hover && scene.hover.item) this.outline(scene, scene.hover.start, scene.hover.duration, scene.hover.item, theme.colour.text, 1, 0.75);
    for (const twin of scene.twins) this.twin(scene, twin);
    scene.path?.draw(ink, scene);
    if (state.selection) this.selection(scene);
    ink.restore();
    if (scene.pointer && !scene.drag) {
      ink.fillStyle = theme.colour.text;
      ink.globalAlpha = 0.35;
      ink.fillRect(Math.round(scene.pointer.x * ratio), 0, Math.max(1, Math.round(ratio)), height);
      ink.globalAlpha = 1;
    }
  }

  /** Keeps drawings of scrolled rows out of the pinned ones. @private @param {Scene} scene */
  clip({ view, scrolled }) {
    this.ink.beginPath();
    this.ink.rect(0, scrolled.top, view.width, view.height - scrolled.top);
    this.ink.clip();
  }

  /** @private @param {View} view @param {number} at */
  x(view, at) {
    return (at - view.from) / view.nsPerPixel;
  }

  /**
   * @private
   * @param {Scene} scene
   * @param {number} start
   * @param {number} duration
   * @param {import("./rows.js").Item} item
   * @param {string} colour
   * @param {number} line CSS pixels
   * @param {number} alpha
   */
  outline(scene, start, duration, item, colour, line, alpha) {
    const { view, pinned, scrolled } = scene;
    const found = [...pinned.lines, ...scrolled.lines].find((other) => other.item === item);
    if (!found) return;
    this.frame(view, start, duration, found.y, found.height, colour, line, alpha);
  }

  /**
   * @private
   * @param {View} view
   * @param {number} start
   * @param {number} duration
   * @param {number} y
   * @param {number} tall
   * @param {string} colour
   * @param {number} line
   * @param {number} alpha
   */
  frame(view, start, duration, y, tall, colour, line, alpha) {
    const { ink } = this;
    const wide = Math.max(1, line * view.ratio);
    const a = Math.max(-8, this.x(view, start));
    const b = Math.min(view.width + 8, this.x(view, start + duration));
    ink.strokeStyle = colour;
    ink.lineWidth = wide;
    ink.globalAlpha = alpha;
    ink.strokeRect(a - wide / 2, y - wide / 2, Math.max(2 * view.ratio, b - a) + wide / 2, tall + wide);
    ink.globalAlpha = 1;
  }

  /** @private @param {Scene} scene @param {import("./state.js").Ref} hit */
  underline(scene, hit) {
    const at = scene.yOf(hit.row);
    if (!at) return;
    const { view, theme } = scene;
    const a = this.x(view, hit.start);
    const b = this.x(view, hit.start + hit.duration);
    if (b < 0 || a > view.width) return;
    const tall = Math.max(2, Math.round(2.5 * view.ratio));
    this.ink.fillStyle = theme.colour.accent;
    this.ink.fillRect(a, (at.y + at.height) * view.ratio - tall, Math.max(2 * view.ratio, b - a), tall);
  }

  /** @private @param {Scene} scene @param {import("./state.js").Ref} ref */
  twin(scene, ref) {
    const at = scene.yOf(ref.row);
    const { view, theme } = scene;
    if (at) this.frame(view, ref.start, ref.duration, at.y * view.ratio, at.height * view.ratio, theme.colour.accent, 2, 1);
  }

  /** @private @param {Scene} scene */
  selection(scene) {
    const { view, theme, state, detail } = scene;
    const ref = /** @type {import("./state.js").Ref} */ (state.selection);
    const at = scene.yOf(ref.row);
    if (!at) return;
    const { ratio } = view;
    const known = detail && detail.row === ref.row && detail.index === ref.index ? detail : null;
    if (known?.before && known.before.to > known.before.from) this.before(scene, known.before, at);
    if (known?.collective) this.collective(scene, known, at);
    for (const link of known?.links ?? []) if (link.ref && link.type !== "collective") this.arrow(scene, link.ref, ref, at, link.type);
    this.frame(view, ref.start, ref.duration, at.y * ratio, at.height * ratio, theme.colour.surface, 3.5, 1);
    this.frame(view, ref.start, ref.duration, at.y * ratio, at.height * ratio, theme.colour.accent, 2, 1);
  }

  /** The idle gap before the selection: a bracket and its cause. @private @param {Scene} scene @param {any} gap @param {{y: number, height: number}} at */
  before(scene, gap, at) {
    const { ink } = this;
    const { view, theme } = scene;
    const { ratio } = view;
    const a = Math.max(-10, this.x(view, gap.from));
    const b = Math.min(view.width + 10, this.x(view, gap.to));
    if (b - a < 3 * ratio) return;
    const y = (at.y + at.height / 2) * ratio;
    ink.strokeStyle = theme.colour["text-2"];
    ink.lineWidth = Math.max(1, ratio);
    ink.setLineDash([3 * ratio, 3 * ratio]);
    ink.beginPath();
    ink.moveTo(a + ratio, y);
    ink.lineTo(b - ratio, y);
    ink.stroke();
    ink.setLineDash([]);
    for (const text of [gap.text, `${time(gap.to - gap.from)} idle`]) {
      if (!text || ink.measureText(text).width + 16 * ratio > Math.min(view.width, b) - Math.max(0, a)) continue;
      this.tag(theme, text, (Math.max(0, a) + Math.min(view.width, b)) / 2, y, ratio, theme.colour["text-2"]);
      break;
    }
  }

  /**
   * A line from one slice to another, with a head at the later one.
   * @private
   * @param {Scene} scene
   * @param {import("./state.js").Ref} other
   * @param {import("./state.js").Ref} self
   * @param {{y: number, height: number}} at
   * @param {string} type
   */
  arrow(scene, other, self, at, type) {
    const { ink } = this;
    const { view, theme } = scene;
    const { ratio } = view;
    const there = scene.yOf(other.row);
    if (!there) return;
    const forwards = other.start >= self.start;
    const [first, second, firstAt, secondAt] = forwards ? [self, other, at, there] : [other, self, there, at];
    // Out of the earlier one's end where that lies before the later one's start, else out of its start.
    const leave = Math.min(first.start + first.duration, Math.max(first.start, second.start));
    const x0 = this.x(view, leave);
    const x1 = this.x(view, second.start);
    const down = secondAt.y >= firstAt.y;
    const y0 = (firstAt.y + (down ? firstAt.height : 0)) * ratio;
    const y1 = (secondAt.y + (down ? 0 : secondAt.height)) * ratio;
    const bend = Math.min(60 * ratio, Math.max(14 * ratio, Math.abs(y1 - y0) / 2));
    const way = down ? 1 : -1;
    ink.strokeStyle = theme.colour.accent;
    ink.fillStyle = theme.colour.accent;
    ink.lineWidth = 1.5 * ratio;
    ink.globalAlpha = 0.9;
    if (type === "synchronization") ink.setLineDash([5 * ratio, 3 * ratio]);
    ink.beginPath();
    ink.moveTo(x0, y0);
    ink.bezierCurveTo(x0, y0 + way * bend, x1, y1 - way * bend, x1, y1 - way * 5 * ratio);
    ink.stroke();
    ink.setLineDash([]);
    ink.beginPath();
    ink.moveTo(x1, y1);
    ink.lineTo(x1 - 4 * ratio, y1 - way * 7 * ratio);
    ink.lineTo(x1 + 4 * ratio, y1 - way * 7 * ratio);
    ink.fill();
    ink.globalAlpha = 1;
    this.frame(view, other.start, other.duration, there.y * ratio, there.height * ratio, theme.colour.accent, 1.25, 0.9);
    this.arrows += 1;
  }

  /**
   * Where another host's operation may have begun for all that is known of its clock: a band about its beginning.
   * @private
   * @param {Scene} scene
   * @param {number} begin
   * @param {number} error   ns either way
   * @param {{y: number, height: number}} at
   */
  band(scene, begin, error, at) {
    const { ink } = this;
    const { view, theme } = scene;
    const { ratio } = view;
    const a = Math.max(-4, this.x(view, begin - error));
    const b = Math.min(view.width + 4, this.x(view, begin + error));
    if (b - a < 2 * ratio) return;
    const y = at.y * ratio;
    const tall = at.height * ratio;
    ink.fillStyle = theme.colour.accent;
    ink.globalAlpha = 0.28;
    ink.fillRect(a, y, b - a, tall);
    ink.globalAlpha = 0.9;
    const wide = Math.max(1, ratio);
    ink.fillRect(a, y, wide, tall);
    ink.fillRect(b - wide, y, wide, tall);
    ink.globalAlpha = 1;
    this.bands += 1;
    const text = `clocks ±${time(error)}`;
    if (ink.measureText(text).width + 18 * ratio < b - a && tall > 13 * ratio)
      this.tag(theme, text, (Math.max(0, a) + Math.min(view.width, b)) / 2, y + tall / 2, ratio, theme.colour.text);
  }

  /**
   * A collective over its ranks: a line through the arrivals, and on each rank what was waiting and what transfer, and how far other hosts'
   * clocks may be off the selected one's.
   * @private
   * @param {Scene} scene
   * @param {any} detail
   * @param {{y: number, height: number}} self
   */
  collective(scene, detail, self) {
    const { ink } = this;
    const { view, theme } = scene;
    const { ratio } = view;
    /** @type {{x: number, y: number, height: number}[]} */
    const arrivals = [];
    const participants = detail.collective.participants ?? [];
    const isOwn = (/** @type {any} */ one) => one.ref?.row === detail.row && one.ref?.index === detail.index;
    const selected = participants.find(isOwn) ?? participants.find((/** @type {any} */ one) => one.rank === detail.rank);
    for (const one of participants) {
      if (!one.ref) continue;
      const own = isOwn(one);
      const at = own ? self : scene.yOf(one.ref.row);
      if (!at) continue;
      const begin = typeof one.arrival === "number" ? one.arrival : one.ref.start;
      const a = this.x(view, begin);
      const wait = typeof one.wait === "number" ? one.wait : 0;
      const y = at.y * ratio;
      const tall = at.height * ratio;
      const b = this.x(view, begin + wait);
      if (b - a > 1) {
        // Waiting is veiled; what stays in full colour is the transfer.
        ink.fillStyle = theme.colour.surface;
        ink.globalAlpha = 0.62;
        ink.fillRect(Math.max(-4, a), y, Math.min(view.width + 4, b) - Math.max(-4, a), tall);
        ink.globalAlpha = 1;
        const text = `wait ${time(wait)}`;
        const shown = Math.min(view.width, b) - Math.max(0, a);
        if (ink.measureText(text).width + 18 * ratio < shown && tall > 13 * ratio)
          this.tag(theme, text, Math.max(0, a) + shown / 2, y + tall / 2, ratio, theme.colour.text);
      }
      if (!own) this.frame(view, one.ref.start, one.ref.duration, y, tall, theme.colour.accent, 1.25, 0.9);
      // Clocks that nothing joins have no error that could be drawn.
      const known = detail.collective.clock_error_ns != null;
      const error = selected && known ? clockError(one, selected) : 0;
      if (error > 0) this.band(scene, begin, error, at);
      arrivals.push({ x: a, y, height: tall });
    }
    if (arrivals.length < 2) return;
    arrivals.sort((a, b) => a.y - b.y);
    ink.strokeStyle = theme.colour.accent;
    ink.fillStyle = theme.colour.accent;
    ink.lineWidth = 1.5 * ratio;
    ink.globalAlpha = 0.9;
    ink.beginPath();
    for (let k = 0; k + 1 < arrivals.length; k += 1) {
      const { x: x0, y: y0, height } = arrivals[k];
      const { x: x1, y: y1 } = arrivals[k + 1];
      const bend = (y1 - y0 - height) / 2;
      ink.moveTo(x0, y0 + height);
      ink.bezierCurveTo(x0, y0 + height + bend, x1, y1 - bend, x1, y1);
      this.arrows += 1;
    }
    ink.stroke();
    for (const { x, y, height } of arrivals) {
      ink.beginPath();
      ink.arc(x, y + height / 2, 3 * ratio, 0, 2 * Math.PI);
      ink.fill();
    }
    ink.globalAlpha = 1;
  }

  /** @private @param {Scene} scene */
  area(scene) {
    const { ink } = this;
    const { view, theme, state } = scene;
    const { ratio, height, width } = view;
    let box = null;
    if (scene.drag) box = { a: scene.drag.from * ratio, b: scene.drag.to * ratio, top: scene.drag.top * ratio, bottom: scene.drag.bottom * ratio };
    else if (state.area) {
      const places = state.area.rows.map((row) => scene.yOf(row)).filter((at) => at !== null);
      const top = places.length ? Math.min(...places.map((at) => at.y)) * ratio : 0;
      const bottom = places.length ? Math.max(...places.map((at) => at.y + at.height)) * ratio : height;
      box = { a: this.x(view, state.area.from), b: this.x(view, state.area.to), top, bottom };
    }
    if (!box) return;
    const a = Math.max(-4, Math.min(box.a, box.b));
    const b = Math.min(width + 4, Math.max(box.a, box.b));
    if (b < a) return;
    ink.fillStyle = theme.colour.accent;
    ink.globalAlpha = 0.1;
    ink.fillRect(a, box.top, b - a, box.bottom - box.top);
    ink.globalAlpha = 1;
    ink.strokeStyle = theme.colour.accent;
    ink.lineWidth = Math.max(1, ratio);
    ink.strokeRect(a, box.top, b - a, box.bottom - box.top);
    const text = time(Math.abs(box.b - box.a) * view.nsPerPixel);
    this.tag(theme, text, (Math.max(0, a) + Math.min(width, b)) / 2, Math.max(box.top, 0) + 11 * ratio, ratio, theme.colour.accent);
  }

  /** Marks, and the distances between neighbours. @private @param {Scene} scene */
  marks(scene) {
    const { ink } = this;
    const { view, theme, state } = scene;
    const { ratio, height, width } = view;
    const marks = [...state.marks].sort((a, b) => a.from - b.from);
    ink.fillStyle = theme.colour.accent;
    for (const mark of marks) {
      for (const at of mark.to > mark.from ? [mark.from, mark.to] : [mark.from])
        ink.fillRect(Math.round(this.x(view, at)), 0, Math.max(1, Math.round(ratio)), height);
      if (mark.to > mark.from) {
        ink.globalAlpha = 0.07;
        ink.fillRect(this.x(view, mark.from), 0, (mark.to - mark.from) / view.nsPerPixel, height);
        ink.globalAlpha = 1;
      }
    }
    const y = height - 14 * ratio;
    for (let k = 0; k + 1 < marks.length; k += 1) {
      const a = this.x(view, marks[k].to);
      const b = this.x(view, marks[k + 1].from);
      if (b < 0 || a > width || b - a < 4 * ratio) continue;
      ink.fillStyle = theme.colour.accent;
      ink.fillRect(a, y, b - a, Math.max(1, Math.round(ratio)));
      const text = time(marks[k + 1].from - marks[k].to);
      if (ink.measureText(text).width + 12 * ratio < b - a) this.tag(theme, text, (Math.max(0, a) + Math.min(width, b)) / 2, y, ratio, theme.colour.accent);
    }
    for (const mark of marks) {
      if (mark.to <= mark.from) continue;
      const a = Math.max(0, this.x(view, mark.from));
      const b = Math.min(width, this.x(view, mark.to));
      const text = time(mark.to - mark.from);
      if (ink.measureText(text).width + 12 * ratio < b - a) this.tag(theme, text, (a + b) / 2, y, ratio, theme.colour.accent);
    }
  }

  /** @private @param {Theme} theme @param {string} text @param {number} x @param {number} y @param {number} ratio @param {string} colour */
  tag(theme, text, x, y, ratio, colour) {
    const { ink } = this;
    const wide = ink.measureText(text).width + 10 * ratio;
    ink.fillStyle = theme.colour.surface;
    ink.beginPath();
    ink.roundRect(x - wide / 2, y - 8 * ratio, wide, 16 * ratio, 4 * ratio);
    ink.fill();
    ink.fillStyle = colour;
    ink.fillText(text, x - wide / 2 + 5 * ratio, y + ratio / 2);
  }
}
