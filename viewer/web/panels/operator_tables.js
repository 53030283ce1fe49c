// @ts-check
/** The tables of who launched what: their rows and columns. */

import { h } from "../dom.js";
import * as format from "../format.js";
import { frameOf, inputs, shortType } from "../shapes.js";
import { timeColumn } from "./shared.js";

/** @typedef {import("../../types/analysis.js").Attribution} Attribution */
/** @typedef {import("../table.js").Column<any>} Column */
/** What is known of whom. @typedef {"operator" | "module" | "function" | "memory"} What */
/**
 * @typedef {object} ByTable
 * @property {string} title
 * @property {string} hint
 * @property {What} what
 * @property {(all: Attribution) => any[]} rows
 * @property {(all: Attribution, rows: any[]) => Column[]} columns
 * @property {string} first          what it is sorted by, unless told otherwise
 * @property {string} empty          what is said where there are no rows
 * @property {(row: any) => number} [tree]   its rows lie in each other; how much time each has
 * @property {(row: any) => string} [search]  what a filter looks into, beside the name
 */

/**
 * Memory in use at the peak, in parts.
 * @param {Attribution} all
 * @returns {{title: string, colour: string, hatched?: boolean, value: number}[]}
 */
export function partsOfPeak({ operators, unattributed_memory: of }) {
  if (!of) return [];
  return [
    { title: "allocated by operators", colour: "var(--kind-compute)", value: operators.reduce((sum, row) => sum + (row.live_at_peak_bytes ?? 0), 0) },
    { title: "no operator", colour: "var(--cause-6)", value: of.no_operator.live_at_peak_bytes },
    { title: "caller not recorded", colour: "var(--cause-7)", value: of.caller_not_recorded.live_at_peak_bytes },
    { title: "allocated before the recording", colour: "var(--cause-5)", hatched: true, value: of.not_seen_at_peak_bytes },
  ].filter((part) => part.value > 0);
}

/** @param {number} part @param {number} whole */
export const shareOf = (part, whole) => (whole > 0 ? part / whole : null);

/**
 * GPU time of nobody that is known, in parts.
 * @param {Attribution} all
 * @param {What} what
 * @returns {{title: string, colour: string, hatched?: boolean, value: number}[]}
 */
export function remainders({ unattributed: of }, what) {
  if (!of || what === "memory") return [];
  const nobody = { operator: of.no_operator_ns, module: of.no_module_ns, function: of.no_stack_ns }[what];
  const graphs = what === "operator" ? of.graph_ns : 0;
  return [
    { title: `no ${what}: graphs`, colour: "var(--cause-5)", value: graphs },
    { title: `no ${what}`, colour: "var(--cause-6)", value: nobody - graphs },
    { title: "launch not recorded", colour: "var(--cause-7)", hatched: true, value: of.launch_not_recorded_ns },
  ].filter((part) => part.value > 0);
}

/** Where stacks were not recorded. */
const NO_STACKS =
  "Not recorded: torch.profiler.profile(with_stack=True) records modules and Python functions, gputrace.torch.operators() modules, " +
  "gputrace record --kinds +stacks native functions.";
/** Where memory was not. */
const NO_MEMORY =
  "Not recorded: torch.profiler.profile(profile_memory=True) records what the allocator gives out, gputrace record --kinds +memory what CUDA does.";
/** Where shapes were not. */
const NO_SHAPES =
  "Not recorded: torch.profiler.profile(record_shapes=True) and gputrace.torch.operators() record the shapes of inputs.";

/** @param {string} key @param {string} title @param {Partial<Column>} [more] @returns {Column} */
const count = (key, title, more) => ({ key, title, number: true, value: (row) => row[key], text: (row) => format.count(row[key]), ...more });

/** @param {string} key @param {string} title @param {Partial<Column>} [more] @returns {Column} */
const time = (key, title, more) => timeColumn(key, title, (row) => row[key], more);

/** A rate in trillions a second. @param {string} key @param {string} title @param {Partial<Column>} [more] @returns {Column} */
const tera = (key, title, more) => ({
  key,
  title,
  number: true,
  value: (row) => row[key],
  text: (row) => (row[key] === null ? format.NONE : format.digits(row[key] / 1e12)),
  ...more,
});

/**
 * The share of all GPU time, with a bar that the greatest share fills.
 * @param {(row: any) => number | null} value
 * @param {any[]} rows
 * @returns {Column}
 */
function share(value, rows) {
  const most = rows.reduce((greatest, row) => Math.max(greatest, value(row) ?? 0), 1e-9);
  return {
    key: "share",
    title: "Share",
    hint: "Of the sum of all operations' durations",
    number: true,
    value,
    text: (row) => format.percent(value(row)),
    bar: (row) => (value(row) ?? 0) / most,
  };
}

