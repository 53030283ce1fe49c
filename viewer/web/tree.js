// @ts-check
/** Tables whose rows lie in each other: which of them show, and the keys that open and close them. */

import { h } from "./dom.js";

/**
 * What makes a tree of a table's rows.
 * @template Row
 * @typedef {object} TreeOptions
 * @property {(row: Row) => number | null} parent   what it lies in, as a place in the rows; that place comes before its own
 * @property {(row: Row) => number} weight          what the way that is open at first goes along
 * @property {number[] | null} [open]               places that are open; without it that way
 * @property {(open: number[]) => void} [changed]   is told which are open, each time the user opens or closes one
 */

/** Less of the whole than this is not worth being opened unasked. */
const WORTH = 0.6;
/** How far in what lies in another begins, by whether the other holds several. */
const SEVERAL = 1;
const ONE = 0.3;
/** No row begins further in. */
const FARTHEST = 16;

/**
 * Which rows lie in which.
 * @template Row
 */
export class Tree {
  /** @param {Row[]} rows @param {TreeOptions<Row>} options */
  constructor(rows, options) {
    this.options = options;
    /** @type {Set<number>} */
    this.open = new Set(options.open ?? []);
    this.rows = rows;
    /** @type {Map<Row, number>} */
    this.places = new Map();
    /** @type {number[][]} */
    this.inside = [];
    /** @type {number[]} */
    this.outermost = [];
    /** How deep each lies, from 1 on, and how far in it is written. @type {{level: number, indent: number}[]} */
    this.depths = [];
    /** Whether all rows show that there are, open or not. */
    this.unfolded = false;
    /** The place that Tab leads to. @type {number | null} */
    this.current = null;
    this.take(rows);
    if (!options.open) this.openFirst();
  }

  /** Other rows. @param {Row[]} rows */
  take(rows) {
    this.rows = rows;
    this.places = new Map(rows.map((row, place) => [row, place]));
    this.inside = rows.map(() => []);
    this.outermost = [];
    rows.forEach((row, place) => {
      const parent = this.parent(place);
      (parent === null ? this.outermost : this.inside[parent]).push(place);
    });
    this.depths = [];
    rows.forEach((_, place) => {
      const parent = this.parent(place);
      const around = parent === null ? null : this.depths[parent];
      const more = parent !== null && this.inside[parent].length > 1 ? SEVERAL : ONE;
      this.depths.push({ level: (around?.level ?? 0) + 1, indent: around ? Math.min(FARTHEST, around.indent + more) : 0 });
    });
  }

  /** @param {number} place */
  parent(place) {
    const parent = this.options.parent(this.rows[place]);
    return parent !== null && parent < place ? parent : null;
  }

  /** Opens the way along which most is, as far as most of the whole goes along it. @private */
  openFirst() {
    const weight = (/** @type {number} */ place) => this.options.weight(this.rows[place]);
    const heaviest = (/** @type {number[]} */ places) =>
      places.reduce((/** @type {number | null} */ best, place) => (best === null || weight(place) > weight(best) ? place : best), null);
    const whole = this.outermost.reduce((sum, place) => sum + weight(place), 0);
    for (let at = heaviest(this.outermost); at !== null && this.inside[at].length && weight(at) >= WORTH * whole; at = heaviest(this.inside[at]))
      this.open.add(at);
  }

  /** Opens or closes. What is the only one in another opens with it. @param {number} place */
  toggle(place) {
    if (this.open.delete(place)) return this.changed();
    for (let at = place; this.inside[at].length; [at] = this.inside[at]) {
      this.open.add(at);
      if (this.inside[at].length > 1) break;
    }
    this.changed();
  }

  /** Opens what a row lies in. @param {Row} row */
  openTo(row) {
    const before = this.open.size;
    for (let at = this.parent(this.places.get(row) ?? 0); at !== null; at = this.parent(at)) this.open.add(at);
    if (this.open.size > before) this.changed();
  }

  /** @private */
  changed() {
    this.options.changed?.([...this.open].sort((a, b) => a - b));
  }

