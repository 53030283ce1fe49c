// @ts-check
/** Idle: how long each GPU ran nothing, and why. */

import { legend, lines, shareBar } from "../charts.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { table } from "../table.js";
import { CAUSES, causeTitle, nameCell, nothing, panel, resolution, section, select, timeColumn } from "./shared.js";

export const idle = panel("idle", "Idle", (analysis, context, keep) => {
  if (!analysis.ranks.length) return nothing("No rank ran anything on a GPU.");
  return [causes(analysis, context), h("div", { class: "p-columns" }, hostLate(analysis, keep), gaps(analysis, context, keep)), launches(analysis, keep)];
});

/** @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context */
function causes(analysis, context) {
  const several = format.severalDevices(analysis);
  const most = Math.max(1, ...analysis.ranks.map((rank) => rank.idle_ns));
  const found = CAUSES.filter((cause) => analysis.ranks.some((rank) => rank.idle_causes[cause.key] > 0));
  const list = table({
    name: "idle-causes",
    plain: analysis.ranks.length < 9,
    rows: analysis.ranks,
    sort: { key: "rank", descending: false },
    openHint: () => "Show its longest gap on the timeline",
    open(rank) {
      const gap = rank.longest_gaps[0];
      if (gap) context.goTo({ from: gap.start_ns, to: gap.end_ns, rank: rank.rank ?? undefined, device: rank.device_index });
    },
    columns: [
      { key: "rank", title: "Rank", value: (rank) => rank.rank ?? rank.device_index, text: (rank) => format.place(rank, several) },
      {
        key: "bar",
        title: "Idle time by cause",
        fixed: true,
        wide: true,
        value: () => "",
        cell: (rank) =>
          shareBar(
            found.map((cause) => ({ ...cause, value: rank.idle_causes[cause.key] ?? 0 })),
            { total: most, format: format.time, label: format.place(rank, several) },
          ),
      },
      { key: "idle_ns", title: "Idle", number: true, value: (rank) => rank.idle_ns, text: (rank) => format.time(rank.idle_ns) },
      { key: "idle_ratio", title: "of span", number: true, value: (rank) => rank.idle_ratio, text: (rank) => format.percent(rank.idle_ratio) },
      ...found.map((cause) => ({
        key: `${cause.key}_ns`,
        title: cause.title,
        hint: cause.hint,
        number: true,
        spare: /** @type {2} */ (2),
        value: (/** @type {import("../../types/analysis.js").RankAnalysis} */ rank) => rank.idle_causes[cause.key] ?? 0,
        text: (/** @type {import("../../types/analysis.js").RankAnalysis} */ rank) => format.time(rank.idle_causes[cause.key] ?? 0),
      })),
      {
        key: "idle_before_ns",
        title: "Before",
        hint: "From the run's first operation on any GPU to this GPU's first; no part of its span",
        number: true,
        spare: 3,
        value: (rank) => rank.idle_before_ns,
        text: (rank) => format.time(rank.idle_before_ns),
      },
      {
        key: "idle_after_ns",
        title: "After",
        hint: "From this GPU's last operation to the run's last; no part of its span",
        number: true,
        spare: 3,
        value: (rank) => rank.idle_after_ns,
        text: (rank) => format.time(rank.idle_after_ns),
      },
    ],
  });
  return section(
    "Why the GPUs waited",
    "Gaps between a GPU's first and last operation, split by what they waited for. The causes sum to the idle time.",
    h("div", { class: "p-bar" }, legend(found)),
    list.element,
  );
}

/**
 * What the launching thread did while the GPU waited, over the chosen ranks; names that differ by numbers alone
 * ("range: step 7") are one.
 * @param {any[]} ranks
 * @returns {{what: string, name: string, time: number, names: number}[]}
 */
export function lateBy(ranks) {
  const found = new Map();
  for (const rank of ranks) {
    for (const [key, time] of Object.entries(rank.host_late_by)) {
      const same = key.replace(/\b\d+\b/g, "#");
      const entry = found.get(same) ?? { keys: new Set(), time: 0 };
      entry.keys.add(key);
      entry.time += time;
      found.set(same, entry);
    }
  }
  return [...found].map(([same, entry]) => {
    const key = entry.keys.size === 1 ? [...entry.keys][0] : same;
    const at = key.indexOf(": ");
    return { what: at < 0 ? key : key.slice(0, at), name: at < 0 ? "" : key.slice(at + 2), time: entry.time, names: entry.keys.size };
  }).sort((a, b) => b.time - a.time);
}

