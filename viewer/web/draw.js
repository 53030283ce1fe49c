// @ts-check
/** Draws the rows of the timeline on their canvas: slices as stretched lines of pixels, counters as areas, texts. */

import { ticks } from "./axis.js";
import { shortName } from "./format.js";
import { wholeNames } from "./names.js";
import { FLAG_CUT, FLAG_DENSITY, colourIndex, firstEndingAfter, lift, rasterRow } from "./raster.js";
import { inkOn } from "./theme.js";
import { tileSpan } from "./tiles.js";

/** @typedef {import("./rows.js").Item} Item */
/** @typedef {import("./theme.js").Theme} Theme */
/** @typedef {import("./tiles.js").TileCache} TileCache */
/**
 * What is looked at. Lengths are device pixels.
 * @typedef {object} View
 * @property {number} from       ns at the left edge
 * @property {number} nsPerPixel
 * @property {number} width
 * @property {number} height
 * @property {number} ratio      device pixels a CSS pixel
 * @property {number} level      of the tiles
 * @property {number} zero       ns that the axis counts from
 * @property {number} end        ns: behind it nothing is recorded, and no tile is waited for
 */
/** One item and where it is drawn, device pixels. @typedef {{item: Item, y: number, height: number}} Line */
/** Lines that are drawn between `top` and `bottom` only. @typedef {{lines: Line[], top: number, bottom: number}} Pane */
/** Part of a row in one tile. @typedef {{columns: any, scale: number, offset: number, low: number, high: number, tile: import("./tiles.js").Tile}} Part */
/** A row's line of pixels on the strip, and what it is of. @typedef {{at: number, parts: Part[], holes: {low: number, high: number}[], records: number, coarser: number}} Made */
/** A counter's shape from its line's top on, and how much it is of. @typedef {{area: Path2D, line: Path2D, band: Path2D, records: number, coarser: number}} Shape */

/** Narrowest slice that gets a text, and lowest line, CSS pixels. */
const LABEL_WIDTH = 26;
const LABEL_HEIGHT = 11;
const LABELS_AT_MOST = 1500;
/** A text that is cut to fewer letters says nothing. */
const LETTERS = 4;

export class Painter {
  /** @param {HTMLCanvasElement} canvas */
  constructor(canvas) {
    this.canvas = canvas;
    this.ink = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", { alpha: false }));
    this.strip = document.createElement("canvas");
    this.stripInk = /** @type {CanvasRenderingContext2D} */ (this.strip.getContext("2d"));
    /** @type {ImageData | null} */
    this.image = null;
    this.pixels = new Uint32Array(0);
    /** Lines of pixels that are on the strip, by their rows. @type {Map<string, Made>} */
    this.made = new Map();
    /** Shapes of counters, by row and height. @type {Map<string, Shape>} */
    this.shapes = new Map();
    /** The window, the tiles and the theme that `made` and `shapes` are for. @type {unknown[]} */
    this.madeFor = [];
    /** Widths of texts, by font. @type {Map<string, Map<string, number>>} */
    this.fonts = new Map();
    /** Those of the font in use. @type {Map<string, number>} */
    this.widths = new Map();
    /** @type {CanvasPattern | null} */
    this.hatch = null;
    this.hatchFor = "";
    /** What the last picture was made of. */
    this.last = { records: 0, labels: 0, lines: 0, missing: 0, coarser: 0 };
  }

