// @ts-check
/** The flame graph of an area: what threads were in, merged by name, as wide as it took. */

import { h, replace } from "./dom.js";
import { FlameGraph, pathOf } from "./flame_graph.js";
import { count, csv, middle, percent, time } from "./format.js";
import { written } from "./names.js";
import { download } from "./table.js";

/**
 * One node as the server says it.
 * @typedef {{parent: number | null, id: number, name: string, kind: number, count: number, total: number, self: number,
 *   longest: import("./state.js").Ref}} FlameNode
 */

/** So long nothing is said of what is on its way. */
const PATIENCE_MS = 300;

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

export class Flame {
  /** @param {import("./timeline.js").Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.of = KINDS[0].id;
    this.mergeNumbers = true;
    /** @type {{total: number, threads: number, nodes: FlameNode[], more: number, left_out: number} | null} */
    this.tree = null;
    /** @type {AbortController | null} */
    this.controller = null;
    /** @type {import("./state.js").Area | null} */
    this.area = null;
    /** What answered. @type {import("./api.js").RecordingApi | null} */
    this.api = null;
    this.graph = new FlameGraph({
      inks: () => this.timeline.theme.inks,
      written,
      words: (at) => this.words(at),
      say: (at) => this.say(at),
      choose: (at) => this.choose(at),
      empty: "Nothing of this kind was recorded in this area.",
    });
    this.said = h("div", { class: "flame-said" });
    this.tools = h("div", { class: "p-tools" });
    this.element = h("div", { class: "flame-box" }, this.tools, this.said, this.graph.element);
    timeline.state.subscribe(["names", "dark"], () => this.graph.draw());
  }

  /** The node that fills the width. */
  get root() {
    return this.graph.root;
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
    if (this.area === area && this.api === api && this.tree) return this.graph.draw();
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
      this.graph.take(tree.nodes, tree.total, { root: found(this.graph.root), current: found(this.graph.current) });
      this.say(this.graph.current);
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
    replace(this.said);
    this.graph.instead(line);
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

  /** The numbers of a node. @private @param {number} at */
  words(at) {
    const { total, nodes } = /** @type {NonNullable<typeof this.tree>} */ (this.tree);
    const node = nodes[at];
    const each = `${count(node.count)} × ${time(node.total / Math.max(1, node.count))}`;
    return `${time(node.total)} (${percent(node.total / Math.max(1, total))}), ${time(node.self)} of it itself, ${each}`;
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
            : `${time(tree.total)} of ${count(tree.threads)} ${tree.threads === 1 ? "thread" : "threads"}. ` +
              `Choose one to see its longest on the timeline; twice, to see it alone.${more ? ` ${more}.` : ""}`,
        ),
      );
      return;
    }
    const node = tree.nodes[at];
    replace(
      this.said,
      h("strong", {}, middle(written(node.name), 160)),
      h("span", { class: "quiet" }, ` ${this.words(at)}`),
      at === this.graph.current &&
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
          h("button", { class: "link", type: "button", title: "Fills the width with it", onclick: () => this.graph.zoom(at) }, "alone"),
          this.root !== null && h("button", { class: "link", type: "button", onclick: () => this.graph.zoom(null) }, "all"),
        ),
    );
  }

  /** Shows the longest of a node on the timeline; the graph stays. @private @param {number} at */
  choose(at) {
    const { tree, timeline } = this;
    if (!tree) return;
    this.graph.mark(at);
    this.say(at);
    timeline.point(tree.nodes[at].longest);
  }
}
