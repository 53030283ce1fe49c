// @ts-check
/** Operators: who launched what, in the words of who wrote the program. */

import { legend, shareBar } from "../charts.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { iconButton } from "../icons.js";
import { launchedBy } from "../search.js";
import { shortType } from "../shapes.js";
import { table } from "../table.js";
import { OperatorFlame } from "./operator_flame.js";
import { TABLES, partsOfPeak, remainders, shareOf } from "./operator_tables.js";
import { roofline } from "./roofline.js";
import { choice, mounted, nothing, ofSteps, section, select } from "./shared.js";

/** @typedef {import("../../types/analysis.js").Analysis} Analysis */
/** @typedef {import("../../types/analysis.js").Attribution} Attribution */
/** @typedef {import("./shared.js").Context} Context */
/** @typedef {import("../state.js").OperatorsView} View */
/** @typedef {import("./operator_tables.js").What} What */

const TITLE = "Operators";
/** What shows while nothing was chosen. @type {View} */
const FIRST = { by: "operators", rank: "all", sort: null, open: null };

/** A rank's device in a link. @param {{rank: number | null, device_index: number}} rank */
const idOf = (rank) => `${rank.rank ?? "none"}.${rank.device_index}`;

export const operators = {
  id: "operators",
  title: TITLE,
  key: "U",
  /** @param {HTMLElement} container @param {Context} context @returns {import("./shared.js").Mounted} */
  mount(container, context) {
    const part = new OperatorsPart(context);
    const handle = mounted(container, context, (analysis, _, __, redraw) => [ofSteps(context), part.draw(analysis, redraw)], TITLE);
    const end = context.state.subscribe(["operators", "steps"], (/** @type {any} */ _, /** @type {Set<string>} */ changed) => part.changed(changed));
    return {
      ...handle,
      destroy() {
        end();
        handle.destroy();
      },
    };
  },
};

/** What the rows of a table launched is searched for by. @type {Partial<Record<View["by"], "module" | "class" | "function">>} */
const LAUNCHERS = { modules: "module", classes: "class", stacks: "function" };

/** A button in each row that leads to its operations. @param {(row: any) => void} find @returns {import("../table.js").Column<any>} */
const finding = (find) => ({
  key: "find",
  title: "",
  hint: "Find on the timeline",
  fixed: true,
  value: () => null,
  cell: (row) => iconButton("search", "Find what it launched on the timeline", () => find(row)),
});

class OperatorsPart {
  /** @param {Context} context */
  constructor(context) {
    this.context = context;
    /** What is drawn. */
    this.drawn = "";
    /** @type {() => void} */
    this.redraw = () => {};
    /** @type {OperatorFlame | null} */
    this.flame = null;
    /** What was gone to last. @type {string[] | undefined} */
    this.found = undefined;
    /** By table: its filter and page. @type {Record<string, import("../table.js").Kept>} */
    this.kept = {};
    /** The rows of the table that shows. @type {{list: any[], reveal: (row: any) => void} | null} */
    this.shown = null;
    /** By table: what was chosen in it, while another one shows. @type {Record<string, Partial<View>>} */
    this.left = {};
  }

  /** @returns {View} */
  get view() {
    return this.context.state.get().operators ?? FIRST;
  }

  /** What the user chose, which shows already. @param {Partial<View>} patch */
  choose(patch) {
    const operators = { ...this.view, ...patch };
    this.drawn = JSON.stringify(operators);
    this.context.state.set({ operators });
  }

  /** What places in trees are of has changed: those that were chosen are of others now. @param {Partial<View>} patch */
  chooseAnew(patch) {
    for (const one of Object.values(this.left)) one.open = null;
    this.choose({ ...patch, open: null, zoom: undefined });
  }

  /** A link or Back says something else, or other steps are chosen. @param {Set<string>} changed */
  changed(changed) {
    // A link has places of its own.
    if (changed.has("steps") && !changed.has("operators")) this.chooseAnew({});
    else if (JSON.stringify(this.view) !== this.drawn) this.redraw();
  }

