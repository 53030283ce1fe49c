// @ts-check
/** Memory of the devices over time. */

import { lines } from "../charts.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { table } from "../table.js";
import { drawCounters } from "./counters.js";
import { nothing, panel, resolution, section } from "./shared.js";

export const memory = panel("memory", "Memory", (analysis, context) => {
  const several = format.severalDevices(analysis);
  const having = analysis.ranks.flatMap((rank) => (rank.memory ? [{ ...rank, memory: rank.memory }] : []));
  const sampled = h("div", { class: "p-smalls" });
  // What the analysis has of the allocations is not drawn a second time.
  drawCounters(
    sampled,
    analysis,
    context,
    (row) =>
      !(having.length && /in use|allocated/.test(row.label)) &&
      (row.what === "memory" || /memory_used|memory_allocated|memory_reserved|resident/.test(`${row.label} ${row.detail}`)),
  );
  if (!having.length) {
    return [
      nothing(
        "No allocations were recorded.",
        "With PyTorch, profile_memory=True records the allocator's own totals; otherwise allocations and frees of the device count.",
      ),
      sampled,
    ];
  }
  const fine = resolution(analysis);
  const greatest = Math.max(...having.map((rank) => rank.memory.peak_bytes));
  const reserved = having.some((rank) => rank.memory.peak_reserved_bytes !== null);
  const pools = having.some((rank) => rank.memory.peak_pool_bytes !== null);
  const { begin, end } = context.info;
  const near = (/** @type {number} */ at) => ({
    from: Math.max(begin, at - (end - begin) / 50),
    to: Math.min(end, at + (end - begin) / 50),
  });
  const charts = having.map((rank) =>
    h(
      "figure",
      { class: "p-small" },
      h(
        "figcaption",
        null,
        format.place(rank, several),
        h("span", { class: "p-faint" }, ` most ${format.bytes(rank.memory.peak_bytes)} at ${format.moment(rank.memory.peak_at_ns, fine)}`),
      ),
      lines({
        series: [{ name: "in use", points: rank.memory.timeline, colour: "var(--kind-compute)" }],
        span: [begin, end],
        top: greatest,
        binary: true,
        area: true,
        label: `Memory in use on ${format.place(rank, several)} over time`,
        format: format.bytes,
        time: (ns) => format.moment(ns, fine),
        height: 130,
        open: (at) => context.goTo({ ...near(at), rank: rank.rank ?? undefined, device: rank.device_index }),
      }).element,
    ),
  );
  const list = table({
    name: "memory",
    plain: having.length < 9,
    rows: having,
    sort: { key: "rank", descending: false },
    openHint: () => "Show the peak on the timeline",
    open: (rank) => context.goTo({ ...near(rank.memory.peak_at_ns), rank: rank.rank ?? undefined, device: rank.device_index }),
    columns: [
      { key: "rank", title: "Rank", value: (rank) => rank.rank ?? rank.device_index, text: (rank) => format.place(rank, several) },
      {
        key: "peak_bytes",
        title: "Most in use",
        number: true,
        value: (rank) => rank.memory.peak_bytes,
        text: (rank) => format.bytes(rank.memory.peak_bytes),
        bar: (rank) => rank.memory.peak_bytes / Math.max(1, greatest),
      },
      {
        key: "peak_at_ns",
        title: "at",
        number: true,
        value: (rank) => rank.memory.peak_at_ns,
        text: (rank) => format.moment(rank.memory.peak_at_ns, fine),
      },
      ...(reserved
        ? [
            {
              key: "peak_reserved_bytes",
              title: "Most reserved",
              hint: "Held by the allocator",
              number: true,
              value: (/** @type {typeof having[number]} */ rank) => rank.memory.peak_reserved_bytes,
              text: (/** @type {typeof having[number]} */ rank) => format.bytes(rank.memory.peak_reserved_bytes),
            },
          ]
        : []),
      ...(pools
        ? [
            {
              key: "peak_pool_bytes",
              title: "Pools held",
              number: true,
              value: (/** @type {typeof having[number]} */ rank) => rank.memory.peak_pool_bytes,
              text: (/** @type {typeof having[number]} */ rank) => format.bytes(rank.memory.peak_pool_bytes),
            },
            {
              key: "peak_pool_used_bytes",
              title: "of it used",
              number: true,
              value: (/** @type {typeof having[number]} */ rank) => rank.memory.peak_pool_used_bytes,
              text: (/** @type {typeof having[number]} */ rank) => format.bytes(rank.memory.peak_pool_used_bytes),
            },
          ]
        : []),
      {
        key: "allocations",
        title: "Allocations",
        number: true,
        value: (rank) => rank.memory.allocations,
        text: (rank) => format.count(rank.memory.allocations),
      },
      { key: "frees", title: "Frees", number: true, value: (rank) => rank.memory.frees, text: (rank) => format.count(rank.memory.frees) },
      { key: "counted_by", title: "Counted by", spare: 1, value: (rank) => rank.memory.counted_by },
      { key: "room", title: "", fixed: true, wide: true, value: () => "", cell: () => h("span", null) },
    ],
  });
  return [
    section(
      "Memory in use",
      "Greatest value of each stretch of time; choose a moment to see it on the timeline.",
      h("div", { class: "p-smalls" }, charts),
    ),
    section("Peaks", null, list.element),
    sampled,
  ];
}, { whole: true });