/** @param {string} title @param {(row: any) => Node | string} [cell] @returns {Column} */
const name = (title, cell = (row) => h("span", { class: "p-name" }, format.middle(row.name, 400))) => ({
  key: "name",
  title,
  wide: true,
  value: (row) => row.name,
  cell,
});

/** @param {any} row */
function inputsCell(row) {
  const { sizes } = inputs(row.input_dims, row.input_types);
  return h("span", { title: `${row.input_dims ?? ""}\n${row.input_types ?? ""}` }, format.middle(sizes || format.NONE, 60));
}

/** @param {string} key @param {string} title @param {Partial<Column>} [more] @returns {Column} */
const size = (key, title, more) => ({
  key,
  title,
  number: true,
  value: (row) => row[key],
  text: (row) => (row[key] === null ? format.NONE : format.bytes(row[key])),
  ...more,
});

/** Of modules, where allocations are recorded. @param {Attribution} all @returns {Column[]} */
const memoryOfModules = (all) =>
  all.unattributed_memory
    ? [
        size("subtree_allocated_bytes", "Allocated", { spare: 3, hint: "GPU memory that was asked for in it, with modules inside it" }),
        size("subtree_live_at_peak_bytes", "Live at peak", { spare: 2, hint: "What of it was in use when the GPU's memory was used most" }),
      ]
    : [];

const SUBTREE = "What operators inside it launched is in it; each operation counts once a name";

/** @param {Attribution} _ @param {any[]} rows @returns {Column[]} */
const operatorColumns = (_, rows) => [
  name("Operator"),
  count("calls", "Calls"),
  count("kernels", "Operations", { spare: 1, hint: "Kernels, copies and memsets that it launched itself" }),
  time("direct_ns", "Direct", { hint: "The sum of their durations" }),
  share((row) => row.share, rows),
  time("subtree_ns", "Subtree", { spare: 1, hint: SUBTREE }),
  time("host_self_ns", "Host self", { spare: 2, hint: "On the host, without operators inside it" }),
  time("host_total_ns", "Host total", { spare: 3, hint: "On the host, with operators inside it" }),
  time("host_calls_ns", "In CUDA calls", { spare: 3, hint: "In calls of CUDA that it made itself" }),
];

/** @param {any} row */
const total = (row) => row.forward_ns + row.recompute_ns + row.backward_ns;

/** The columns of passes. @returns {Column[]} */
const passes = () => [
  time("forward_ns", "Forward", { spare: 1, hint: "With modules inside it" }),
  time("forward_self_ns", "Own forward", { spare: 2, hint: "Forward, without modules inside it" }),
  time("recompute_ns", "Recomputed", { spare: 2, hint: "Forward once more, during the backward pass (activation checkpointing)" }),
  time("backward_ns", "Backward", { spare: 1 }),
];

/** @param {Attribution} all @param {any[]} rows */
const ofWhole = ({ unattributed }, rows) => share((row) => shareOf(total(row), unattributed?.operations_ns ?? 0), rows);

/** @type {Column} */
const wholeTime = timeColumn("total_ns", "Total", total, { hint: "Forward, recomputed and backward, with modules inside it" });

/** The sizes of a product. @param {any} row */
export function sizeOf({ batch, m, n, k, input_dims: dims }) {
  const sizes = [batch, m, n, k];
  return sizes.includes(null) ? inputs(dims, null).sizes || format.NONE : sizes.join("×");
}

