// @ts-check
import { numbersOf, ranges } from "../api.js";
import { table } from "../table.js";
import { Tree } from "../tree.js";
import { place } from "../flame_graph.js";
import { flameNodes } from "../panels/operator_flame.js";
import { TABLES, partsOfPeak } from "../panels/operator_tables.js";
import { roofs } from "../panels/roofline.js";
import { ratesOf, utilization } from "../panels/step_rates.js";
import { askedFor, launchedBy } from "../search.js";
import { frameOf, inputs } from "../shapes.js";
import { href, parse } from "../url.js";
import { deepEqual, equal, ok } from "./assert.js";

/** @typedef {{name: string, parent: number | null, time: number}} Row */

/** main 10 holds train 9 (which holds step 9: forward 6, backward 3) and save 1; other 2 holds nothing. @type {Row[]} */
const ROWS = [
  { name: "main", parent: null, time: 10 },
  { name: "train", parent: 0, time: 9 },
  { name: "step", parent: 1, time: 9 },
  { name: "forward", parent: 2, time: 6 },
  { name: "backward", parent: 2, time: 3 },
  { name: "save", parent: 0, time: 1 },
  { name: "other", parent: null, time: 2 },
];
const OPTIONS = { parent: (/** @type {Row} */ row) => row.parent, weight: (/** @type {Row} */ row) => row.time };
const most = (/** @type {Row[]} */ rows) => [...rows].sort((a, b) => b.time - a.time);
const names = (/** @type {Row[]} */ rows) => rows.map((row) => row.name);

/** @param {any} more @returns {any} */
const rank = (more) => ({ operators: [], shapes: [], products: [], modules: [], module_classes: [], stacks: [], unattributed: null, peak: null, ...more });
const unattributed = { operations_ns: 100, no_operator_ns: 10, graph_ns: 5, launch_not_recorded_ns: 0, no_module_ns: 0, no_stack_ns: 0 };

