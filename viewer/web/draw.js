// @ts-check
/** Draws the rows of the timeline on their canvas: slices as stretched lines of pixels, counters as areas, texts. */

import { shortName } from "./format.js";
import { wholeNames } from "./names.js";
import { FLAG_CUT, FLAG_DENSITY, colourIndex, firstEndingAfter, lift, rasterCounter, rasterRow } from "./raster.js";
import { Strip } from "./strip.js";
import { inkOn, packed, rgb } from "./theme.js";
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
/**
 * A row's line of pixels on the strip, and what it is of.
 * @typedef {{at: number, parts: Part[], holes: {low: number, high: number}[], records: number, coarser: number}} Made
 */
/** A counter's pixels: the first of its lines on the sheet, and how much it is of. @typedef {{at: number, records: number, coarser: number}} Shape */

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
    /** Rows of slices, a line of pixels each. */
    this.strip = new Strip();
    /** Counters, as high as they are drawn. */
    this.sheet = new Strip();
    /** Lines of pixels that are on the strip, by their rows. @type {Map<string, Made>} */
    this.made = new Map();
    /** Counters that are on the sheet, by row and height. @type {Map<string, Shape>} */
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
   * @param {{gaps: any[], steps: any[], ticks: {at: number}[]}} extra
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
    this.grid(view, theme, extra.steps, extra.ticks);

    const slices = panes.flatMap(({ lines }) => lines.filter(({ item }) => !item.counter && item.rows.length > 0));
    this.begin(view, theme, cache);
    const lines = this.linesOf(view, theme, slices, cache);
    this.last.missing = lines.filter(({ holes }) => holes.length > 0).length;
    /** @type {Map<Line, Made>} */
    const made = new Map(slices.map((line, at) => [line, lines[at]]));

    const counters = panes.flatMap(({ lines }) => lines.filter(({ item }) => item.counter));
    const shapes = this.shapesOf(view, theme, counters, cache);
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
        ink.drawImage(this.strip.canvas, 0, of.at, width, 1, 0, line.y + pad, width, Math.max(1, line.height - 2 * pad));
      }
      for (const line of lines) {
        const shape = shapes.get(line);
        if (shape) ink.drawImage(this.sheet.canvas, 0, shape.at, width, line.height, 0, line.y, width, line.height);
      }
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
    const wanted = [view.from, view.nsPerPixel, view.level, view.width, view.ratio, theme, cache, cache.revision, cache.names?.colours.size];
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
    if (this.made.size === 0 || !this.strip.fits(width, more)) {
      this.made.clear();
      this.strip.reserve(width, slices.length, slices.length >> 1);
    }
    const { pixels, used: before } = this.strip;
    slices.forEach(({ item }, line) => {
      if (this.made.has(keys[line])) return;
      const at = this.strip.take(1);
      /** @type {Made} */
      const made = { at, parts: [], holes: [], records: 0, coarser: 0 };
      for (const row of item.rows) {
        const { list, holes, coarser } = this.partsOf(view, chains, row);
        if (holes.length > 0) made.holes = holes;
        made.coarser += coarser;
        for (const part of list)
          made.records += rasterRow(
            pixels,
            at * width,
            part.columns,
            part.scale,
            part.offset,
            part.low,
            part.high,
            theme.palette,
            part.tile.names?.colours.size ? part.tile.names.colours : null,
          );
        made.parts.push(...list);
      }
      lift(pixels, at * width, width);
      this.made.set(keys[line], made);
    });
    this.strip.show(before);
    return keys.map((key) => {
      const made = /** @type {Made} */ (this.made.get(key));
      this.last.records += made.records;
      this.last.coarser += made.coarser;
      return made;
    });
  }

  /**
   * The pixels of some counters, made where they are not on the sheet: an area under the values, darker between least and
   * greatest where a pixel holds many. Stroked and filled paths of as many values took most of a frame.
   * @param {View} view
   * @param {Theme} theme
   * @param {Line[]} counters
   * @param {TileCache} cache
   * @returns {Map<Line, Shape>}
   */
  shapesOf(view, theme, counters, cache) {
    const found = new Map();
    if (counters.length === 0) return found;
    const { width } = view;
    const chains = this.chains(view, "counters", cache);
    const key = (/** @type {Line} */ { item, height }) => `${item.rows[0]} ${height}`;
    const sum = (/** @type {Line[]} */ lines) => lines.reduce((high, { height }) => high + height, 0);
    if (this.shapes.size === 0 || !this.sheet.fits(width, sum(counters.filter((line) => !this.shapes.has(key(line)))))) {
      this.shapes.clear();
      this.sheet.reserve(width, sum(counters), sum(counters) >> 2);
    }
    const { pixels, used: before } = this.sheet;
    const colour = packed(rgb(theme.colour.counter));
    for (const line of counters) {
      let shape = this.shapes.get(key(line));
      if (!shape) {
        const row = /** @type {import("./rows.js").Row} */ (line.item.row);
        const { list, coarser } = this.partsOf(view, chains, row.row);
        const at = this.sheet.take(line.height);
        const least = Math.min(0, row.min ?? 0);
        const most = Math.max(row.max ?? 1, least + 1e-9);
        shape = { at, coarser, records: rasterCounter(pixels, width, at, line.height, list, least, most, colour, view.ratio) };
        this.shapes.set(key(line), shape);
      }
      this.last.records += shape.records;
      this.last.coarser += shape.coarser;
      found.set(line, shape);
    }
    this.sheet.show(before);
    return found;
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
   * @param {{at: number}[]} ticks
   */
  grid(view, theme, steps, ticks) {
    const { ink } = this;
    const { from, nsPerPixel, width, height, ratio } = view;
    const to = from + width * nsPerPixel;
    ink.fillStyle = theme.colour.line;
    ink.globalAlpha = 0.55;
    for (const { at } of ticks) ink.fillRect(Math.round((at - from) / nsPerPixel), 0, Math.max(1, Math.round(ratio)), height);
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
