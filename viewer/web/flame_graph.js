// @ts-check
/** A flame graph: boxes in boxes as wide as their share, for the pointer and for keys. Of what they are its owner knows. */

import { h, replace } from "./dom.js";
import { middle } from "./format.js";
import { SHADES } from "./raster.js";

/**
 * @typedef {{parent: number | null, name: string, kind: number, total: number, rest?: boolean}} Node   `kind` is its colour; `rest` is nobody's
 * @typedef {{at: number, depth: number, x: number, width: number}} Placed   `x` and `width` of 1
 */

/** Height of a line, and the narrowest node that is drawn, CSS pixels. */
const LINE = 19;
const NARROW = 2;
/** Narrower than this there is no name in it. */
const NAMED = 24;

/**
 * Where nodes lie: each as wide as its share of the whole, below what it lies in. `root`, if given, is as wide as all.
 * @param {Node[]} nodes each behind its parent, those of one parent in order
 * @param {number} total
 * @param {number | null} root
 * @returns {Placed[]} by node; those that are not seen are missing
 */
export function place(nodes, total, root) {
  /** @type {Placed[]} */
  const placed = [];
  /** Where the next child of each begins. @type {number[]} */
  const next = [];
  /** What of a child's share its parent has room for: children that overlap take turns. @type {Map<number | null, number>} */
  const sums = new Map();
  for (const node of nodes) sums.set(node.parent, (sums.get(node.parent) ?? 0) + node.total);
  /** @type {Set<number>} */
  const above = new Set();
  for (let at = root; at !== null; at = nodes[at].parent) above.add(at);
  let right = 0;
  nodes.forEach((node, at) => {
    const parent = node.parent === null ? null : placed[node.parent];
    const depth = node.parent === null ? 0 : (parent?.depth ?? -1) + 1;
    if (node.parent !== null && !parent) return;
    if (root !== null && above.has(at)) placed[at] = { at, depth, x: 0, width: 1 };
    else if (root !== null && (node.parent === null || (above.has(node.parent) && node.parent !== root))) return;
    else if (node.parent === null || !parent) {
      const width = total > 0 ? node.total / total : 0;
      placed[at] = { at, depth, x: right, width };
      right += width;
    } else {
      const whole = Math.max(1, nodes[node.parent].total, sums.get(node.parent) ?? 0);
      const width = (parent.width * node.total) / whole;
      placed[at] = { at, depth, x: next[node.parent], width };
      next[node.parent] += width;
    }
    next[at] = placed[at].x;
  });
  return placed;
}

/** The names from the outermost to a node. @param {{parent: number | null, name: string}[]} nodes @param {number} at */
export function pathOf(nodes, at) {
  const path = [];
  for (let here = /** @type {number | null} */ (at); here !== null; here = nodes[here].parent) path.unshift(nodes[here].name);
  return path;
}

/**
 * What a graph asks its owner.
 * @typedef {object} Options
 * @property {() => string[]} inks   colours of text by kind and shade, as of theme.js
 * @property {(name: string) => string} written   how a name is written
 * @property {(at: number) => string} words   the numbers of a node
 * @property {(at: number | null, box?: HTMLElement) => void} say   is told what is pointed at or has the focus; null: nothing
 * @property {() => void} [left]   is told when the focus goes
 * @property {(at: number) => void} [choose]   what a click or Enter does; without it they fill the width
 * @property {(root: number | null) => void} [zoomed]   is told what fills the width since the user wanted that
 * @property {string} empty   what is said where there is nothing
 */

export class FlameGraph {
  /** @param {Options} options */
  constructor(options) {
    this.options = options;
    /** @type {Node[]} */
    this.nodes = [];
    this.total = 0;
    /** The node that fills the width, and the one that keys act on. @type {number | null} */
    this.root = null;
    /** @type {number | null} */
    this.current = null;
    /** Whether there are nodes to be drawn, or something else is there instead. */
    this.isThere = false;
    /** @type {Placed[]} */
    this.placed = [];
    this.drawnWidth = 0;
    this.element = h("div", { class: "flame", role: "group", "aria-label": "Flame graph" });
    new ResizeObserver(() => {
      if (Math.abs(this.element.clientWidth - this.drawnWidth) > 8) requestAnimationFrame(() => this.draw());
    }).observe(this.element);
    this.element.addEventListener("click", (event) => {
      const at = this.nodeOf(event.target);
      if (at === null) return;
      if (options.choose) options.choose(at);
      else this.zoom(at === this.root ? this.nodes[at].parent : at);
    });
    this.element.addEventListener("dblclick", (event) => {
      const at = this.nodeOf(event.target);
      if (at !== null && options.choose) this.zoom(this.root === at ? this.nodes[at].parent : at);
    });
    for (const type of ["pointerover", "focusin"])
      this.element.addEventListener(type, (event) => {
        const at = this.nodeOf(event.target);
        if (at !== null) options.say(at, this.box(at) ?? undefined);
      });
    this.element.addEventListener("pointerleave", () => options.say(this.current));
    this.element.addEventListener("focusout", () => options.left?.());
    this.element.addEventListener("keydown", (event) => this.key(event));
  }

