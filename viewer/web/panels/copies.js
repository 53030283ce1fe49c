// @ts-check
/** Copies: between which places, how much, and how far from what the link carries. */

import { h } from "../dom.js";
import * as format from "../format.js";
import { table } from "../table.js";
import { nothing, panel, section, timeColumn } from "./shared.js";

export const copies = panel("copies", "Copies", (analysis, context, keep) => {
  const several = format.severalDevices(analysis);
  const rows = analysis.ranks.flatMap((rank) => rank.copies.map((copy) => ({ rank, copy })));
  if (!rows.length) return nothing("No copies were recorded.");
  const most = Math.max(1, ...rows.map((/** @type {any} */ row) => row.copy.total_ns));
  const nominal = rows.some((/** @type {any} */ row) => row.copy.nominal_bandwidth !== null);
  keep.table ??= {};
  const list = table({
    name: "copies",
    keep: keep.table,
    rows,
    sort: { key: "total_ns", descending: true },
    search: (row) => `${row.copy.direction} ${row.copy.source} ${row.copy.destination} ${format.place(row.rank, several)}`,
    openHint: () => "Find them on the timeline",
    open: (row) => context.search?.(`Memcpy ${row.copy.direction}`),
    columns: [
      { key: "direction", title: "Direction", value: (row) => row.copy.direction },
      { key: "rank", title: "Rank", value: (row) => row.rank.rank ?? row.rank.device_index, text: (row) => format.place(row.rank, several) },
      { key: "source", title: "From", spare: 1, value: (row) => row.copy.source },
      { key: "destination", title: "To", spare: 1, value: (row) => row.copy.destination },
      { key: "count", title: "Count", number: true, value: (row) => row.copy.count, text: (row) => format.count(row.copy.count) },
      { key: "bytes", title: "Bytes", number: true, value: (row) => row.copy.bytes, text: (row) => format.bytes(row.copy.bytes) },
      timeColumn("total_ns", "Total", (row) => row.copy.total_ns, { hint: "Sum of durations", bar: (row) => row.copy.total_ns / most }),
      timeColumn("time_ns", "Time", (row) => row.copy.time_ns, { spare: 2, hint: "Time in which at least one ran" }),
      {
        key: "bandwidth",
        title: "Bandwidth",
        number: true,
        value: (row) => row.copy.bandwidth,
        text: (row) => format.bandwidth(row.copy.bandwidth),
      },
      ...(nominal
        ? [
            {
              key: "share",
              title: "Of the link",
              number: true,
              hint: "Bandwidth over what the link carries in one direction, by its data sheet",
              value: (/** @type {any} */ row) =>
                row.copy.nominal_bandwidth && row.copy.bandwidth !== null ? row.copy.bandwidth / row.copy.nominal_bandwidth : null,
              text: (/** @type {any} */ row) =>
                format.percent(
                  row.copy.nominal_bandwidth && row.copy.bandwidth !== null ? row.copy.bandwidth / row.copy.nominal_bandwidth : null,
                ),
              bar: (/** @type {any} */ row) => (row.copy.nominal_bandwidth ? row.copy.bandwidth / row.copy.nominal_bandwidth : null),
            },
            {
              key: "link",
              title: "Link",
              spare: /** @type {2} */ (2),
              value: (/** @type {any} */ row) => row.copy.link,
              text: (/** @type {any} */ row) =>
                row.copy.link ? `${row.copy.link}, ${format.bandwidth(row.copy.nominal_bandwidth)}` : format.NONE,
            },
          ]
        : []),
    ],
  });
  return [
    section(
      "Copies by direction",
      analysis.device === "sim"
        ? "Bandwidths are those of the model of the simulated GPU."
        : "Bandwidth is bytes over the sum of durations: each copy weighs by its time.",
      list.element,
    ),
    exposed(analysis, context, several),
  ];
});

/** @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context @param {boolean} several */
function exposed(analysis, context, several) {
  const rows = analysis.ranks.filter((rank) => rank.copy_ns > 0 || rank.memset_ns > 0);
  const most = Math.max(1, ...rows.map((rank) => rank.copy_ns));
  const list = table({
    name: "copies-by-rank",
    plain: rows.length < 9,
    rows,
    openHint: () => "Show this rank on the timeline",
    open: (rank) => context.goTo({ from: context.info.begin, to: context.info.end, rank: rank.rank ?? undefined, device: rank.device_index }),
    columns: [
      { key: "rank", title: "Rank", value: (rank) => rank.rank ?? rank.device_index, text: (rank) => format.place(rank, several) },
      {
        key: "copy_ns",
        title: "Copying",
        number: true,
        value: (rank) => rank.copy_ns,
        text: (rank) => format.time(rank.copy_ns),
        bar: (rank) => rank.copy_ns / most,
      },
      {
        key: "copy_exposed_ns",
        title: "not under compute",
        number: true,
        value: (rank) => rank.copy_exposed_ns,
        text: (rank) => format.time(rank.copy_exposed_ns),
        bar: (rank) => rank.copy_exposed_ns / most,
      },
      {
        key: "exposed_share",
        title: "of its span",
        number: true,
        value: (rank) => (rank.span_ns ? rank.copy_exposed_ns / rank.span_ns : null),
        text: (rank) => format.percent(rank.span_ns ? rank.copy_exposed_ns / rank.span_ns : null),
      },
      { key: "memset_ns", title: "Memsets", number: true, value: (rank) => rank.memset_ns, text: (rank) => format.time(rank.memset_ns) },
      { key: "room", title: "", fixed: true, wide: true, value: () => "", cell: () => h("span", null) },
    ],
  });
  return section("Copies under compute", "Copies that run beside compute cost no time of their own.", list.element);
}
