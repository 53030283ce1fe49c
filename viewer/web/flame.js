// @ts-check
/** The flame graph of an area: what threads were in, merged by name, as wide as it took. */

import { h, replace } from "./dom.js";
import { count, csv, middle, percent, time } from "./format.js";
import { written } from "./names.js";
import { SHADES } from "./raster.js";
import { download } from "./table.js";

/**
 * One node as the server says it, and what is below it here.
 * @typedef {{parent: number | null, id: number, name: string, kind: number, count: number, total: number, self: number,
 *   longest: import("./state.js").Ref}} FlameNode
 * @typedef {{at: number, depth: number, x: number, width: number}} Placed   `x` and `width` of 1
 */

/** Height of a line, and the narrowest node that is drawn, CSS pixels. */
const LINE = 19;
const NARROW = 2;
/** So long nothing is said of what is on its way. */
const PATIENCE_MS = 300;
/** Narrower than this there is no name in it. */
const NAMED = 24;

/**
 * What a tree may be of: the server's word, ours, and which rows it takes.
 * @type {{id: string, title: string, hint: string, has: (row: import("./rows.js").Row) => boolean}[]}
 */
export const KINDS = [
  {
    id: "threads",
    title: "Ranges and calls",
    hint: "NVTX ranges, operators and calls of host threads, one in another",
    has: (row) => row.what === "thread" || (row.what === "nvtx" && row.device === null),
  },
  { id: "ranges", title: "Ranges", hint: "NVTX ranges of host threads alone", has: (row) => row.what === "nvtx" && row.device === null },
  { id: "calls", title: "Calls", hint: "operators and calls of host threads alone", has: (row) => row.what === "thread" },
  {
    id: "device_ranges",
    title: "Ranges on the GPU",
    hint: "NVTX ranges as they lie on the GPU: from the first operation that was launched in one to the end of the last",
    has: (row) => row.what === "nvtx" && row.device !== null,
  },
];

/**
 * Where nodes lie: each as wide as its share of the whole, below what it lies in. `root`, if given, is as wide as all.
 * @param {FlameNode[]} nodes each behind its parent, those of one parent in order
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

/** The names from the outermost to a node. @param {FlameNode[]} nodes @param {number} at */
export function pathOf(nodes, at) {
  const path = [];
  for (let here = /** @type {number | null} */ (at); here !== null; here = nodes[here].parent) path.unshift(nodes[here].name);
  return path;
}