  /**
   * @param {View} view
   * @param {Theme} theme
   * @param {Pane[]} panes
   * @param {TileCache} cache
   * @param {{gaps: any[], steps: any[]}} extra
   */
  paint(view, theme, panes, cache, extra) {
    const { ink } = this;
    const { width, height } = view;
    if (this.canvas.width !== width || this.canvas.height !== height) {
      this.canvas.width = width;
      this.canvas.height = height;
    }
    this.last = { records: 0, labels: 0, lines: 0, missing: 0, coarser: 0 };
    cache.clock += 1;
    ink.fillStyle = theme.colour.surface;
    ink.fillRect(0, 0, width, height);
    this.grid(view, theme, extra.steps);

    const slices = panes.flatMap(({ lines }) => lines.filter(({ item }) => !item.counter && item.rows.length > 0));
    this.begin(view, theme, cache);
    const lines = this.linesOf(view, theme, slices, cache);
    this.last.missing = lines.filter(({ holes }) => holes.length > 0).length;
    /** @type {Map<Line, Made>} */
    const made = new Map(slices.map((line, at) => [line, lines[at]]));

    const counterChains = panes.some(({ lines }) => lines.some(({ item }) => item.counter)) ? this.chains(view, "counters", cache) : [];
    for (const { lines, top, bottom } of panes) {
      ink.save();
      ink.beginPath();
      ink.rect(0, top, width, bottom - top);
      ink.clip();
      this.last.lines += lines.length;
      for (const line of lines) this.background(view, theme, line, extra.gaps, made.get(line)?.holes ?? []);
      ink.imageSmoothingEnabled = false;
      for (const line of lines) {
        const of = made.get(line);
        if (!of) continue;
        const pad = line.item.type === "group" ? Math.round(4 * view.ratio) : 0;
        ink.drawImage(this.strip, 0, of.at, width, 1, 0, line.y + pad, width, Math.max(1, line.height - 2 * pad));
      }
      for (const line of lines) if (line.item.counter) this.counter(view, theme, line, counterChains);
      this.labels(view, theme, lines, made);
      ink.restore();
    }
  }

  /**
   * Forgets what was made unless the same window of the same tiles is drawn again: scrolling makes only what comes into view.
   * @param {View} view
   * @param {Theme} theme
   * @param {TileCache} cache
   */
  begin(view, theme, cache) {
    const wanted = [view.from, view.nsPerPixel, view.width, view.ratio, theme, cache, cache.revision, cache.names?.colours.size];
    if (wanted.every((value, at) => value === this.madeFor[at])) return;
    this.madeFor = wanted;
    this.made.clear();
    this.shapes.clear();
  }

  /**
   * The lines of pixels of some rows, made where they are not on the strip.
   * @param {View} view
   * @param {Theme} theme
   * @param {Line[]} slices
   * @param {TileCache} cache
   * @returns {Made[]} one for each line
   */
  linesOf(view, theme, slices, cache) {
    const { width } = view;
    const chains = this.chains(view, "slices", cache);
    const keys = slices.map(({ item }) => item.rows.join());
    const more = keys.filter((key) => !this.made.has(key)).length;
    if (this.made.size === 0 || this.made.size + more > (this.image?.height ?? 0)) {
      this.made.clear();
      this.reserve(width, slices.length);
    }
    const before = this.made.size;
    slices.forEach(({ item }, line) => {
      if (this.made.has(keys[line])) return;
      const at = this.made.size;
      /** @type {Made} */
      const made = { at, parts: [], holes: [], records: 0, coarser: 0 };
      for (const row of item.rows) {
        const { list, holes, coarser } = this.partsOf(view, chains, row);
        if (holes.length > 0) made.holes = holes;
        made.coarser += coarser;
        for (const part of list) made.records += rasterRow(this.pixels, at * width, part.columns, part.scale, part.offset, part.low, part.high, theme.palette, part.tile.names?.colours.size ? part.tile.names.colours : null);
        made.parts.push(...list);
      }
      lift(this.pixels, at * width, width);
      this.made.set(keys[line], made);
    });
    if (this.made.size > before && this.image) this.stripInk.putImageData(this.image, 0, 0, 0, before, width, this.made.size - before);
    return keys.map((key) => {
      const made = /** @type {Made} */ (this.made.get(key));
      this.last.records += made.records;
      this.last.coarser += made.coarser;
      return made;
    });
  }

  /**
   * Room for lines of pixels, and as many more, cleared.
   * @param {number} width
   * @param {number} lines
   */
  reserve(width, lines) {
    if (!this.image || this.image.width !== width || this.image.height < lines) {
      const room = Math.max(64, 2 ** Math.ceil(Math.log2(Math.max(1, 2 * lines))));
      this.image = new ImageData(Math.max(1, width), room);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.strip.width = width;
      this.strip.height = room;
    } else this.pixels.fill(0);
  }