  /** @param {Analysis} analysis @param {() => void} redraw */
  draw(analysis, redraw) {
    this.redraw = redraw;
    this.drawn = JSON.stringify(this.view);
    const having = analysis.ranks.filter((rank) => rank.unattributed);
    if (!having.length)
      return nothing(
        "No operators are recorded.",
        "PyTorch's profiler records them with shapes, modules and Python stacks: torch.profiler.profile(record_shapes=True, " +
          "with_stack=True). Our own recordings have them of programs that use gputrace.torch.operators(), and stacks with --kinds +stacks.",
      );
    const several = format.severalDevices(analysis);
    const body = h("div", null);
    const fill = () => {
      const { rank } = this.view;
      const all = having.find((one) => idOf(one) === rank) ?? analysis.over_ranks ?? having[0];
      const { tree, rows } = TABLES[this.view.by];
      as.hidden = !tree || rows(all).length === 0;
      replace(body, this.body(all));
      // When it stands in the page.
      queueMicrotask(() => this.goToFound());
    };
    const as = choice(
      "Shown as",
      [{ id: "table", title: "Table" }, { id: "flame", title: "Flame graph", hint: "Each as wide as the GPU time that was launched in it" }],
      this.view.flame ? "flame" : "table",
      (id) => {
        this.choose({ flame: id === "flame" || undefined, zoom: undefined });
        fill();
      },
    );
    const by = choice(
      "By",
      Object.entries(TABLES).map(([id, { title, hint }]) => ({ id, title, hint })),
      this.view.by,
      (id) => {
        const { by: before, sort, open } = this.view;
        this.left[before] = { sort, open };
        this.choose({ sort: null, open: null, ...this.left[id], by: /** @type {View["by"]} */ (id), zoom: undefined });
        fill();
      },
    );
    const rank =
      having.length > 1
        ? select(
            "Rank",
            [{ id: "all", title: "all ranks" }, ...having.map((one) => ({ id: idOf(one), title: format.place(one, several) }))],
            this.view.rank,
            (id) => {
              this.chooseAnew({ rank: id });
              fill();
            },
          )
        : null;
    fill();
    return section(
      "Who launched what",
      "Times are sums of durations on GPUs, not time that passed. Whoever launches belongs to the innermost operator, module and function open at the call.",
      h("div", { class: "p-bar" }, by, as, rank),
      body,
    );
  }

  /** Goes to the row that a link from elsewhere names, once. */
  goToFound() {
    const { find } = this.view;
    if (find === this.found || !this.shown) return;
    this.found = find;
    if (!find) return;
    const { list, reveal } = this.shown;
    /** Whether a row has the names from the innermost outwards. @param {any} row @param {number} [at] @returns {boolean} */
    const isNamed = (row, at = 0) => row.name === find[at] && (at + 1 === find.length || isNamed(list[row.parent] ?? {}, at + 1));
    const row = list.find((one) => isNamed(one)) ?? list.find((one) => one.name === find[0]);
    if (row) reveal(row);
    else this.context.announce?.(`No row of this table is ${find[0]}`);
  }

