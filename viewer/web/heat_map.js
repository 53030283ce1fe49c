// @ts-check
/** The picture of ranks by steps: a canvas with the names of rows and steps around it, a pointer, arrow keys. */

import { hideTip, showTip, tipLines } from "./charts.js";
import { h, replace, svg } from "./dom.js";
import { middle, place as nameOf, severalDevices } from "./format.js";
import { arranged, colourOf, columnName, idOf, laid, lineAt, scaleOf, shareOf, stateWords } from "./heat.js";

/** @typedef {import("./heat.js").Overview} Overview */
/** @typedef {import("./heat.js").Cells} Cells */

/** Width of a cell, CSS pixels: at least, and at most. */
const LEAST_CELL = 3;
const MOST_CELL = 44;
/** Room for names of rows: in a wide window, in a narrow one. */
const NAMES = 150;
const NAMES_NARROW = 76;
const NARROW = 560;
/** The axis of steps above. */
const AXIS = 22;
/** A name needs so much height, a cell so much to be hatched or kept apart from its neighbours. */
const TEXT = 11;
const APART = 8;
/** Rows that Page Up and Page Down pass over. */
const PAGE = 10;

export class HeatMap {
  /**
   * @param {{choose: (cell: import("./heat.js").HeatView["cell"]) => void, open: (row: number, step: number) => void, resized: () => void,
   *   say: (text: string) => void}} told
   */
  constructor(told) {
    this.told = told;
    this.canvas = h("canvas", { class: "heat-cells", "aria-hidden": "true" });
    this.axis = h("canvas", { class: "heat-axis", "aria-hidden": "true" });
    this.marked = h("div", { class: "heat-marked", hidden: true });
    this.body = h("div", {
      class: "heat-body", tabindex: "0", role: "application", "aria-roledescription": "heat map",
      "aria-label": "Ranks by steps: arrow keys move, Enter opens a rank's timeline",
    }, this.canvas, this.marked);
    this.element = h("div", { class: "heat" }, this.axis, this.body);
    this.legend = h("div", { class: "heat-legend" });
    this.width = 0;
    /** How many steps a cell is. */
    this.every = 1;
    /** What the lines are of. @type {{cells: Cells, group: string, sort: string} | null} */
    this.arrangedAs = null;
    /** @type {Overview | null} */
    this.overview = null;
    this.several = false;
    /** @type {Cells | null} */
    this.cells = null;
    /** @type {import("../types/analysis.js").StepMeasure | null} */
    this.measure = null;
    /** @type {(value: number | null) => string} */
    this.write = String;
    /** @type {{title: string, rows: number[]}[]} */
    this.groups = [];
    /** @type {ReturnType<typeof laid>} */
    this.place = { lines: [], rowHeight: 1, height: 0, left_out: 0 };
    /** @type {ReturnType<typeof scaleOf>} */
    this.scale = null;
    /** Line and column that are chosen. @type {{line: number, column: number} | null} */
    this.chosen = null;
    this.observer = new ResizeObserver((entries) => this.resize(Math.floor(entries[0].contentRect.width)));
    this.observer.observe(this.element);
    this.body.addEventListener("pointermove", (event) => this.point(event));
    this.body.addEventListener("pointerleave", hideTip);
    this.body.addEventListener("blur", hideTip);
    this.body.addEventListener("click", (event) => this.click(event));
    this.body.addEventListener("keydown", (event) => this.key(event));
  }

  /** Columns that there is room for. */
  get columns() {
    return Math.max(1, Math.min(4096, Math.floor(Math.max(100, this.width - this.names) / LEAST_CELL)));
  }

  get names() {
    return this.width < NARROW ? NAMES_NARROW : NAMES;
  }

  /** Width of a cell. */
  get cell() {
    const count = this.cells?.columns.length ?? 1;
    return Math.max(1, Math.min(MOST_CELL, (this.width - this.names) / Math.max(1, count)));
  }

  /** Takes its width, once it is on the page. */
  fit() {
    this.width = Math.floor(this.element.getBoundingClientRect().width);
  }

  /** @private @param {number} width */
  resize(width) {
    if (width === this.width || width < 100) return;
    const before = this.columns;
    this.width = width;
    // Not within the observation: drawing changes heights, which would be observed again.
    requestAnimationFrame(() => {
      // Where more steps have room, or fewer, cells are others.
      const count = this.overview?.steps.length ?? 0;
      if (this.columns !== before && (count > before || count > this.columns || !this.cells)) this.told.resized();
      if (this.cells) this.draw();
    });
  }