  /**
   * For each tile that the view touches: what is there of it, and where it lies.
   * @param {View} view
   * @param {import("./tiles.js").Sort} sort
   * @param {TileCache} cache
   */
  chains(view, sort, cache) {
    const span = tileSpan(view.level);
    const first = Math.max(0, Math.floor(view.from / span));
    const last = Math.floor(Math.min(view.from + view.width * view.nsPerPixel, view.end) / span);
    const list = [];
    for (let index = first; index <= last; index += 1) {
      const begin = (index * span - view.from) / view.nsPerPixel;
      list.push({ low: Math.max(0, begin), high: Math.min(view.width, begin + span / view.nsPerPixel), tiles: cache.chain(sort, view.level, index) });
    }
    return list;
  }

  /**
   * Where to take a row from, tile by tile.
   * @param {View} view
   * @param {ReturnType<Painter["chains"]>} chains
   * @param {number} row
   * @returns {{list: Part[], holes: {low: number, high: number}[], coarser: number}} `holes`: where nothing is known yet; `coarser`:
   *   parts that stand in for finer ones
   */
  partsOf(view, chains, row) {
    const list = [];
    const holes = [];
    let coarser = 0;
    for (const { low, high, tiles } of chains) {
      const tile = tiles.find((other) => other.rows.has(row));
      if (!tile) {
        holes.push({ low, high });
        continue;
      }
      if (tile.level !== view.level) coarser += 1;
      const scale = 2 ** tile.level / view.nsPerPixel;
      const offset = (tile.index * tileSpan(tile.level) - view.from) / view.nsPerPixel;
      list.push({ columns: tile.rows.get(row), scale, offset, low, high, tile });
    }
    return { list, holes, coarser };
  }

  /**
   * Faint lines at the axis' ticks and, stronger, where steps begin.
   * @param {View} view
   * @param {Theme} theme
   * @param {any[]} steps
   */
  grid(view, theme, steps) {
    const { ink } = this;
    const { from, nsPerPixel, width, height, ratio, zero } = view;
    const to = from + width * nsPerPixel;
    ink.fillStyle = theme.colour.line;
    ink.globalAlpha = 0.55;
    for (const { at } of ticks(from - zero, to - zero, nsPerPixel, 110 * ratio).ticks) ink.fillRect(Math.round((at + zero - from) / nsPerPixel), 0, Math.max(1, Math.round(ratio)), height);
    ink.globalAlpha = 1;
    const shown = steps.filter((step) => step.begin < to && step.end > from);
    if (shown.length > 0 && shown.length * 14 * ratio < width) {
      ink.fillStyle = theme.colour["line-strong"];
      for (const step of shown) ink.fillRect(Math.round((step.begin - from) / nsPerPixel), 0, Math.max(1, Math.round(ratio)), height);
    }
  }

  /** @param {Theme} theme @param {number} ratio */
  hatching(theme, ratio) {
    const wanted = `${theme.colour["line-strong"]} ${ratio}`;
    if (this.hatch && this.hatchFor === wanted) return this.hatch;
    const size = Math.round(8 * ratio);
    const tile = document.createElement("canvas");
    tile.width = size;
    tile.height = size;
    const ink = /** @type {CanvasRenderingContext2D} */ (tile.getContext("2d"));
    ink.strokeStyle = theme.colour["line-strong"];
    ink.lineWidth = ratio;
    ink.beginPath();
    for (let k = -1; k <= 1; k += 1) {
      ink.moveTo(k * size - 1, size + 1);
      ink.lineTo((k + 1) * size + 1, -1);
    }
    ink.stroke();
    this.hatch = this.ink.createPattern(tile, "repeat");
    this.hatchFor = wanted;
    return this.hatch;
  }

