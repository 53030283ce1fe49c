// @ts-check
/** The tree of rows: what is folded, pinned, filtered, and where everything lies. */

import { buildTree, groupsOver, layout, walk } from "../rows.js";
import { deepEqual, equal, ok } from "./assert.js";

/** @param {number} ranks */
function rows(ranks) {
  /** @type {any[]} */
  const list = [];
  const add = (/** @type {any} */ row) =>
    list.push({
      row: list.length,
      type: "slices",
      lane: 0,
      lanes: 1,
      slices: 5,
      rank: null,
      device: null,
      label: row.path[row.path.length - 1],
      ...row,
    });
  for (let rank = 0; rank < ranks; rank += 1)
    add({ key: `c/${rank}`, what: "communicator", path: ["communicators", "world", `rank ${rank}`], rank });
  for (let rank = 0; rank < ranks; rank += 1) {
    add({ key: `r${rank}/s7/0`, what: "stream", path: [`rank ${rank}`, "GPU 0", "stream 7"], rank, device: 0 });
    add({ key: `r${rank}/s9/0`, what: "stream", path: [`rank ${rank}`, "GPU 0", "stream 9"], rank, device: 0, lanes: 2, slices: rank === 1 ? 0 : 5 });
    add({ key: `r${rank}/s9/1`, what: "stream", path: [`rank ${rank}`, "GPU 0", "stream 9"], rank, device: 0, lane: 1, lanes: 2 });
    add({ key: `r${rank}/power`, what: "counter", type: "counter", path: [`rank ${rank}`, "GPU 0", "power"], rank, device: 0 });
    add({ key: `r${rank}/t/0`, what: "thread", path: [`rank ${rank}`, "thread 1"], rank });
  }
  return list;
}

const plain = /** @type {import("../rows.js").LayoutOptions} */ ({ collapsed: [], pins: [], text: "", hideEmpty: false, only: null, rowHeight: "normal" });

export const tests = {
  "a rank's only GPU is no level of its own"() {
    const root = buildTree(rows(2));
    const rank = root.children.find((node) => node.label === "rank 0");
    equal(rank?.detail.startsWith("GPU 0"), true);
    deepEqual(rank?.children.map((child) => child.label), ["stream 7", "stream 9", "power", "thread 1"]);
  },
  "rows lie under each other without overlapping"() {
    const { items, height } = layout(buildTree(rows(3)), plain);
    for (let at = 1; at < items.length; at += 1) ok(items[at].y >= items[at - 1].y + items[at - 1].height, items[at].key);
    ok(height > items[items.length - 1].y);
  },
  "a folded group is one line that sums up its streams"() {
    const root = buildTree(rows(2));
    const { items, byRow } = layout(root, { ...plain, collapsed: ["rank 0"] });
    const item = items.find((one) => one.key === "rank 0");
    equal(item?.folded, true);
    deepEqual(item?.rows, [2, 3, 4]);
    equal(items.some((one) => one.key === "r0/s7/0"), false);
    equal(byRow.get(2), item);
    equal(byRow.get(5), item);
  },
  "what a filter leaves, with the groups over it"() {
    const { items } = layout(buildTree(rows(2)), { ...plain, text: "stream 9" });
    deepEqual(items.map((item) => item.key), ["rank 0", "r0/s9/0", "r0/s9/1", "rank 1", "r1/s9/0", "r1/s9/1"]);
    equal(layout(buildTree(rows(2)), { ...plain, text: "no such" }).items.length, 0);
  },
  "empty rows can be hidden, others kept by their hits"() {
    const root = buildTree(rows(2));
    equal(layout(root, { ...plain, hideEmpty: true }).items.some((item) => item.key === "r1/s9/0"), false);
    deepEqual(layout(root, { ...plain, only: new Set([7]) }).items.map((item) => item.row?.row ?? item.key), ["rank 1", 7]);
  },
  "pins come in their order, of rows and of groups"() {
    const { pinned, pinnedHeight } = layout(buildTree(rows(2)), { ...plain, pins: ["rank 1", "r0/s7/0", "gone"] });
    deepEqual(pinned.map((item) => item.key), ["rank 1", "r0/s7/0"]);
    ok(pinned[0].rows.length > 0);
    ok(pinnedHeight > pinned[1].y);
  },
  "many ranks begin folded, so that the first look is short"() {
    const root = buildTree(rows(64));
    ok(layout(root, plain).items.length < 140);
    ok([...walk(root)].some((node) => node.sort === "rank" && node.folded));
    equal([...walk(root)].find((node) => node.label === "rank 0")?.folded, false);
  },
  "groups can change places"() {
    const root = buildTree(rows(3));
    const { items } = layout(root, { ...plain, order: { "": ["rank 2", "rank 0"] } });
    deepEqual(items.filter((item) => item.depth === 0 && item.type === "group").map((item) => item.label), ["rank 2", "rank 0", "world", "rank 1"]);
  },
  "a few communicators are groups of their own"() {
    equal(buildTree(rows(2)).children[0].path, "communicators/world");
  },
  "the groups over a row"() {
    deepEqual(groupsOver(buildTree(rows(2)), 2).map((node) => node.path), ["rank 0", "rank 0/GPU 0/stream 7"]);
  },
};