  /**
   * @param {Overview} overview @param {Cells} cells @param {import("../types/analysis.js").StepMeasure} measure
   * @param {(value: number | null) => string} write
   */
  show(overview, cells, measure, write) {
    Object.assign(this, { overview, cells, measure, write, several: severalDevices({ ranks: overview.rows }) });
    const [first, last] = cells.columns[0] ?? [0, 0];
    this.every = last - first + 1;
    this.scale = scaleOf(cells.values);
    this.drawLegend();
  }

  /** Puts rows in their order. @param {import("./heat.js").HeatView} view */
  arrange(view) {
    const { overview, cells } = this;
    if (!overview || !cells) return;
    const as = this.arrangedAs;
    const isSame = as?.cells === cells && as.group === view.group && as.sort === view.sort;
    if (!isSame) {
      this.groups = arranged(overview, view, cells.distances);
      this.place = laid(this.groups, view.sort === "outliers");
      this.arrangedAs = { cells, group: view.group, sort: view.sort };
    }
    this.chosen = null;
    if (view.cell) {
      const { rank, step, repeat } = view.cell;
      const line = this.place.lines.findIndex(({ row }) => idOf(overview.rows[row], row) === rank);
      const isIt = (/** @type {{number: number, repeat: number}} */ one) => one.number === step && one.repeat === repeat;
      const column = cells.columns.findIndex(([first, last]) => overview.steps.slice(first, last + 1).some(isIt));
      if (line >= 0) this.chosen = { line, column: Math.max(0, column) };
    }
    if (isSame) this.mark();
    else this.draw();
  }

  /** @private */
  drawLegend() {
    const { scale } = this;
    const stops = Array.from({ length: 11 }, (_, at) => `rgb(${colourOf(at / 10).join(",")})`);
    replace(this.legend,
      scale ? [
        h("span", { class: "heat-end" }, this.write(scale.low)),
        h("span", { class: "heat-ramp", role: "img", "aria-label": `from ${this.write(scale.low)}, dark, to ${this.write(scale.high)}, light`,
          style: { background: `linear-gradient(to right, ${stops.join(",")})` } }),
        h("span", { class: "heat-end" }, this.write(scale.high) + (scale.cut ? " and more" : "")),
      ] : null,
      h("span", { class: "heat-none" }, svg("svg", { width: 16, height: 12, "aria-hidden": "true" },
        svg("rect", { width: 16, height: 12, class: "heat-nobox" }), svg("path", { class: "heat-noline", d: "M0,12L12,0M6,14L20,0M-6,8L4,-2" })), "no value"));
  }

  /** Draws everything at once. */
  draw() {
    const { overview, cells, place, width } = this;
    if (!overview || !cells || !width) return;
    const style = getComputedStyle(this.element);
    const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
    const [text, faint, none, line] = ["--text", "--text-3", "--heat-none", "--line-strong"].map(colour);
    const ratio = Math.min(2, devicePixelRatio || 1);
    const height = Math.max(1, place.height);
    const c = prepared(this.canvas, width, height, ratio);
    const { names, cell } = this;
    const { lines } = place;
    c.font = `${Math.min(12, Math.max(10, place.rowHeight - 1))}px ${style.fontFamily}`;
    c.textBaseline = "middle";
    const room = names - 10;
    // Groups are named where there is room; else rows are.
    const isGrouped = this.groups.length > 1;
    let free = -Infinity;
    let group = -1;
    for (const one of lines) {
      const row = overview.rows[one.row];
      const rowHeight = one.height;
      const gap = rowHeight >= APART && cell >= APART ? 1 : 0;
      const isFirst = one.group !== group;
      group = one.group;
      const own = this.rowName(one.row);
      const name = isGrouped && isFirst && rowHeight < TEXT ? this.groups[group].title : own;
      const wanted = isGrouped && rowHeight < TEXT ? isFirst : true;
      // Whole within the picture.
      const y = Math.max(TEXT / 2 + 1, Math.min(height - TEXT / 2, one.top + rowHeight / 2));
      if (wanted && y - TEXT / 2 >= free) {
        c.fillStyle = row.state === "here" ? text : faint;
        const label = rowHeight >= TEXT && isGrouped && isFirst ? `${this.groups[group].title} ${own}` : name;
        c.textAlign = "right";
        c.fillText(fitting(c, label, room), names - 8, y);
        free = y + TEXT / 2 + 3;
      }
      if (isGrouped && isFirst && one.top > 0) {
        c.fillStyle = line;
        c.fillRect(names - 6, one.top - 1, 6, 1);
      }
      const values = cells.values[one.row];
      for (let column = 0; column < cells.columns.length; column++) {
        const value = values[column] ?? null;
        const x = Math.round(names + column * cell);
        const wide = Math.max(1, Math.round(names + (column + 1) * cell) - x - gap);
        if (value === null || !this.scale) {
          c.fillStyle = none;
          c.fillRect(x, one.top, wide, rowHeight - gap);
          continue;
        }
        c.fillStyle = `rgb(${colourOf(shareOf(value, this.scale)).join(",")})`;
        c.fillRect(x, one.top, wide, rowHeight - gap);
      }
      if (values.every((value) => value === null)) hatched(c, names, one.top, cells.columns.length * cell, rowHeight - gap, faint);
      else if (rowHeight >= APART) {
        cells.columns.forEach((_, column) =>
          (values[column] ?? null) === null && hatched(c, names + column * cell, one.top, cell - gap, rowHeight - gap, faint));
      }
    }
    this.drawAxis(text, faint, style.fontFamily, ratio);
    this.mark();
  }