  /**
   * What lies under a line: the edge between groups, and hatching where nothing was recorded.
   * @param {View} view
   * @param {Theme} theme
   * @param {Line} line
   * @param {any[]} gaps
   * @param {{low: number, high: number}[]} holes   parts that are still being fetched
   */
  background(view, theme, { item, y, height }, gaps, holes) {
    const { ink } = this;
    const { width, ratio, from, nsPerPixel } = view;
    if (item.inset > 0) {
      ink.fillStyle = theme.colour.line;
      ink.fillRect(0, y - Math.ceil(3 * ratio), width, Math.max(1, Math.round(ratio)));
    }
    if (item.type === "group" && item.rows.length === 0) {
      // A heading: its line is a strip of the page, not an empty row.
      ink.fillStyle = theme.colour.background;
      ink.fillRect(0, y, width, height + 1);
    }
    if (item.counter || item.rows.length === 0) return;
    if (!item.pinned && item.type === "lane") {
      ink.fillStyle = theme.colour.idle;
      ink.globalAlpha = 0.5;
      ink.fillRect(0, y, width, height);
      ink.globalAlpha = 1;
    }
    ink.fillStyle = theme.colour.hover;
    for (const { low, high } of holes) ink.fillRect(low, y, high - low, height);
    const rank = item.row ? item.row.rank : item.node.rank;
    for (const gap of gaps) {
      if (gap.rank !== null && gap.rank !== undefined && gap.rank !== rank) continue;
      const a = Math.max(0, (gap.from - from) / nsPerPixel);
      const b = Math.min(width, (gap.to - from) / nsPerPixel);
      const hatch = this.hatching(theme, ratio);
      if (b <= a || !hatch) continue;
      ink.fillStyle = hatch;
      ink.fillRect(a, y, Math.max(1, b - a), height);
    }
  }

  /**
   * A counter: a filled area under its last values, with the band between least and greatest where bins hold many.
   * @param {View} view
   * @param {Theme} theme
   * @param {Line} line
   * @param {ReturnType<Painter["chains"]>} chains
   */
  counter(view, theme, { item, y, height }, chains) {
    const { ink } = this;
    const row = /** @type {import("./rows.js").Row} */ (item.row);
    const key = `${row.row} ${height}`;
    let shape = this.shapes.get(key);
    if (!shape) {
      shape = this.shapeOf(view, row, height, chains);
      this.shapes.set(key, shape);
    }
    this.last.records += shape.records;
    this.last.coarser += shape.coarser;
    ink.save();
    ink.translate(0, y);
    ink.fillStyle = theme.colour.counter;
    ink.globalAlpha = 0.2;
    ink.fill(shape.area);
    ink.globalAlpha = 0.3;
    ink.fill(shape.band);
    ink.globalAlpha = 1;
    ink.strokeStyle = theme.colour.counter;
    ink.lineWidth = view.ratio;
    ink.stroke(shape.line);
    ink.restore();
  }

  /**
   * @private
   * @param {View} view
   * @param {import("./rows.js").Row} row
   * @param {number} height
   * @param {ReturnType<Painter["chains"]>} chains
   * @returns {Shape}
   */
  shapeOf(view, row, height, chains) {
    const least = Math.min(0, row.min ?? 0);
    const most = Math.max(row.max ?? 1, least + 1e-9);
    const room = height - Math.round(2 * view.ratio);
    const at = (/** @type {number} */ value) => height - ((value - least) / (most - least)) * room;
    const { list, coarser } = this.partsOf(view, chains, row.row);
    const shape = { area: new Path2D(), line: new Path2D(), band: new Path2D(), records: 0, coarser };
    const { area, line, band } = shape;
    let end = Number.NEGATIVE_INFINITY;
    for (const { columns, scale, offset, low, high } of list) {
      const { n, x0, x1, min, max, last } = columns;
      for (let i = firstEndingAfter(x1, n, (low - offset) / scale); i < n; i += 1) {
        const a = Math.max(low, x0[i] * scale + offset);
        if (a >= high) break;
        const b = Math.min(high, x1[i] * scale + offset);
        const top = at(last[i]);
        if (a - end > 1) {
          if (end >= 0) area.lineTo(end, height);
          area.moveTo(a, height);
          line.moveTo(a, top);
        }
        area.lineTo(a, top);
        area.lineTo(b, top);
        line.lineTo(a, top);
        line.lineTo(b, top);
        end = b;
        if (max[i] > min[i]) band.rect(a, at(max[i]), Math.max(0.5, b - a), Math.max(1, at(min[i]) - at(max[i])));
        shape.records += 1;
      }
    }
    if (end >= 0) area.lineTo(end, height);
    return shape;
  }