  /** Shows nodes. @param {Node[]} nodes @param {number} total @param {{root: number | null, current: number | null}} places */
  take(nodes, total, { root, current }) {
    Object.assign(this, { nodes, total, root, current, isThere: true });
    this.draw();
  }

  /** Shows a line where the graph would be. @param {globalThis.Node} line */
  instead(line) {
    this.isThere = false;
    this.element.style.height = "auto";
    replace(this.element, line);
  }

  /** Draws what is wide enough to be seen. */
  draw() {
    const { nodes, element, options } = this;
    if (!this.isThere || !element.isConnected) return;
    this.drawnWidth = element.clientWidth;
    if (nodes.length === 0) {
      element.style.height = "auto";
      replace(element, h("p", { class: "faint" }, options.empty));
      return;
    }
    const inks = options.inks();
    this.placed = place(nodes, this.total, this.root);
    let deepest = 0;
    // Tab leads to one box: the current one, or the nearest around it that is wide enough to be drawn.
    const isDrawn = (/** @type {number} */ at) => (this.placed[at]?.width ?? 0) * this.drawnWidth >= NARROW;
    let stop = /** @type {number | null} */ (this.current ?? this.root ?? 0);
    while (stop !== null && !isDrawn(stop)) stop = nodes[stop].parent;
    stop ??= nodes.findIndex((_, at) => isDrawn(at));
    const boxes = this.placed.flatMap(({ at, depth, x, width }) => {
      const pixels = width * this.drawnWidth;
      if (pixels < NARROW) return [];
      deepest = Math.max(deepest, depth);
      const node = nodes[at];
      return h(
        "button",
        {
          type: "button",
          class: `flame-node kind-${node.kind}${this.root !== null && depth < this.placed[this.root].depth ? " outer" : ""}${node.rest ? " rest" : ""}`,
          tabindex: at === stop ? 0 : -1,
          dataset: { at },
          "aria-label": `${middle(options.written(node.name), 120)}: ${options.words(at)}`,
          "aria-pressed": String(at === this.current),
          style: {
            left: `${(100 * x).toFixed(4)}%`,
            width: `calc(${(100 * width).toFixed(4)}% - 1px)`,
            top: `${depth * LINE}px`,
            color: inks[SHADES * node.kind] ?? inks[0],
          },
        },
        pixels > NAMED ? options.written(node.name) : "",
      );
    });
    element.style.height = `${(deepest + 1) * LINE + 4}px`;
    const had = element.contains(document.activeElement);
    replace(element, boxes);
    if (had) this.box(stop)?.focus({ preventScroll: true });
  }

  /** Makes a node the one that keys act on. @param {number} at */
  mark(at) {
    this.current = at;
    for (const box of this.element.children) {
      if (!(box instanceof HTMLElement)) continue;
      const own = Number(box.dataset.at) === at;
      box.setAttribute("aria-pressed", String(own));
      box.tabIndex = own ? 0 : -1;
    }
    this.box(at)?.focus({ preventScroll: true });
  }

  /** Fills the width with a node and what lies in it; null with all. @param {number | null} at */
  zoom(at) {
    this.root = at;
    if (at !== null) this.current = at;
    this.draw();
    this.options.say(this.current);
    this.options.zoomed?.(at);
  }

  /** @private @param {number} at @returns {HTMLElement | null} */
  box(at) {
    return this.element.querySelector(`[data-at="${at}"]`);
  }

  /** @private @param {EventTarget | null} target @returns {number | null} */
  nodeOf(target) {
    const box = target instanceof Element ? target.closest(".flame-node") : null;
    return box instanceof HTMLElement ? Number(box.dataset.at) : null;
  }

  /** @private @param {KeyboardEvent} event */
  key(event) {
    const { nodes } = this;
    const at = this.nodeOf(event.target);
    if (!this.isThere || at === null || event.ctrlKey || event.altKey || event.metaKey) return;
    const shown = (/** @type {number} */ other) => this.box(other) !== null;
    const beside = nodes.map((_, other) => other).filter((other) => nodes[other].parent === nodes[at].parent && shown(other));
    const here = beside.indexOf(at);
    const next = event.key === "ArrowRight" ? beside[here + 1] : event.key === "ArrowLeft" ? beside[here - 1] : event.key === "ArrowUp" ? nodes[at].parent
      : event.key === "ArrowDown" ? nodes.findIndex((node, other) => node.parent === at && shown(other)) : undefined;
    if (event.key.startsWith("Arrow")) {
      if (typeof next === "number" && next >= 0) this.box(next)?.focus();
    } else if (event.key === "+" || event.key === "=") this.zoom(at);
    else if (event.key === "-" || event.key === "Backspace") this.zoom(this.root === null ? null : nodes[this.root].parent);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