  /** @param {Attribution} all */
  body(all) {
    const { by, sort, open, flame, zoom } = this.view;
    const { what, rows, columns, tree, search, empty, first } = TABLES[by];
    const keep = (this.kept[by] ??= {});
    keep.sort = sort ?? undefined;
    const list = rows(all);
    const { context } = this;
    if (flame && (by === "modules" || by === "stacks") && list.length) {
      this.flame ??= new OperatorFlame(context, (root) => this.choose({ zoom: root ?? undefined }));
      this.flame.take(all, by, zoom ?? null);
      this.shown = null;
      return [accounted(all, what), this.flame.element];
    }
    const shownColumns = columns(all, list);
    const launcher = LAUNCHERS[by];
    if (launcher) shownColumns.splice(1, 0, finding((row) => context.search?.(launchedBy(launcher, row.name))));
    const one = table({
      name: by,
      keep,
      rows: list,
      sort: { key: first, descending: true },
      search: (/** @type {any} */ row) => `${row.name} ${search?.(row) ?? ""}`,
      searchHint: "Filter by name",
      empty,
      columns: shownColumns,
      resorted: (/** @type {View["sort"]} */ chosen) => this.choose({ sort: chosen }),
      ...(tree
        ? {
            tree: {
              parent: (/** @type {any} */ row) => row.parent,
              weight: tree,
              open,
              changed: (/** @type {number[]} */ places) => this.choose({ open: places }),
            },
          }
        : what === "operator" || what === "memory"
          ? {
              openHint: () => "Find it on the timeline",
              open: (/** @type {any} */ row) => context.search?.(row.name),
            }
          : {}),
    });
    this.shown = { list, reveal: (/** @type {any} */ row) => one.reveal(row) };
    if (by === "memory") return [ofPeak(all), one.element];
    return [accounted(all, what), peak(all), by === "products" ? [modelled(all), roofline(all, (row) => one.reveal(row))] : null, one.element];
  }
}

/** Of whom the memory is that was in use at the peak. @param {Attribution} all */
function ofPeak(all) {
  const of = all.unattributed_memory;
  if (!of) return null;
  const whole = of.all.live_at_peak_bytes;
  const parts = partsOfPeak(all);
  const said = (/** @type {number} */ value) => `${format.bytes(value)} (${format.percent(shareOf(value, whole))})`;
  const missing = of.not_seen_at_peak_bytes < 0 ? `, ${format.bytes(-of.not_seen_at_peak_bytes)} less than was seen: frees are missing` : "";
  return h(
    "div",
    { class: "p-kinds" },
    h("p", { class: "p-accounted" }, `Of ${format.bytes(whole)} of GPU memory in use at the peak${missing}:`),
    legend(parts.map((part) => ({ ...part, title: `${part.title} ${said(part.value)}` }))),
    shareBar(parts, { format: format.bytes, label: "GPU memory in use at the peak by who allocated it" }),
  );
}

/** How much of all time somebody is known for, and why the rest has nobody. @param {Attribution} all @param {What} what */
function accounted(all, what) {
  const { unattributed: of } = all;
  if (!of) return null;
  const whole = of.operations_ns;
  const rest = remainders(all, what);
  const known = rest.reduce((left, { value }) => left - value, whole);
  const words = { operator: "operators", memory: "operators", module: "modules", function: "functions" }[what];
  const parts = [{ title: `launched by ${words}`, colour: "var(--kind-compute)", value: known }, ...rest].filter((part) => part.value > 0);
  const said = (/** @type {number} */ value) => `${format.time(value)} (${format.percent(shareOf(value, whole))})`;
  return h(
    "div",
    { class: "p-kinds" },
    h("p", { class: "p-accounted" }, `Of ${format.time(whole)} of GPU time:`),
    legend(parts.map((part) => ({ ...part, title: `${part.title} ${said(part.value)}` }))),
    shareBar(parts, { format: format.time, label: "GPU time by who launched it" }),
  );
}

/** How much of all time the products stand for. @param {Attribution} all */
function modelled({ modelled_share: share }) {
  if (share === null) return null;
  return h("p", { class: "p-note p-peak" }, `${format.percent(share)} of the GPU time is in operators whose FLOP are known.`);
}

/** What the GPU can do at most. @param {Attribution} all */
function peak({ peak: most }) {
  if (!most) return null;
  return h(
    "p",
    { class: "p-note p-peak" },
    `Peak of the GPU with ${shortType(most.dtype)}: ${format.digits(most.flops_per_second / 1e12)} TFLOP/s, ` +
      `${format.digits(most.bytes_per_second / 1e12)} TB/s (${most.source}).`,
  );
}
