// @ts-check
/** Kernels: what ran on the GPUs, by name. */

import { legend, shareBar } from "../charts.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { table } from "../table.js";
import { choice, kindMark, nameCell, nothing, panel, section, select, timeColumn } from "./shared.js";

const KINDS = ["compute", "communication", "copy", "memset"];

/**
 * Operations by name and kind over the given ranks. Means come from totals; medians are of one rank alone.
 * @param {any[]} ranks
 */
export function merged(ranks) {
  const found = new Map();
  let all = 0;
  for (const rank of ranks) {
    for (const kernel of rank.kernels) {
      all += kernel.total_ns;
      const key = kernel.kind + "\0" + kernel.name;
      const entry = found.get(key);
      if (!entry) {
        found.set(key, {
          ...kernel,
          ranks: 1,
          known: kernel.occupancy === null ? 0 : kernel.total_ns,
          weighed: (kernel.occupancy ?? 0) * kernel.total_ns,
          reasons: new Set([kernel.kind_reason]),
        });
        continue;
      }
      entry.ranks++;
      entry.count += kernel.count;
      entry.total_ns += kernel.total_ns;
      entry.min_ns = Math.min(entry.min_ns, kernel.min_ns);
      entry.max_ns = Math.max(entry.max_ns, kernel.max_ns);
      entry.p50_ns = entry.p99_ns = null;
      entry.reasons.add(kernel.kind_reason);
      if (kernel.occupancy !== null) {
        entry.known += kernel.total_ns;
        entry.weighed += kernel.occupancy * kernel.total_ns;
      }
    }
  }
  return [...found.values()].map((entry) => ({
    ...entry,
    mean_ns: entry.count ? Math.floor(entry.total_ns / entry.count) : 0,
    share: all ? entry.total_ns / all : 0,
    occupancy: entry.known ? entry.weighed / entry.known : null,
  }));
}

export const kernels = panel("kernels", "Kernels", (analysis, context, keep) => {
  if (!analysis.ranks.length) return nothing("No rank ran anything on a GPU.");
  const several = format.severalDevices(analysis);
  keep.rank ??= "all";
  keep.kind ??= "all";
  const chosen = () => (keep.rank === "all" ? analysis.ranks : [analysis.ranks[Number(keep.rank)]].filter(Boolean));
  let every = merged(chosen());
  const rows = () => (keep.kind === "all" ? every : every.filter((row) => row.kind === keep.kind));
  const kindBar = h("div", { class: "p-kinds" });
  const drawKinds = () => {
    const total = every.reduce((all, row) => all + row.total_ns, 0);
    const parts = KINDS.map((kind) => ({
      title: kind,
      colour: `var(--kind-${kind})`,
      hatched: kind === "communication",
      value: every.filter((row) => row.kind === kind).reduce((all, row) => all + row.total_ns, 0),
    })).filter((part) => part.value > 0);
    kindBar.textContent = "";
    kindBar.append(
      legend(parts.map((part) => ({ ...part, title: `${part.title} ${format.time(part.value)} (${format.percent(part.value / total)})` }))),
      shareBar(parts, { format: format.time, label: "Sum of durations by kind" }),
    );
  };
  drawKinds();
  keep.table ??= {};
  const most = () => Math.max(1e-9, ...every.map((row) => row.share));
  let greatest = most();
  const list = table({
    name: "kernels",
    keep: keep.table,
    rows: rows(),
    sort: { key: "total_ns", descending: true },
    search: (row) => `${row.name} ${row.kind}`,
    searchHint: "Filter by name",
    openHint: (row) => `Find all ${format.count(row.count)} on the timeline`,
    open: (row) => context.search?.(row.name),
    tools: [
      analysis.ranks.length > 1
        ? select(
            "Rank",
            [
              { id: "all", title: "all ranks" },
              ...analysis.ranks.map((/** @type {any} */ rank, /** @type {number} */ index) => ({
                id: String(index),
                title: format.place(rank, several),
              })),
            ],
            keep.rank,
            (id) => {
              keep.rank = id;
              every = merged(chosen());
              greatest = most();
              drawKinds();
              list.setRows(rows());
            },
          )
        : h("span", null),
      choice(
        "Kind",
        [
          { id: "all", title: "All" },
          ...KINDS.filter((kind) => every.some((row) => row.kind === kind)).map((kind) => ({ id: kind, title: kind })),
        ],
        keep.kind,
        (id) => {
          keep.kind = id;
          list.setRows(rows());
        },
      ),
      choice(
        "Names",
        [
          { id: "short", title: "Short names", hint: "Without return types, namespaces, template arguments and parameters" },
          { id: "full", title: "Full" },
        ],
        context.state.get().names,
        (id) => context.state.set({ names: id }),
      ),
    ],
    columns: [
      { key: "name", title: "Name", wide: true, value: (row) => row.name, cell: (row) => nameCell(row.name, context.state.get().names === "short") },
      { key: "kind", title: "Kind", value: (row) => row.kind, cell: (row) => h("span", { title: [...row.reasons].join("; ") }, kindMark(row.kind)) },
      { key: "count", title: "Count", number: true, value: (row) => row.count, text: (row) => format.count(row.count) },
      timeColumn("total_ns", "Total", (row) => row.total_ns),
      {
        key: "share",
        title: "Share",
        hint: "Of the sum of all durations",
        number: true,
        value: (row) => row.share,
        text: (row) => format.percent(row.share),
        bar: (row) => row.share / greatest,
      },
      timeColumn("mean_ns", "Mean", (row) => row.mean_ns),
      timeColumn("min_ns", "Min", (row) => row.min_ns, { spare: 2 }),
      timeColumn("p50_ns", "Median", (row) => row.p50_ns, { spare: 3, hint: "Of one rank: choose it" }),
      timeColumn("p99_ns", "p99", (row) => row.p99_ns, { spare: 3, hint: "Of one rank: choose it" }),
      timeColumn("max_ns", "Max", (row) => row.max_ns, { spare: 1 }),
      {
        key: "occupancy",
        title: "Occupancy",
        number: true,
        spare: 2,
        hint: "Theoretical: the share of a multiprocessor's warps that the kernel can keep there",
        value: (row) => row.occupancy,
        text: (row) => format.percent(row.occupancy),
      },
    ],
  });
  return [
    section(
      "Operations by name",
      "Sums of durations, over streams. Choose one to find all its occurrences on the timeline.",
      kindBar,
      list.element,
    ),
    streams(analysis, context, keep),
  ];
});