  /** The steps above. @private @param {string} text @param {string} faint @param {string} font @param {number} ratio */
  drawAxis(text, faint, font, ratio) {
    const { overview, cells, names, cell, width } = this;
    if (!overview || !cells) return;
    const c = prepared(this.axis, width, AXIS, ratio);
    c.font = `11px ${font}`;
    c.textBaseline = "middle";
    c.fillStyle = faint;
    c.textAlign = "right";
    c.fillText("step", names - 8, AXIS / 2);
    c.textAlign = "left";
    let free = -Infinity;
    cells.columns.forEach(([first], column) => {
      const label = String(overview.steps[first].number);
      const x = names + column * cell;
      const wide = c.measureText(label).width;
      if (x < free || x + wide > width) return;
      c.fillStyle = faint;
      c.fillRect(Math.round(x), AXIS - 4, 1, 4);
      c.fillStyle = text;
      c.fillText(label, x + 2, AXIS / 2 - 1);
      free = x + wide + 12;
    });
  }

  /** The chosen cell. @private */
  mark() {
    const { chosen, place, names, cell } = this;
    this.marked.hidden = !chosen;
    if (!chosen) return;
    const line = place.lines[chosen.line];
    const style = this.marked.style;
    style.left = `${Math.round(names + chosen.column * cell) - 2}px`;
    style.top = `${line.top - 2}px`;
    style.width = `${Math.max(1, Math.round(cell)) + 4}px`;
    style.height = `${line.height + 4}px`;
  }

  /** @private @param {MouseEvent} event */
  under(event) {
    const { cells, place } = this;
    const bounds = this.body.getBoundingClientRect();
    const line = lineAt(place.lines, event.clientY - bounds.top);
    const x = event.clientX - bounds.left - this.names;
    const column = Math.floor(x / this.cell);
    return cells && line >= 0 && column < cells.columns.length ? { line, column: Math.max(0, column), isName: x < 0 } : null;
  }

  /** @private @param {PointerEvent} event */
  point(event) {
    const at = this.under(event);
    if (at) this.tip(at, event.clientX, event.clientY);
    else hideTip();
  }

  /**
   * Exact figures beside a cell.
   * @private @param {{line: number, column: number, isName?: boolean}} at @param {number} x @param {number} y
   */
  tip(at, x, y) {
    const { overview, cells, place, measure, write } = this;
    if (!overview || !cells || !measure) return;
    const { row, group } = place.lines[at.line];
    const of = overview.rows[row];
    const who = [this.rowName(row), of.host ? `, ${middle(of.host, 40)}` : ""].join("");
    const why = stateWords(of);
    const title = this.groups.length > 1 ? this.groups[group].title : "";
    const about = [
      ...(of.device_name ? [{ name: "device", value: middle(of.device_name, 40) }] : []),
      ...(of.stage === null ? [] : [{ name: "pipeline stage", value: String(of.stage) }]),
      ...(title && title !== of.host ? [{ name: "group", value: middle(title, 40) }] : []),
    ];
    const distance = cells.distances[row];
    const far = distance === null ? [] : [{ name: "mean distance from the median", value: write(distance) }];
    if (why || at.isName) return showTip(x, y, tipLines(who, [...about, ...far], why || undefined));
    const value = cells.values[row][at.column] ?? null;
    const median = cells.medians[at.column];
    const label = this.every > 1 ? `${measure.label}, ${cells.binned === "max" ? "greatest" : "median"}` : measure.label;
    showTip(x, y, tipLines([who, ", ", columnName(overview, cells.columns[at.column])], [
      { name: label, value: write(value), strong: true },
      { name: "median of all ranks", value: write(median) },
      ...(value === null || median === null ? [] : [{ name: "difference", value: (value < median ? "\u2212" : "+") + write(Math.abs(value - median)) }]),
      ...far,
      ...about,
    ]));
  }