export class Flame {
  /** @param {import("./timeline.js").Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.of = KINDS[0].id;
    this.mergeNumbers = true;
    /** @type {{total: number, threads: number, nodes: FlameNode[], more: number, left_out: number} | null} */
    this.tree = null;
    /** The node that fills the width, and the one that keys act on. @type {number | null} */
    this.root = null;
    /** @type {number | null} */
    this.current = null;
    /** @type {AbortController | null} */
    this.controller = null;
    /** @type {import("./state.js").Area | null} */
    this.area = null;
    /** What answered. @type {import("./api.js").RecordingApi | null} */
    this.api = null;
    /** @type {Placed[]} */
    this.placed = [];
    this.drawnWidth = 0;
    this.graph = h("div", { class: "flame", role: "group", "aria-label": "Flame graph" });
    this.said = h("div", { class: "flame-said" });
    this.tools = h("div", { class: "p-tools" });
    this.element = h("div", { class: "flame-box" }, this.tools, this.said, this.graph);
    new ResizeObserver(() => {
      if (Math.abs(this.graph.clientWidth - this.drawnWidth) > 8) requestAnimationFrame(() => this.draw());
    }).observe(this.graph);
    this.graph.addEventListener("click", (event) => {
      const at = this.nodeOf(event.target);
      if (at !== null) this.choose(at);
    });
    this.graph.addEventListener("dblclick", (event) => {
      const at = this.nodeOf(event.target);
      if (at !== null) this.zoom(this.root === at ? this.tree?.nodes[at].parent ?? null : at);
    });
    this.graph.addEventListener("pointerover", (event) => {
      const at = this.nodeOf(event.target);
      if (at !== null) this.say(at);
    });
    this.graph.addEventListener("pointerleave", () => this.say(this.current));
    this.graph.addEventListener("keydown", (event) => this.key(event));
    timeline.state.subscribe(["names", "dark"], () => this.draw());
  }

  /** The rows that a tree of an area is of: those in it that fit, else those of the ranks in it. @private */
  rows() {
    const { rows } = this.timeline;
    const kind = KINDS.find(({ id }) => id === this.of) ?? KINDS[0];
    const inside = (this.area?.rows ?? []).map((row) => rows[row]).filter((row) => row);
    const fitting = inside.filter((row) => kind.has(row));
    const ranks = new Set(inside.map((row) => row.rank));
    const chosen = fitting.length > 0 ? fitting : rows.filter((row) => kind.has(row) && ranks.has(row.rank));
    // One row of a thread stands for all of it.
    const seen = new Set();
    return chosen.filter((row) => {
      const thread = JSON.stringify(row.path);
      return !seen.has(thread) && seen.add(thread);
    }).map((row) => row.row);
  }

  /** Shows an area; the same one of the same generation is there already. @param {import("./state.js").Area} area */
  take(area) {
    const { api } = this.timeline.context;
    if (this.area === area && this.api === api && this.tree) return this.draw();
    return this.show(area);
  }

  /** @private @param {import("./state.js").Area} area */
  async show(area) {
    const { api } = this.timeline.context;
    // The same of a recording that grew is exchanged when it is there, and the user stays where they are.
    const shown = this.tree !== null && this.area?.from === area.from && this.area.to === area.to;
    const before = shown ? this.tree?.nodes : undefined;
    this.area = area;
    this.api = api;
    this.controller?.abort();
    this.controller = new AbortController();
    const { signal } = this.controller;
    this.drawTools();
    // What takes no time is not announced; what takes some can be called off, and the server stops too.
    const late = setTimeout(() => !shown && this.wait(area), PATIENCE_MS);
    signal.addEventListener("abort", () => clearTimeout(late));
    try {
      const tree = await api.tree({ of: this.of, from: area.from, to: area.to, rows: this.rows(), mergeNumbers: this.mergeNumbers }, signal);
      if (signal.aborted) return;
      const found = (/** @type {number | null} */ was) => {
        if (was === null || !before) return null;
        const path = pathOf(before, was).join("\0");
        const at = tree.nodes.findIndex((/** @type {FlameNode} */ _, /** @type {number} */ one) => pathOf(tree.nodes, one).join("\0") === path);
        return at < 0 ? null : at;
      };
      this.tree = tree;
      this.root = found(this.root);
      this.current = found(this.current);
      this.draw();
      this.say(this.current);
    } catch (error) {
      if (!signal.aborted) this.instead(h("p", { class: "bad" }, /** @type {Error} */ (error).message));
    } finally {
      clearTimeout(late);
    }
  }

  /** Says that the graph is on its way. @private @param {import("./state.js").Area} area */
  wait(area) {
    this.instead(h("p", { class: "waiting-line", role: "status" }, h("progress", {}), `Adding up ${time(area.to - area.from)} …`,
      h("button", { class: "link", type: "button", onclick: () => {
        this.controller?.abort();
        this.instead(h("p", { class: "faint" }, "Not added up. ", h("button", { class: "link", type: "button", onclick: () => this.again() }, "Add up")));
      } }, "cancel")));
  }

  /** Shows a line where the graph would be. @private @param {Node} line */
  instead(line) {
    this.tree = null;
    this.graph.style.height = "auto";
    replace(this.said);
    replace(this.graph, line);
  }

  /** @private */
  again() {
    this.tree = null;
    if (this.area) void this.show(this.area);
  }

  /** @private */
  drawTools() {
    const buttons = KINDS.map(({ id, title, hint }) =>
      h(
        "button",
        {
          type: "button",
          "aria-pressed": String(id === this.of),
          title: hint,
          onclick: () => {
            this.of = id;
            this.again();
          },
        },
        title,
      ),
    );
    replace(
      this.tools,
      h("div", { class: "p-choice", role: "group", "aria-label": "Of what" }, buttons),
      h(
        "label",
        { class: "check", title: "Ranges whose names differ only in the number at their end are one: step 3, step 4" },
        h("input", {
          type: "checkbox",
          checked: this.mergeNumbers,
          onchange: () => {
            this.mergeNumbers = !this.mergeNumbers;
            this.again();
          },
        }),
        "numbered ranges as one",
      ),
      h("span", { class: "p-spacer" }),
      h("button", { type: "button", class: "p-button", title: "Saves the nodes as CSV, times in nanoseconds", onclick: () => this.save() }, "CSV"));
  }

  /** @private */
  save() {
    const nodes = this.tree?.nodes ?? [];
    download(
      `${this.timeline.context.info.name}.flame.csv`,
      csv(
        ["path", "count", "total_ns", "self_ns"],
        nodes.map((node, at) => [pathOf(nodes, at).join(";"), node.count, node.total, node.self]),
      ),
    );
  }

  /** Draws what is wide enough to be seen. */
  draw() {
    const { tree, graph } = this;
    if (!tree || !graph.isConnected) return;
    this.drawnWidth = graph.clientWidth;
    if (tree.nodes.length === 0) {
      graph.style.height = "auto";
      replace(graph, h("p", { class: "faint" }, "Nothing of this kind was recorded in this area."));
      return;
    }
    const { inks } = this.timeline.theme;
    this.placed = place(tree.nodes, tree.total, this.root);
    let deepest = 0;
    // Tab leads to one box: the current one, or the nearest around it that is wide enough to be drawn.
    const isDrawn = (/** @type {number} */ at) => (this.placed[at]?.width ?? 0) * this.drawnWidth >= NARROW;
    let stop = /** @type {number | null} */ (this.current ?? this.root ?? 0);
    while (stop !== null && !isDrawn(stop)) stop = tree.nodes[stop].parent;
    stop ??= tree.nodes.findIndex((_, at) => isDrawn(at));
    const boxes = this.placed.flatMap(({ at, depth, x, width }) => {
      const pixels = width * this.drawnWidth;
      if (pixels < NARROW) return [];
      deepest = Math.max(deepest, depth);
      const node = tree.nodes[at];
      return h(
        "button",
        {
          type: "button",
          class: `flame-node kind-${node.kind}${this.root !== null && depth < this.placed[this.root].depth ? " outer" : ""}`,
          tabindex: at === stop ? 0 : -1,
          dataset: { at },
          "aria-label": `${middle(written(node.name), 120)}: ${this.words(at)}`,
          "aria-pressed": String(at === this.current),
          style: {
            left: `${(100 * x).toFixed(4)}%`,
            width: `calc(${(100 * width).toFixed(4)}% - 1px)`,
            top: `${depth * LINE}px`,
            color: inks[SHADES * node.kind] ?? inks[0],
          },
        },
        pixels > NAMED ? written(node.name) : "",
      );
    });
    graph.style.height = `${(deepest + 1) * LINE + 4}px`;
    const had = graph.contains(document.activeElement);
    replace(graph, boxes);
    if (had) this.box(stop)?.focus({ preventScroll: true });
  }

  /** @private @param {number} at @returns {HTMLElement | null} */
  box(at) {
    return this.graph.querySelector(`[data-at="${at}"]`);
  }

  /** @private @param {EventTarget | null} target @returns {number | null} */
  nodeOf(target) {
    const box = target instanceof Element ? target.closest(".flame-node") : null;
    return box instanceof HTMLElement ? Number(box.dataset.at) : null;
  }

  /** The numbers of a node. @private @param {number} at */
  words(at) {
    const { total, nodes } = /** @type {NonNullable<typeof this.tree>} */ (this.tree);
    const node = nodes[at];
    return `${time(node.total)} (${percent(node.total / Math.max(1, total))}), ${time(node.self)} of it itself, ${count(node.count)} × ${time(node.total / Math.max(1, node.count))}`;
  }

  /** Says what a node is, or how to go on. @private @param {number | null} at */
  say(at) {
    const { tree } = this;
    if (!tree) return;
    if (at === null) {
      const more = [
        tree.more > 0 ? `${count(tree.more)} smaller nodes are not shown` : "",
        tree.left_out > 0 ? `${count(tree.left_out)} calls are counted in none` : "",
      ]
        .filter(Boolean)
        .join(", ");
      replace(
        this.said,
        h(
          "span",
          { class: "faint" },
          tree.nodes.length === 0
            ? ""
            : `${time(tree.total)} of ${count(tree.threads)} ${tree.threads === 1 ? "thread" : "threads"}. Choose one to see its longest on the timeline; twice, to see it alone.${more ? ` ${more}.` : ""}`,
        ),
      );
      return;
    }
    const node = tree.nodes[at];
    replace(
      this.said,
      h("strong", {}, middle(written(node.name), 160)),
      h("span", { class: "quiet" }, ` ${this.words(at)}`),
      at === this.current &&
        h(
          "span",
          { class: "details-tools" },
          h(
            "button",
            {
              class: "link",
              type: "button",
              title: "Every operation of this name",
              onclick: () => this.timeline.state.set({ query: node.longest.name }),
            },
            "find all",
          ),
          h("button", { class: "link", type: "button", title: "Fills the width with it", onclick: () => this.zoom(at) }, "alone"),
          this.root !== null && h("button", { class: "link", type: "button", onclick: () => this.zoom(null) }, "all"),
        ),
    );
  }

  /** Shows the longest of a node on the timeline; the graph stays. @private @param {number} at */
  choose(at) {
    const { tree, timeline } = this;
    if (!tree) return;
    this.current = at;
    for (const box of this.graph.children) {
      if (!(box instanceof HTMLElement)) continue;
      const own = Number(box.dataset.at) === at;
      box.setAttribute("aria-pressed", String(own));
      box.tabIndex = own ? 0 : -1;
    }
    this.box(at)?.focus({ preventScroll: true });
    this.say(at);
    timeline.point(tree.nodes[at].longest);
  }

  /** Fills the width with a node and what lies in it; null with all. @private @param {number | null} at */
  zoom(at) {
    this.root = at;
    if (at !== null) this.current = at;
    this.draw();
    this.say(this.current);
  }

  /** @private @param {KeyboardEvent} event */
  key(event) {
    const { tree } = this;
    const at = this.nodeOf(event.target);
    if (!tree || at === null || event.ctrlKey || event.altKey || event.metaKey) return;
    const shown = (/** @type {number} */ other) => this.box(other) !== null;
    const beside = tree.nodes.map((_, other) => other).filter((other) => tree.nodes[other].parent === tree.nodes[at].parent && shown(other));
    const here = beside.indexOf(at);
    const next = event.key === "ArrowRight" ? beside[here + 1] : event.key === "ArrowLeft" ? beside[here - 1] : event.key === "ArrowUp" ? tree.nodes[at].parent
      : event.key === "ArrowDown" ? tree.nodes.findIndex((node, other) => node.parent === at && shown(other)) : undefined;
    if (event.key.startsWith("Arrow")) {
      if (typeof next === "number" && next >= 0) {
        this.box(next)?.focus();
        this.say(next);
      }
    } else if (event.key === "+" || event.key === "=") this.zoom(at);
    else if (event.key === "-" || event.key === "Backspace") this.zoom(this.root === null ? null : tree.nodes[this.root].parent);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