  /**
   * The rows from the outermost inwards, those in one row in the given order; with `kept` those it keeps and what they lie
   * in, open or not.
   * @param {(rows: Row[]) => Row[]} order
   * @param {{kept?: ((row: Row) => boolean) | null, all?: boolean}} [options]
   */
  shown(order, { kept = null, all = false } = {}) {
    /** @type {Set<number> | null} */
    const wanted = kept ? new Set() : null;
    if (wanted && kept)
      this.rows.forEach((row, place) => {
        if (!kept(row)) return;
        for (let at = /** @type {number | null} */ (place); at !== null && !wanted.has(at); at = this.parent(at)) wanted.add(at);
      });
    if (!all) this.unfolded = wanted !== null;
    const closed = wanted === null && !all;
    /** @type {Row[]} */
    const found = [];
    const put = (/** @type {number[]} */ places) => {
      const some = places.map((place) => this.rows[place]);
      return some.length > 1 ? order(some).reverse() : some;
    };
    const waiting = put(this.outermost);
    for (let row = waiting.pop(); row !== undefined; row = waiting.pop()) {
      const place = /** @type {number} */ (this.places.get(row));
      if (wanted && !wanted.has(place)) continue;
      found.push(row);
      if (!closed || this.open.has(place)) waiting.push(...put(this.inside[place]));
    }
    return found;
  }

  /** How deep a row lies, from 1 on. @param {Row} row */
  levelOf(row) {
    return this.depths[this.places.get(row) ?? 0].level;
  }

  /** Writes a row as one of a tree. @param {Row} row @param {HTMLElement} line @param {Node | string} content of its first cell */
  write(row, line, content) {
    const place = /** @type {number} */ (this.places.get(row));
    const { level, indent } = this.depths[place];
    const holds = this.inside[place].length > 0;
    const isOpen = holds && (this.unfolded || this.open.has(place));
    line.setAttribute("aria-level", String(level));
    line.dataset.place = String(place);
    line.tabIndex = -1;
    if (holds) line.setAttribute("aria-expanded", String(isOpen));
    return h(
      "span",
      { class: `p-branch${holds ? " p-holds" : ""}`, style: { "--indent": indent.toFixed(1) } },
      h("span", { class: "p-twist", "aria-hidden": "true" }),
      content,
    );
  }

  /** The place of the row that something is in. @param {EventTarget | null} target */
  placeOf(target) {
    const line = target instanceof Element ? target.closest("tr[data-place]") : null;
    return line instanceof HTMLElement ? Number(line.dataset.place) : null;
  }

  /**
   * Listens to clicks and keys in a table. One row at a time can be reached with Tab; arrows lead to the others.
   * @param {HTMLElement} body
   * @param {() => void} draw
   */
  listen(body, draw) {
    const toggle = (/** @type {number} */ place) => {
      // While a filter shows what matches everything is open.
      if (this.unfolded || !this.inside[place].length) return;
      this.toggle(place);
      draw();
    };
    body.addEventListener("click", (event) => {
      const place = this.placeOf(event.target);
      if (place === null || String(getSelection()).length || /** @type {Element} */ (event.target).closest("a, button, input")) return;
      toggle(place);
      this.focus(body, place);
    });
    body.addEventListener("focusin", (event) => {
      const place = this.placeOf(event.target);
      if (place !== null) this.mark(body, place);
    });
    body.addEventListener("keydown", (event) => {
      const place = this.placeOf(event.target);
      if (place === null || event.ctrlKey || event.metaKey || event.altKey) return;
      const lines = /** @type {HTMLElement[]} */ ([...body.querySelectorAll("tr[data-place]")]);
      const at = lines.findIndex((line) => Number(line.dataset.place) === place);
      const isOpen = lines[at].getAttribute("aria-expanded");
      /** @type {number | null} */
      let next = place;
      const go = (/** @type {number} */ to) => (next = this.placeOf(lines[Math.max(0, Math.min(lines.length - 1, to))]));
      if (event.key === "ArrowDown") go(at + 1);
      else if (event.key === "ArrowUp") go(at - 1);
      else if (event.key === "Home") go(0);
      else if (event.key === "End") go(lines.length - 1);
      else if (event.key === "Enter" || event.key === " ") toggle(place);
      else if (event.key === "ArrowRight") {
        if (isOpen === "true") go(at + 1);
        else toggle(place);
      } else if (event.key === "ArrowLeft") {
        if (isOpen === "true" && !this.unfolded) toggle(place);
        else next = this.parent(place);
      } else return;
      event.preventDefault();
      event.stopPropagation();
      this.focus(body, next ?? place);
    });
  }

  /** The row that Tab leads to. @param {HTMLElement} body @param {number | null} [place] the first, where it does not show */
  mark(body, place = this.current) {
    const lines = /** @type {HTMLElement[]} */ ([...body.querySelectorAll("tr[data-place]")]);
    const chosen = lines.find((line) => Number(line.dataset.place) === place) ?? lines[0];
    for (const line of lines) line.tabIndex = line === chosen ? 0 : -1;
    if (chosen) this.current = Number(chosen.dataset.place);
  }

  /** @param {HTMLElement} body @param {number} place */
  focus(body, place) {
    this.mark(body, place);
    /** @type {HTMLElement | null} */ (body.querySelector(`tr[data-place="${place}"]`))?.focus();
  }
}