  /** @private @param {number} row */
  rowName(row) {
    const of = this.overview?.rows[row];
    return of ? nameOf(of, this.several) : "";
  }

  /** @private @param {MouseEvent} event */
  click(event) {
    const at = this.under(event);
    if (!at) return;
    hideTip();
    this.choose(at);
    this.open();
  }

  /** @private @param {{line: number, column: number}} at */
  choose({ line, column }) {
    const { overview, cells, place } = this;
    if (!overview || !cells) return;
    this.chosen = { line, column };
    this.mark();
    const { row } = place.lines[line];
    const step = overview.steps[cells.columns[column]?.[0] ?? 0];
    this.told.choose({ rank: idOf(overview.rows[row], row), step: step?.number ?? 0, repeat: step?.repeat ?? 0 });
  }

  /** @private */
  open() {
    const { chosen, cells, place } = this;
    if (chosen && cells) this.told.open(place.lines[chosen.line].row, cells.columns[chosen.column]?.[0] ?? 0);
  }

  /** @private @param {KeyboardEvent} event */
  key(event) {
    const { overview, cells, place, chosen } = this;
    if (!overview || !cells || !place.lines.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = /** @type {Record<string, [number, number]>} */ ({
      ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], PageDown: [PAGE, 0], PageUp: [-PAGE, 0],
      Home: [-Infinity, 0], End: [Infinity, 0],
    });
    const move = moves[event.key];
    if (move) {
      const within = (/** @type {number} */ value, /** @type {number} */ count) => Math.max(0, Math.min(count - 1, value));
      const at = chosen
        ? { line: within(chosen.line + move[0], place.lines.length), column: within(chosen.column + move[1], cells.columns.length) }
        : { line: 0, column: 0 };
      this.choose(at);
      this.marked.scrollIntoView({ block: "nearest" });
      const { row } = place.lines[at.line];
      const bounds = this.marked.getBoundingClientRect();
      this.tip(at, bounds.right, bounds.bottom);
      const value = this.measure ? `${this.measure.label} ${this.write(cells.values[row][at.column] ?? null)}` : "";
      this.told.say(`${this.rowName(row)}, ${columnName(overview, cells.columns[at.column])}: ${stateWords(overview.rows[row]) || value}`);
    } else if (event.key === "Enter" && chosen) {
      hideTip();
      this.open();
    } else if (event.key === "Escape" && chosen) {
      hideTip();
      this.chosen = null;
      this.mark();
      this.told.choose(null);
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }

  destroy() {
    this.observer.disconnect();
    hideTip();
  }
}

/** A canvas of a size, empty. @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @param {number} ratio */
function prepared(canvas, width, height, ratio) {
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const c = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  c.setTransform(ratio, 0, 0, ratio, 0, 0);
  return c;
}

/** A text cut in its middle until it has room. @param {CanvasRenderingContext2D} c @param {string} text @param {number} room */
function fitting(c, text, room) {
  let most = 48;
  let short = middle(text, most);
  while (most > 4 && c.measureText(short).width > room) short = middle(text, (most -= 2));
  return short;
}

/**
 * Thin lines over what has no value.
 * @param {CanvasRenderingContext2D} c
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 * @param {string} colour
 */
function hatched(c, x, y, width, height, colour) {
  c.save();
  c.beginPath();
  c.rect(x, y, width, height);
  c.clip();
  c.strokeStyle = colour;
  c.globalAlpha = 0.45;
  c.lineWidth = 1;
  c.beginPath();
  for (let at = x - height; at < x + width; at += 6) {
    c.moveTo(at, y + height);
    c.lineTo(at + height, y);
  }
  c.stroke();
  c.restore();
}
