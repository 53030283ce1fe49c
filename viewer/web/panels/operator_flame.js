// @ts-check
/** Trees of who launched what as flame graphs: each module or function as wide as the GPU time that was launched in it. */

import { hideTip, showTip, tipLines } from "../charts.js";
import { h, replace } from "../dom.js";
import { FlameGraph, pathOf } from "../flame_graph.js";
import * as format from "../format.js";
import { frameOf } from "../shapes.js";
import { readTheme } from "../theme.js";
import { remainders, shareOf } from "./operator_tables.js";

/** @typedef {import("../../types/analysis.js").Attribution} Attribution */
/** Times with what lies inside, by what they are called. @typedef {Record<string, number>} Sums */
/** @typedef {import("../flame_graph.js").Node & {sums: Sums, self: number, rest?: boolean}} OperatorNode */

/** Colours that mean no kind of GPU work, so that a module is not taken for communication. */
const COLOURS = [6, 12, 8, 4, 10, 7, 5];
const REST = 11;

/** What a tree's times are of: its rows' own, by what they are called. @type {Record<"modules" | "stacks", Record<string, (row: any) => number>>} */
const OWN = {
  modules: { forward: (row) => row.forward_self_ns, recomputed: (row) => row.recompute_self_ns, backward: (row) => row.backward_self_ns },
  stacks: { forward: (row) => row.direct_ns - row.backward_ns, backward: (row) => row.backward_ns },
};

/** Modules of one class, and functions of one file, have one colour. @param {string} name */
function colourOf(name) {
  const { place } = frameOf(name);
  const of = place.replace(/\(\d+\)$/, "") || name.replace(/_\d+$/, "");
  let hash = 0;
  for (const letter of of) hash = (hash * 31 + (letter.codePointAt(0) ?? 0)) % 65_521;
  return COLOURS[hash % COLOURS.length];
}

/**
 * A tree's nodes with all that is nobody's beside them: the outermost sum to all GPU time.
 *
 * Widths are summed from what each launched itself. A module's own columns leave out what is recomputed in it, where only the
 * module inside was entered once more.
 * @param {Attribution} all
 * @param {"modules" | "stacks"} by
 * @returns {{nodes: OperatorNode[], total: number}}
 */
export function flameNodes(all, by) {
  const own = Object.entries(OWN[by]);
  /** @type {OperatorNode[]} */
  const nodes = all[by].map((row) => {
    const sums = Object.fromEntries(own.map(([name, time]) => [name, time(row)]));
    const self = Object.values(sums).reduce((sum, time) => sum + time, 0);
    return { parent: row.parent, name: row.name, kind: colourOf(row.name), total: self, self, sums };
  });
  for (let at = nodes.length - 1; at >= 0; at -= 1) {
    const { parent, total, sums } = nodes[at];
    if (parent === null) continue;
    nodes[parent].total += total;
    for (const [name, time] of Object.entries(sums)) nodes[parent].sums[name] += time;
  }
  const rest = remainders(all, by === "modules" ? "module" : "function").map(({ title, value }) => ({
    parent: null, name: title, kind: REST, total: value, self: value, sums: {}, rest: true,
  }));
  return { nodes: [...nodes, ...rest], total: all.unattributed?.operations_ns ?? 0 };
}

export class OperatorFlame {
  /** @param {import("./shared.js").Context} context @param {(zoom: number | null) => void} zoomed */
  constructor(context, zoomed) {
    this.nodes = /** @type {OperatorNode[]} */ ([]);
    this.total = 0;
    this.said = h("div", { class: "flame-said" });
    this.graph = new FlameGraph({
      inks: () => readTheme().inks,
      written: (name) => frameOf(name).name,
      words: (at) => this.words(at),
      say: (at, box) => (box && at !== null ? this.tip(at, box) : hideTip()),
      left: hideTip,
      zoomed: (root) => {
        this.say();
        zoomed(root);
      },
      empty: "Nothing ran on the GPU.",
    });
    this.element = h("div", { class: "flame-box p-flame" }, this.said, this.graph.element);
    context.state.subscribe(["dark"], () => this.graph.draw());
  }

  /** @param {Attribution} all @param {"modules" | "stacks"} by @param {number | null} zoom */
  take(all, by, zoom) {
    Object.assign(this, flameNodes(all, by));
    const root = zoom !== null && zoom < this.nodes.length ? zoom : null;
    this.graph.take(this.nodes, this.total, { root, current: root });
    this.say();
    // As soon as it has a place on the page.
    requestAnimationFrame(() => this.graph.draw());
  }

  /** @private @param {number} time */
  share(time) {
    return `${format.time(time)} (${format.percent(shareOf(time, this.total))})`;
  }

  /** @private @param {number} at */
  words(at) {
    const { total, self } = this.nodes[at];
    return `${this.share(total)}, ${format.time(self)} of it its own`;
  }

  /** Says what fills the width. @private */
  say() {
    const { root } = this.graph;
    if (root === null)
      replace(
        this.said,
        h("span", { class: "faint" }, `${format.time(this.total)} of GPU time. Choose one to see it alone; Backspace or Back leads out again.`),
      );
    else
      replace(
        this.said,
        h("button", { class: "link", type: "button", onclick: () => this.graph.zoom(null) }, "all"),
        " › ",
        h("strong", { title: pathOf(this.nodes, root).join(" › ") }, format.middle(frameOf(this.nodes[root].name).name, 120)),
        h("span", { class: "quiet" }, ` ${this.words(root)}`),
      );
  }

  /** @private @param {number} at @param {HTMLElement} box */
  tip(at, box) {
    const { name, total, self, sums, rest } = this.nodes[at];
    const { name: called, place } = frameOf(name);
    const bounds = box.getBoundingClientRect();
    const parts = Object.entries(sums).filter(([, time]) => time > 0);
    showTip(
      Math.min(bounds.left + bounds.width / 2, innerWidth - 40),
      bounds.bottom + 60,
      tipLines(
        [format.middle(called, 200), place ? h("span", { class: "p-faint" }, ` ${place}`) : null],
        [
          { name: "GPU time", value: this.share(total), strong: true },
          ...(rest ? [] : [{ name: "its own", value: this.share(self) }]),
          ...(parts.length > 1 || parts[0]?.[0] !== "forward" ? parts.map(([what, time]) => ({ name: what, value: this.share(time) })) : []),
        ],
        at === this.graph.root ? "click to go out" : "click to see it alone",
      ),
    );
  }
}