  /** @private @param {string} font */
  widthsOf(font) {
    let widths = this.fonts.get(font);
    if (!widths) {
      if (this.fonts.size > 12) this.fonts.clear();
      widths = new Map();
      this.fonts.set(font, widths);
    }
    return widths;
  }

  /**
   * Width of a text, measured once.
   * @param {string} text
   */
  widthOf(text) {
    let width = this.widths.get(text);
    if (width === undefined) {
      if (this.widths.size > 20000) this.widths.clear();
      width = this.ink.measureText(text).width;
      this.widths.set(text, width);
    }
    return width;
  }

  /**
   * As much of a text as fits.
   * @param {string} text
   * @param {number} room
   */
  fit(text, room) {
    const width = this.widthOf(text);
    if (width <= room) return text;
    for (let letters = Math.floor((text.length * (room - this.widthOf("…"))) / width); letters >= LETTERS; letters -= 1) {
      const cut = `${text.slice(0, letters).trimEnd()}…`;
      if (this.widthOf(cut) <= room) return cut;
    }
    return "";
  }

  /**
   * Names on slices that are wide enough; a slice that reaches over tiles gets one.
   * @param {View} view
   * @param {Theme} theme
   * @param {Line[]} lines
   * @param {Map<Line, Made>} made
   */
  labels(view, theme, lines, made) {
    const { ink } = this;
    const { ratio } = view;
    const least = LABEL_WIDTH * ratio;
    const pad = Math.round(4 * ratio);
    let font = "";
    ink.textBaseline = "middle";
    for (const line of lines) {
      const { item, y, height } = line;
      if (height < LABEL_HEIGHT * ratio || item.rows.length !== 1) continue;
      const wanted = `${Math.round((height < 17 * ratio ? 10 : 11.5) * ratio * 2) / 2}px ${getFont()}`;
      if (wanted !== font) {
        font = wanted;
        ink.font = font;
        this.widths = this.widthsOf(font);
      }
      let before = -1;
      let colour = "";
      for (const { columns, scale, offset, low, high, tile } of made.get(line)?.parts ?? []) {
        const { n, x0, x1, name, meta, id } = columns;
        const narrow = least / scale;
        for (let i = firstEndingAfter(x1, n, (low - offset) / scale); i < n; i += 1) {
          const a = x0[i] * scale + offset;
          if (a >= high) break;
          if (x1[i] - x0[i] < narrow) continue;
          const density = (meta[i] >>> 16) & FLAG_DENSITY;
          if (density || id[i] === before) continue;
          before = id[i];
          const left = Math.max(0, a);
          const right = Math.min(view.width, x1[i] * scale + offset);
          const room = right - left - 2 * pad;
          if (room < least - 2 * pad) continue;
          const whole = tile.names?.get(name[i]);
          if (!whole) continue;
          const text = this.fit(labelOf(whole), room);
          if (!text) continue;
          const own = tile.names?.colours.get(name[i]);
          const best = own === undefined ? theme.inks[colourIndex(meta[i])] : inkOn([own & 255, (own >> 8) & 255, own >> 16]);
          if (best !== colour) {
            colour = best;
            ink.fillStyle = colour;
          }
          ink.fillText(text, Math.round(left + pad), y + height / 2 + ratio / 2);
          if ((meta[i] >>> 16) & FLAG_CUT) ink.fillText("⋯", right - pad, y + height / 2);
          this.last.labels += 1;
          if (this.last.labels > LABELS_AT_MOST) return;
        }
      }
    }
  }
}

/** @type {Map<string, string>} */
const shortened = new Map();

/**
 * What is written on a slice: of a kernel its last word, of NCCL's kernels what they do.
 * @param {string} name
 */
function labelOf(name) {
  if (wholeNames()) return name;
  let label = shortened.get(name);
  if (label === undefined) {
    if (shortened.size > 20000) shortened.clear();
    label = shortName(name).replace(/^nccl(?:Dev)?Kernel_/, "");
    shortened.set(name, label);
  }
  return label;
}

let font = "";
/** The page's own font, for canvases. */
export function getFont() {
  font ||= getComputedStyle(document.body).fontFamily;
  return font;
}