/** @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context @param {Record<string, any>} keep */
function streams(analysis, context, keep) {
  const several = format.severalDevices(analysis);
  const rows = analysis.ranks.flatMap((rank) => rank.streams.map((stream) => ({ rank, stream })));
  const whole = Math.max(1, ...rows.map((/** @type {any} */ row) => row.stream.span_ns));
  keep.streams ??= {};
  const column = (/** @type {string} */ key, /** @type {string} */ title, /** @type {1 | 2 | 3} */ spare, /** @type {string} */ hint = "") => ({
    key, title, number: true, spare, hint, value: (/** @type {any} */ row) => row.stream[key], text: (/** @type {any} */ row) => format.time(row.stream[key]),
  });
  const list = table({
    name: "streams",
    keep: keep.streams,
    rows,
    search: (row) => `${format.place(row.rank, several)} stream ${row.stream.stream}`,
    openHint: () => "Show its rank on the timeline",
    open: (row) => context.goTo({ from: context.info.begin, to: context.info.end, rank: row.rank.rank ?? undefined, device: row.rank.device_index }),
    columns: [
      { key: "stream", title: "Stream", value: (row) => row.stream.stream, text: (row) => `stream ${row.stream.stream}` },
      { key: "rank", title: "Rank", value: (row) => row.rank.rank ?? row.rank.device_index, text: (row) => format.place(row.rank, several) },
      { key: "ops", title: "Operations", number: true, value: (row) => row.stream.ops, text: (row) => format.count(row.stream.ops) },
      timeColumn("busy_ns", "Busy", (row) => row.stream.busy_ns, { bar: (row) => row.stream.busy_ns / whole }),
      {
        key: "idle_ratio",
        title: "Idle",
        number: true,
        value: (row) => row.stream.idle_ratio,
        text: (row) => format.percent(row.stream.idle_ratio),
      },
      column("compute_ns", "All compute", 1),
      column("communication_ns", "Communication", 1),
      column("communication_exposed_ns", "Exposed", 2),
      column("copy_ns", "Copies", 2),
      column("idle_host_wait_ns", "Host wait", 2, "Idle before operations that were launched late"),
      column("idle_kernel_wait_ns", "Kernel wait", 3, "Idle for less than 30 µs before operations that were launched in time"),
      column("idle_other_ns", "Other", 3, "The rest of the stream's idle time"),
    ],
  });
  return section("Streams", "Streams are idle at the same time: their idle times sum to nothing. Why the device idled is under Idle.", list.element);
}