/** @param {import("../../types/analysis.js").Analysis} analysis */
function rankChoices(analysis) {
  const several = format.severalDevices(analysis);
  return [
    { id: "all", title: "all ranks" },
    ...analysis.ranks.map((/** @type {any} */ rank, /** @type {number} */ index) => ({ id: String(index), title: format.place(rank, several) })),
  ];
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {Record<string, any>} keep */
function hostLate(analysis, keep) {
  keep.lateRank ??= "all";
  const rowsOf = () => lateBy(keep.lateRank === "all" ? analysis.ranks : [analysis.ranks[Number(keep.lateRank)]].filter(Boolean));
  let rows = rowsOf();
  let sum = 1;
  const weigh = () => (sum = Math.max(1, rows.reduce((all, row) => all + row.time, 0)));
  weigh();
  keep.lateTable ??= {};
  const list = table({
    name: "host-late-by",
    keep: keep.lateTable,
    rows,
    sort: { key: "time_ns", descending: true },
    search: (row) => `${row.what} ${row.name}`,
    empty: "The host was never late.",
    tools: analysis.ranks.length > 1 ? [select("Rank", rankChoices(analysis), keep.lateRank, (id) => {
      keep.lateRank = id;
      rows = rowsOf();
      weigh();
      list.setRows(rows);
    })] : [],
    columns: [
      { key: "what", title: "Thread was in", value: (row) => row.what },
      {
        key: "name",
        title: "Name",
        wide: true,
        value: (row) => row.name,
        cell: (row) => h("span", { class: "p-name" }, row.name, row.names > 1 ? h("span", { class: "p-faint" }, ` (${row.names})`) : null),
      },
      timeColumn("time_ns", "Host late", (row) => row.time, { bar: (row) => row.time / sum }),
      { key: "share", title: "Share", number: true, spare: 1, value: (row) => row.time / sum, text: (row) => format.percent(row.time / sum) },
    ],
  });
  return section("What the host did while it was late", "The innermost call, operator or range of the thread that launched next.", list.element);
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context @param {Record<string, any>} keep */
function gaps(analysis, context, keep) {
  const several = format.severalDevices(analysis);
  const fine = resolution(analysis);
  const rows = analysis.ranks.flatMap((rank) => rank.longest_gaps.map((gap) => ({ rank, gap, length: gap.end_ns - gap.start_ns })));
  const longest = Math.max(1, ...rows.map((/** @type {any} */ row) => row.length));
  keep.gapTable ??= {};
  const list = table({
    name: "longest-gaps",
    keep: keep.gapTable,
    rows,
    sort: { key: "length_ns", descending: true },
    search: (row) => `${format.place(row.rank, several)} ${causeTitle(row.gap.cause)} ${row.gap.next_operation}`,
    empty: "There are no gaps.",
    openHint: () => "Show this gap on the timeline",
    open: (row) => context.goTo({ from: row.gap.start_ns, to: row.gap.end_ns, rank: row.rank.rank ?? undefined, device: row.rank.device_index }),
    columns: [
      { key: "start_ns", title: "Start", number: true, value: (row) => row.gap.start_ns, text: (row) => format.moment(row.gap.start_ns, fine) },
      timeColumn("length_ns", "Length", (row) => row.length, { bar: (row) => row.length / longest }),
      { key: "rank", title: "Rank", value: (row) => row.rank.rank ?? row.rank.device_index, text: (row) => format.place(row.rank, several) },
      { key: "cause", title: "Main cause", value: (row) => row.gap.cause, text: (row) => causeTitle(row.gap.cause) },
      {
        key: "next_operation",
        title: "Ended by",
        wide: true,
        spare: 1,
        value: (row) => row.gap.next_operation,
        cell: (row) => nameCell(row.gap.next_operation ?? "", context.state.get().names === "short"),
      },
    ],
  });
  return section("Longest gaps", "The 20 longest of each rank.", list.element);
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {Record<string, any>} keep */
function launches(analysis, keep) {
  const several = format.severalDevices(analysis);
  const rows = analysis.ranks.flatMap((rank) => rank.launches.map((/** @type {any} */ launch) => ({ rank, launch })));
  if (!rows.length) return null;
  keep.launchTable ??= {};
  const list = table({
    name: "launches",
    keep: keep.launchTable,
    rows,
    sort: { key: "call_total_ns", descending: true },
    search: (row) => `${row.launch.call} ${format.place(row.rank, several)}`,
    columns: [
      { key: "call", title: "Call", value: (row) => row.launch.call },
      { key: "rank", title: "Rank", value: (row) => row.rank.rank ?? row.rank.device_index, text: (row) => format.place(row.rank, several) },
      { key: "calls", title: "Calls", number: true, value: (row) => row.launch.calls, text: (row) => format.count(row.launch.calls) },
      {
        key: "operations",
        title: "Operations",
        number: true,
        spare: 2,
        hint: "That they launched: a graph's launch has many",
        value: (row) => row.launch.operations,
        text: (row) => format.count(row.launch.operations),
      },
      timeColumn("call_total_ns", "Time in call", (row) => row.launch.call_total_ns),
      timeColumn("call_p50_ns", "median", (row) => row.launch.call_time.p50_ns, { spare: 2 }),
      timeColumn("call_p99_ns", "p99", (row) => row.launch.call_time.p99_ns, { spare: 3 }),
      {
        key: "unqueued",
        title: "Unqueued",
        number: true,
        spare: 2,
        hint: "Operations whose stream had nothing left to do when the call began",
        value: (row) => row.launch.unqueued,
        text: (row) => format.count(row.launch.unqueued),
      },
      timeColumn("latency_p50_ns", "Latency median", (row) => (row.launch.unqueued ? row.launch.latency.p50_ns : null), {
        hint: "From the call's start to the operation's, of unqueued ones: launch latency",
      }),
      timeColumn("latency_p99_ns", "p99", (row) => (row.launch.unqueued ? row.launch.latency.p99_ns : null), { spare: 3 }),
      timeColumn("delay_p50_ns", "Delay median", (row) => row.launch.delay.p50_ns, {
        spare: 3,
        hint: "From the call's end to the operation's start, of all: waiting behind earlier operations is in it",
      }),
    ],
  });
  return [section("Launches", "How the host handed work over: time in the calls, and until the work began.", list.element), queues(analysis, keep)];
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {Record<string, any>} keep */
function queues(analysis, keep) {
  const having = analysis.ranks.map((rank, index) => ({ rank, index })).filter((one) => one.rank.queues.some((queue) => queue.timeline.length > 1));
  if (!having.length) return null;
  const several = format.severalDevices(analysis);
  const fine = resolution(analysis);
  const holder = h("div", null);
  keep.queueRank = having.some((one) => String(one.index) === keep.queueRank) ? keep.queueRank : String(having[0].index);
  const draw = () => {
    const rank = analysis.ranks[Number(keep.queueRank)];
    const shown = [...rank.queues].sort((a, b) => b.max_depth - a.max_depth).slice(0, 4);
    const from = Math.min(...shown.map((queue) => queue.timeline[0]?.[0] ?? Infinity));
    const to = Math.max(...shown.map((queue) => queue.timeline[queue.timeline.length - 1]?.[0] ?? -Infinity), from + 1);
    const series = shown.map((queue) => ({
      name: `stream ${queue.stream} (most ${format.count(queue.max_depth)}, mean ${format.digits(queue.mean_depth)})`,
      points: queue.timeline,
    }));
    holder.textContent = "";
    holder.append(
      h("div", { class: "p-bar" }, chooser, legend(series.map((one, index) => ({ title: one.name, colour: `var(--series-${index + 1})` })))),
      lines({
        series,
        label: "Depth of the queues over time",
        span: [from, to],
        format: format.count,
        time: (ns) => format.moment(ns, fine),
        title: "waiting operations",
        height: 150,
      }).element,
    );
  };
  const chooser =
    having.length > 1
      ? select(
          "Rank",
          having.map((one) => ({ id: String(one.index), title: format.place(one.rank, several) })),
          keep.queueRank,
          (id) => {
            keep.queueRank = id;
            draw();
          },
        )
      : null;
  draw();
  return section(
    "Depth of the queues",
    "Operations that are launched and wait to begin: where a line falls to 0, the host was late. Greatest depth of each stretch of time.",
    holder,
  );
}