/** @type {Record<string, () => void | Promise<void>>} */
export const tests = {
  "a tree is open along what takes most, and opens and closes"() {
    const tree = new Tree(ROWS, OPTIONS);
    deepEqual(names(tree.shown(most)), ["main", "train", "step", "forward", "backward", "save", "other"]);
    tree.toggle(1);
    deepEqual(names(tree.shown(most)), ["main", "train", "save", "other"]);
    tree.toggle(0);
    deepEqual(names(tree.shown(most)), ["main", "other"]);
    deepEqual(names(tree.shown(most, { all: true })).length, 7);
    /** @type {number[]} */
    let told = [];
    const closed = new Tree(ROWS, { ...OPTIONS, open: [], changed: (open) => (told = open) });
    deepEqual(names(closed.shown(most)), ["main", "other"]);
    // What is the only one in another opens with it.
    closed.toggle(1);
    deepEqual(told, [1, 2]);
    deepEqual(ROWS.map((row) => closed.levelOf(row)), [1, 2, 3, 4, 4, 2, 1]);
  },
  "a filter shows what matches with what it is in"() {
    const tree = new Tree(ROWS, { ...OPTIONS, open: [] });
    deepEqual(names(tree.shown(most, { kept: (row) => row.name === "backward" })), ["main", "train", "step", "backward"]);
    deepEqual(names(tree.shown(most)), ["main", "other"]);
  },
  "a parent that comes after its child is none"() {
    /** @type {Row[]} */
    const rows = [{ name: "a", parent: 1, time: 1 }, { name: "b", parent: 1, time: 1 }];
    const tree = new Tree(rows, OPTIONS);
    deepEqual(names(tree.shown(most)), ["a", "b"]);
  },
  "a table of a tree goes by keys"() {
    if (typeof document === "undefined") return;
    const made = table({
      name: "tree",
      rows: ROWS,
      sort: { key: "time", descending: true },
      search: (row) => row.name,
      tree: { ...OPTIONS, open: [] },
      columns: [{ key: "name", title: "Name", wide: true, value: (row) => row.name }, { key: "time", title: "Time", number: true, value: (row) => row.time }],
    });
    document.body.append(made.element);
    const said = () => [...made.element.querySelectorAll("tbody tr")].map((row) => row.querySelector("td")?.textContent);
    const press = (/** @type {string} */ key) => document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
    deepEqual(said(), ["main", "other"]);
    /** @type {HTMLElement} */ (made.element.querySelector("tr[tabindex='0']")).focus();
    press("ArrowRight");
    deepEqual(said(), ["main", "train", "save", "other"]);
    equal(document.activeElement?.getAttribute("aria-expanded"), "true");
    press("ArrowRight");
    equal(document.activeElement?.textContent, "train9");
    press("Enter");
    deepEqual(said(), ["main", "train", "step", "forward", "backward", "save", "other"]);
    press("End");
    equal(document.activeElement?.textContent, "other2");
    press("Home");
    press("ArrowLeft");
    deepEqual(said(), ["main", "other"]);
    equal(made.element.querySelector("table")?.getAttribute("role"), "treegrid");
    equal(document.activeElement?.getAttribute("aria-level"), "1");
    made.element.remove();
  },
  "a search for what somebody launched"() {
    const mode = { regex: false, case: false };
    deepEqual(askedFor("mm", { regex: true, case: false }), { regex: true, case: false, q: "mm", by: "name" });
    deepEqual(askedFor("module: Linear", mode), { ...mode, q: "Linear", by: "module" });
    deepEqual(askedFor(launchedBy("module", "Linear_1"), mode), { q: "^Linear_1$", by: "module", regex: true, case: true });
    deepEqual(askedFor(launchedBy("class", "Linear"), mode), { q: "^Linear(_\\d+)?$", by: "module", regex: true, case: true });
    deepEqual(askedFor("class:Linear", mode), { q: "^Linear(_\\d+)?$", by: "module", regex: true, case: false });
    equal(askedFor(launchedBy("function", "a.py(1): f"), mode).by, "function");
    deepEqual(askedFor("module:", mode), { ...mode, q: "module:", by: "name" });
  },
  "memory at the peak in parts"() {
    const part = (/** @type {number} */ live) => ({ allocated_bytes: 0, live_at_peak_bytes: live, live_at_end_bytes: 0 });
    const all = rank({
      operators: [{ live_at_peak_bytes: 5 }, { live_at_peak_bytes: null }],
      unattributed_memory: { all: part(20), no_operator: part(3), no_module: part(0), caller_not_recorded: part(0), not_seen_at_peak_bytes: 12 },
    });
    deepEqual(partsOfPeak(all).map(({ value }) => value), [5, 3, 12]);
    deepEqual(partsOfPeak(rank({})), []);
  },
  "what was chosen comes back from a link"() {
    for (const open of [null, [], [0, 1, 2, 7]])
      for (const sort of [null, { key: "direct_ns", descending: true }, { key: "name", descending: false }]) {
        const operators = { by: /** @type {"stacks"} */ ("stacks"), rank: "none.3", sort, open };
        deepEqual(parse(href({ tab: "operators", operators })), { tab: "operators", operators });
      }
    const flame = { by: /** @type {"modules"} */ ("modules"), rank: "all", sort: null, open: null, flame: true, zoom: 17 };
    deepEqual(parse(href({ tab: "operators", operators: flame })), { tab: "operators", operators: flame });
    equal(parse("#tab=operators&by=modules&zoom=-1&graph=x").operators?.zoom, undefined);
    equal(parse("#tab=operators&by=nonsense").operators, undefined);
    deepEqual(parse("#tab=operators&by=modules&of=x&sort=a b&open=0-x").operators, { by: "modules", rank: "all", sort: null, open: null });
    deepEqual(numbersOf("0-999999999", 3), [0, 1, 2]);
    equal(ranges(numbersOf("0-2,5", 9) ?? []), "0-2,5");
  },
  "boxes of a flame graph sum to all GPU time"() {
    const module = (/** @type {number | null} */ parent, /** @type {number} */ forward, /** @type {number} */ recomputed, /** @type {number} */ backward) => ({
      name: "Linear_0", parent, calls: 1, forward_ns: 0, recompute_ns: 0, backward_ns: 0,
      forward_self_ns: forward, recompute_self_ns: recomputed, backward_self_ns: backward,
    });
    // What is recomputed in an inner module is in no column of the outer one.
    const all = rank({
      modules: [module(null, 10, 0, 0), module(0, 5, 7, 3), module(1, 5, 0, 0), module(null, 20, 0, 10)],
      unattributed: { ...unattributed, no_module_ns: 25, launch_not_recorded_ns: 15 },
    });
    const { nodes, total } = flameNodes(all, "modules");
    equal(total, 100);
    deepEqual(nodes.map((node) => node.total), [30, 20, 5, 30, 25, 15]);
    deepEqual(nodes.slice(4).map((node) => [node.name, node.rest]), [["no module", true], ["launch not recorded", true]]);
    deepEqual(nodes[0].sums, { forward: 20, recomputed: 7, backward: 3 });
    const outermost = place(nodes, total, null).filter(({ depth }) => depth === 0);
    ok(Math.abs(outermost.reduce((sum, { width }) => sum + width, 0) - 1) < 1e-12);
    // Functions: backward launches are of their own.
    const stack = (/** @type {number | null} */ parent, /** @type {number} */ own, /** @type {number} */ backward) =>
      ({ name: "a.py(1): f", parent, kernels: 1, direct_ns: own, backward_ns: backward, subtree_ns: 0 });
    const stacks = flameNodes(rank({ stacks: [stack(null, 1, 0), stack(0, 59, 20)], unattributed: { ...unattributed, no_stack_ns: 40 } }), "stacks").nodes;
    deepEqual(stacks.map((node) => node.total), [60, 59, 40]);
    deepEqual(stacks[0].sums, { forward: 40, backward: 20 });
  },
  "marks under the roof are as large as their time"() {
    const product = (/** @type {any} */ more) => ({
      name: "aten::mm", batch: 1, m: 2, n: 3, k: 4, input_dims: null, dtype: "c10::BFloat16", calls: 1, flops: 100, bytes: 10, time_ns: 100,
      flops_per_second: 1e12, bytes_per_second: 1e11, peak_flops_per_second: 9e14, peak_share: 0.1, bound: "compute", ...more,
    });
    const products = [
      product({}),
      product({ time_ns: 25, dtype: "float", peak_flops_per_second: 6e13 }),
      product({ bytes: null }),
      product({ flops_per_second: null }),
    ];
    const peak = { flops_per_second: 9e14, bytes_per_second: 3e12, dtype: "c10::BFloat16", source: "data sheet" };
    const { marks, peaks, bytes } = roofs(rank({ products, peak }));
    deepEqual(marks.map(({ x, y }) => [x, y]), [[10, 1e12], [10, 1e12]]);
    equal(marks[0].size / marks[1].size, 2, "areas are as times");
    deepEqual([...peaks], [["BFloat16", 9e14], ["float", 6e13]]);
    equal(bytes, 3e12);
    equal(roofs(rank({ products })).marks.length, 0, "no roof is known");
  },
  "columns of utilization are there where a step has one"() {
    const step = (/** @type {number | null} */ mfu, /** @type {number | null} */ hfu) => /** @type {any} */ ({ step: { mfu, hfu } });
    deepEqual(utilization([step(null, null)]), []);
    deepEqual(utilization([step(null, null), step(0.4, null)]).map(({ title }) => title), ["MFU"]);
    deepEqual(utilization([step(0.4, 0.5)]).map(({ title, text }) => [title, text?.(step(0.4, 0.5))]), [["MFU", "40.0\u202f%"], ["HFU", "50.0\u202f%"]]);
    deepEqual(ratesOf(step(0.25, null).step), [{ name: "MFU", value: "25.0\u202f%" }]);
  },
  "inputs and functions are short"() {
    deepEqual(inputs('[[64, 512], [], [512, 10], [], []]', '["c10::BFloat16", "Scalar", "float", "", "Scalar"]'), {
      sizes: "64×512, –, 512×10",
      types: "BFloat16, float",
    });
    deepEqual(inputs("[[[8, 2], [3]], [1]]", '["TensorList", "int"]'), { sizes: "[8×2, 3], 1", types: "TensorList, int" });
    for (const odd of [null, undefined, "", "[", "{}", "7", "[[[[[[[[1]]]]]]]]"]) ok(typeof inputs(odd, odd).sizes === "string");
    deepEqual(frameOf("/usr/lib/python3/torch/nn/modules/module.py(1743): _call_impl"), { name: "_call_impl", place: "modules/module.py(1743)" });
    deepEqual(frameOf("<string>(1): <module>"), { name: "<module>", place: "<string>(1)" });
    deepEqual(frameOf("at::_ops::mm::call [libtorch_cpu.so]"), { name: "at::_ops::mm::call", place: "libtorch_cpu.so" });
    for (const name of ["nn.Module: Linear_3", "<built-in method a/b of type>", ""]) deepEqual(frameOf(name), { name, place: "" });
  },
  "every table has the column that it is sorted by"() {
    for (const { first, columns } of Object.values(TABLES)) ok(columns(rank({}), []).some((column) => column.key === first), first);
  },
};