/** By what, in the order of the switch. @type {Record<import("../state.js").OperatorsView["by"], ByTable>} */
export const TABLES = {
  operators: {
    title: "Operators",
    hint: "By name",
    what: "operator",
    rows: (all) => all.operators,
    columns: operatorColumns,
    first: "direct_ns",
    empty: "No operators are recorded.",
  },
  shapes: {
    title: "Shapes",
    hint: "By name and the shapes and types of inputs",
    what: "operator",
    rows: (all) => all.shapes,
    columns: (_, rows) => [
      name("Operator"),
      { key: "input_dims", title: "Inputs", value: (row) => row.input_dims, cell: inputsCell },
      { key: "input_types", title: "Types", spare: 2, value: (row) => row.input_types, text: (row) => inputs(row.input_dims, row.input_types).types },
      count("calls", "Calls", { spare: 1 }),
      time("direct_ns", "Direct"),
      share((row) => row.share, rows),
      time("subtree_ns", "Subtree", { spare: 2, hint: SUBTREE }),
      tera("flops_per_second", "TFLOP/s", { spare: 1, hint: "Of operators whose work is known" }),
    ],
    first: "direct_ns",
    empty: NO_SHAPES,
    search: (row) => `${row.input_dims ?? ""} ${inputs(row.input_dims, null).sizes} ${row.input_types ?? ""}`,
  },
  products: {
    title: "Products",
    hint: "Matrix products, attention and convolutions: how fast they go, and how fast the GPU can",
    what: "operator",
    rows: (all) => all.products,
    columns: ({ unattributed }, rows) => [
      name("Operator"),
      { key: "size", title: "Size", hint: "Batch × m × n × k; else the shapes of inputs", value: sizeOf },
      { key: "dtype", title: "Type", spare: 2, value: (row) => row.dtype, text: (row) => shortType(row.dtype) },
      count("calls", "Calls", { spare: 1 }),
      tera("flops", "TFLOP", { spare: 2, hint: "Two operations for a multiplication and an addition" }),
      time("time_ns", "Time", { hint: "Of what it launched, with operators inside it" }),
      share((row) => shareOf(row.time_ns, unattributed?.operations_ns ?? 0), rows),
      tera("flops_per_second", "TFLOP/s"),
      {
        key: "peak_share",
        title: "Of peak",
        number: true,
        spare: 1,
        value: (row) => row.peak_share,
        text: (row) => format.percent(row.peak_share),
        bar: (row) => row.peak_share,
      },
      tera("bytes_per_second", "TB/s", { spare: 3, hint: "Each tensor counts once" }),
      { key: "bound", title: "Bound by", spare: 3, hint: "Which would take longer at peak rates", value: (row) => row.bound },
    ],
    first: "time_ns",
    empty: NO_SHAPES,
    search: (row) => `${sizeOf(row)} ${row.dtype}`,
  },
  modules: {
    title: "Modules",
    hint: "The modules of the network, as a tree",
    what: "module",
    rows: (all) => all.modules,
    columns: (all, rows) => [name("Module"), count("calls", "Calls", { spare: 1 }), wholeTime, ofWhole(all, rows), ...passes(), ...memoryOfModules(all)],
    first: "total_ns",
    empty: NO_STACKS,
    tree: total,
  },
  classes: {
    title: "Classes",
    hint: "Modules by class",
    what: "module",
    rows: (all) => all.module_classes,
    columns: (all, rows) => [
      name("Class"),
      count("modules", "Modules", { spare: 1 }),
      count("calls", "Calls", { spare: 1 }),
      wholeTime,
      ofWhole(all, rows),
      ...passes(),
      ...memoryOfModules(all),
    ],
    first: "total_ns",
    empty: NO_STACKS,
  },
  stacks: {
    title: "Stacks",
    hint: "Functions of the host, of Python and native ones, by who called them, as a tree",
    what: "function",
    rows: (all) => all.stacks,
    columns: ({ unattributed }, rows) => [
      name("Function", (row) => {
        const { name: called, place } = frameOf(row.name);
        return h("span", { class: "p-name" }, format.middle(called, 200), place && h("span", { class: "p-faint" }, ` ${place}`));
      }),
      count("kernels", "Operations", { spare: 1, hint: "Kernels, copies and memsets that it launched itself" }),
      time("subtree_ns", "With callees", { spare: 1 }),
      share((row) => shareOf(row.subtree_ns, unattributed?.operations_ns ?? 0), rows),
      time("direct_ns", "Own", { spare: 1 }),
      time("backward_ns", "Of it backward", { spare: 2, hint: "Launched by the backward pass of what it did" }),
    ],
    first: "subtree_ns",
    empty: NO_STACKS,
    tree: (row) => row.subtree_ns,
  },
  memory: {
    title: "Memory",
    hint: "Operators by the GPU memory that they allocated",
    what: "memory",
    rows: (all) => all.operators.filter((row) => (row.subtree_allocated_bytes ?? 0) + (row.subtree_live_at_peak_bytes ?? 0) > 0),
    columns: (_, rows) => {
      const most = rows.reduce((greatest, row) => Math.max(greatest, row.subtree_live_at_peak_bytes ?? 0), 1);
      return [
        name("Operator"),
        count("calls", "Calls", { spare: 2 }),
        size("subtree_live_at_peak_bytes", "Live at peak", {
          hint: "What was in use of it when the GPU's memory was used most, with operators inside it",
          bar: (row) => (row.subtree_live_at_peak_bytes ?? 0) / most,
        }),
        size("live_at_peak_bytes", "Own of it", { spare: 1, hint: "Without operators inside it" }),
        size("subtree_allocated_bytes", "Allocated", { hint: "With operators inside it" }),
        size("allocated_bytes", "Own of it", { spare: 2, hint: "Without operators inside it" }),
        size("subtree_live_at_end_bytes", "Live at end", { spare: 2, hint: "What was not freed until the recording's end, with operators inside it" }),
        size("live_at_end_bytes", "Own of it", { spare: 3, hint: "Without operators inside it" }),
      ];
    },
    first: "subtree_live_at_peak_bytes",
    empty: NO_MEMORY,
  },
};
