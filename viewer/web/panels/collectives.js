// @ts-check
/** Collectives: what they carried and how fast, who waited for whom. */

import { legend, scatter, seriesColour, tipLines } from "../charts.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { table } from "../table.js";
import { lateRank } from "./findings.js";
import { chosenSteps, failed, nothing, panel, resolution, section, select, timeColumn } from "./shared.js";
import { within } from "./step_choice.js";

/** So many collectives are drawn at most; of more, stretches that are evenly spread. */
const DRAWN = 5000;
const STRETCHES = 10;

export const collectives = panel("collectives", "Collectives", (analysis, context, keep) => {
  if (!analysis.communicators.length)
    return nothing("Nothing in this recording communicates.", "Collectives show up here when ranks use NCCL, RCCL or another library that is known.");
  const grid = h("div", { class: "p-columns" }, h("div", { class: "p-loading" }, "Asking for the collectives …"));
  drawCharts(grid, analysis, context);
  return [
    grid,
    communicators(analysis, keep),
    transfers(analysis),
    list(analysis, context, keep),
  ];
}, { partly: "The list of all collectives is" });

/**
 * All collectives, or where there are too many, evenly spread stretches of them.
 * @param {import("./shared.js").Context} context
 */
async function sample(context) {
  const ask = (/** @type {number} */ offset, /** @type {number} */ limit) => context.api.rec("collectives", { sort: "start", order: "asc", offset, limit });
  const first = await ask(0, 1000);
  const all = first.collectives;
  if (first.total <= DRAWN) {
    while (all.length < first.total) {
      const next = await ask(all.length, 1000);
      if (!next.collectives.length) break;
      all.push(...next.collectives);
    }
    return { all, total: first.total };
  }
  const length = DRAWN / STRETCHES;
  const spread = all.slice(0, length);
  for (let part = 1; part < STRETCHES; part++) {
    const next = await ask(Math.floor((part * (first.total - length)) / (STRETCHES - 1)), length);
    spread.push(...next.collectives);
  }
  return { all: spread, total: first.total };
}

/** @param {HTMLElement} box @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context */
async function drawCharts(box, analysis, context) {
  try {
    const sampled = await sample(context);
    const { total } = sampled;
    const all = chosenSteps(context) ? sampled.all.filter(within(analysis)) : sampled.all;
    // The first state of a recording that is opened has no collectives yet; the next one comes by itself.
    if (!total && context.info.analysed === false) return;
    const whole = chosenSteps(context) ? "them" : format.count(total);
    const partly = sampled.all.length < total ? ` ${format.count(all.length)} of ${whole} are drawn, evenly spread.` : "";
    const late = [skews(all, analysis, context, partly), arrivals(analysis, context)];
    const bySize = sizes(analysis, all);
    replace(box, bandwidths(all, analysis, context, partly), analysis.arrivals.length ? [late, bySize] : [bySize, late]);
  } catch (error) {
    replace(box, failed(error, () => drawCharts(box, analysis, context), "Collectives"), arrivals(analysis, context), sizes(analysis, []));
  }
}

/** @param {any} one */
const named = (one) => (one.communicator_name ? `${one.name} on ${one.communicator_name}` : one.name);

/**
 * Shows a collective on the timeline, the part of the rank that came last selected.
 * @param {any} one
 * @param {import("./shared.js").Context} context
 */
export async function showCollective(one, context) {
  if (one.start_ns === null) return;
  await context.goTo({ from: one.start_ns, to: one.start_ns + Math.max(1, one.longest_kernel_ns ?? 0), rank: one.last_rank ?? one.ranks?.[0] });
  const parts = (one.participants ?? []).filter((/** @type {any} */ part) => part.ref);
  const part = parts.find((/** @type {any} */ candidate) => Number.parseInt(candidate.rank, 10) === one.last_rank) ?? parts[0];
  if (part) context.select?.(part.ref, { reveal: true });
}

/**
 * The collective at which a rank's lateness cost the others most, or null.
 * @param {any} rank
 * @param {import("./shared.js").Context} context
 */
export async function costliest(rank, context) {
  const isPart = chosenSteps(context) !== "";
  const { collectives } = await context.api.rec("collectives", { sort: "cost", order: "desc", last_rank: rank, limit: isPart ? 1000 : 1 });
  const isMeant = isPart ? within(await context.analysis()) : (/** @type {any} */ one) => typeof one.start_ns === "number";
  return collectives.find(isMeant) ?? null;
}

/** @param {any[]} all @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context @param {string} partly */
function bandwidths(all, analysis, context, partly) {
  const fine = resolution(analysis);
  const timed = all.filter((one) => one.bytes > 0 && one.busbw > 0 && !one.warm_up);
  if (!timed.length) return durations(all, analysis, context, partly);
  const names = [...new Set(timed.map((one) => one.name))].sort();
  const chart = scatter({
    label: `${timed.length} collectives by bytes and bus bandwidth, both on logarithmic axes`,
    series: names,
    points: timed.map((one) => ({ x: one.bytes, y: one.busbw, series: names.indexOf(one.name), data: one })),
    x: { log: 2, title: "bytes", format: format.bytesShort },
    y: { log: 10, title: "bus bandwidth", format: format.bandwidth },
    open: (point) => showCollective(point.data, context),
    tip: ({ data }) =>
      tipLines(
        named(data),
        [
          { name: "bytes", value: format.bytes(data.bytes) },
          { name: "bus bandwidth", value: format.bandwidth(data.busbw) },
          { name: "algorithm", value: format.bandwidth(data.algbw) },
          { name: "longest kernel", value: format.time(data.longest_kernel_ns) },
          { name: "skew", value: format.time(data.skew_ns) },
          { name: "at", value: format.moment(data.start_ns, fine) },
        ],
        "click to see it",
      ),
  });
  return section(
    "Bytes against bus bandwidth",
    "Counted as nccl-tests do, without the waiting for late ranks." + partly,
    h("div", { class: "p-bar" }, legend(names.map((name, index) => ({ title: name, colour: seriesColour(index), shape: index })))),
    chart.element,
  );
}

/**
 * Bytes against the time in the kernel: what is known of a rank alone.
 * @param {any[]} all @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context @param {string} partly
 */
function durations(all, analysis, context, partly) {
  const fine = resolution(analysis);
  const known = all.filter((one) => one.bytes > 0 && one.longest_kernel_ns > 0);
  if (!known.length) return null;
  const names = [...new Set(known.map((one) => one.name))].sort();
  const chart = scatter({
    label: `${known.length} collectives by bytes and time in the kernel, both on logarithmic axes`,
    series: names,
    points: known.map((one) => ({ x: one.bytes, y: one.longest_kernel_ns, series: names.indexOf(one.name), data: one })),
    x: { log: 2, title: "bytes", format: format.bytesShort },
    y: { log: 10, title: "longest kernel", format: format.time },
    open: (point) => showCollective(point.data, context),
    tip: ({ data }) =>
      tipLines(
        named(data),
        [
          { name: "bytes", value: format.bytes(data.bytes) },
          { name: "longest kernel", value: format.time(data.longest_kernel_ns) },
          { name: "at", value: format.moment(data.start_ns, fine) },
        ],
        "click to see it",
      ),
  });
  return section(
    "Bytes against time in the kernel",
    "Waiting for other ranks is in it: a bandwidth would take the kernels of all ranks." + partly,
    h("div", { class: "p-bar" }, legend(names.map((name, index) => ({ title: name, colour: seriesColour(index), shape: index })))),
    chart.element,
  );
}

/** @param {any[]} all @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context @param {string} partly */
function skews(all, analysis, context, partly) {
  const fine = resolution(analysis);
  const title = "Who came last, and by how much";
  const compared = all.filter((one) => one.skew_ns !== null && one.start_ns !== null && one.last_rank !== null);
  if (!compared.length)
    return section(
      title,
      null,
      nothing("Arrivals can't be compared here.", `It takes the kernels of all ranks of a communicator, on one clock. This recording: ${analysis.clock}.`),
    );
  // Those that were last most often have a colour and shape of their own.
  const often = new Map();
  for (const one of compared) often.set(one.last_rank, (often.get(one.last_rank) ?? 0) + 1);
  const leading = [...often].sort((a, b) => b[1] - a[1]).slice(0, 6).map(([rank]) => rank).sort((a, b) => a - b);
  const names = leading.map((rank) => `rank ${rank}`);
  if (often.size > leading.length) names.push("others");
  const chart = scatter({
    label: `Skew of ${compared.length} collectives over time, by the rank that came last`,
    series: names,
    points: compared.map((one) => ({
      x: one.start_ns,
      y: one.skew_ns,
      series: leading.includes(one.last_rank) ? leading.indexOf(one.last_rank) : leading.length,
      data: one,
    })),
    x: { title: "time", format: (ns) => format.time(Math.max(0, ns)), domain: [context.info.begin, Math.max(context.info.begin + 1, context.info.end)] },
    y: { title: "last arrival after the first", format: format.time, zero: true },
    open: (point) => showCollective(point.data, context),
    tip: ({ data }) => tipLines(named(data), [
      { name: `rank ${data.last_rank} last, by`, value: format.time(data.skew_ns) }, { name: "it alone cost", value: format.time(data.last_rank_cost_ns) },
      ...waits(data).slice(0, 4).map(([rank, wait]) => ({ name: `rank ${rank} waited`, value: format.time(wait) })),
      { name: "at", value: format.moment(data.start_ns, fine) },
    ], "click to see it"),
  });
  return section(
    title,
    "A point for each collective: how long the first rank waited for the last." + partly,
    h("div", { class: "p-bar" }, legend(names.map((name, index) => ({ title: name, colour: seriesColour(index), shape: index })))),
    chart.element,
  );
}

/** Who waited how long, longest first. @param {any} one @returns {[string, number][]} */
function waits(one) {
  return /** @type {[string, number][]} */ (Object.entries(one.wait_ns ?? {})).filter(([, wait]) => wait > 0).sort((a, b) => b[1] - a[1]);
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context */
function arrivals(analysis, context) {
  const several = format.severalDevices(analysis);
  const rows = analysis.arrivals;
  const late = lateRank(analysis);
  if (!rows.length) return null;
  const most = Math.max(1, ...rows.map((/** @type {any} */ row) => row.cost_ns));
  const waited = Math.max(1, ...rows.map((/** @type {any} */ row) => row.wait_ns));
  const note =
    !late || late.cost_ns === 0
      ? "All ranks arrive together."
      : late.standsOut
        ? `Rank ${late.rank ?? late.device_index} keeps the others waiting: last at ` +
          `${format.percent(late.last_count / late.collectives)} of the collectives, which cost ${format.time(late.cost_ns)}.`
        : `Rank ${late.rank ?? late.device_index} costs most (${format.time(late.cost_ns)}, ${format.percent(late.share)} of the span), ` +
          `and is last at ${format.count(late.last_count)} of ${format.count(late.collectives)}.`;
  const box = table({
    name: "arrivals",
    plain: rows.length < 9,
    rows,
    sort: { key: "cost_ns", descending: true },
    rowClass: (row) => (late?.standsOut && row.rank === late.rank && row.device_index === late.device_index ? "p-stands" : null),
    openHint: () => "Show where it cost most",
    async open(row) {
      const found = await costliest(row.rank, context);
      if (found) showCollective(found, context);
    },
    columns: [
      { key: "rank", title: "Rank", value: (row) => row.rank ?? row.device_index, text: (row) => format.place(row, several) },
      {
        key: "last_count",
        title: "Last at",
        number: true,
        value: (row) => row.last_count,
        text: (row) => `${format.count(row.last_count)} of ${format.count(row.collectives)}`,
        bar: (row) => row.last_count / Math.max(1, row.collectives),
      },
      {
        key: "caused_by",
        title: "Because of",
        hint: "Whose delay made it late most, along all that it waited for",
        value: (row) => row.caused_by?.[0]?.rank ?? -1,
        text: (row) => {
          const most = row.caused_by?.[0];
          if (!most) return "";
          return `${most.rank === row.rank ? "itself" : `rank ${most.rank}`} (${format.time(most.cost_ns)})`;
        },
      },
      timeColumn("cost_ns", "Cost", (row) => row.cost_ns, { hint: "Over those, how long all others waited for it alone", bar: (row) => row.cost_ns / most }),
      timeColumn("skew_ns", "Skew", (row) => row.skew_ns, { spare: 2, hint: "Over those, how long the first rank waited for it" }),
      timeColumn("wait_ns", "Waited itself", (row) => row.wait_ns, { hint: "For other ranks, over all", bar: (row) => row.wait_ns / waited }),
    ],
  });
  return section("Late ranks", note, box.element);
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {any[]} all */
function sizes(analysis, all) {
  const rows = analysis.collective_sizes;
  if (!rows.length) {
    return section("By size", null, nothing("There are no bandwidths.", all.some((one) => one.bytes > 0)
      ? "Bandwidth is bytes over the time from the last arrival on: it takes the kernels of all ranks, on clocks that can be compared."
      : "The source does not say how many bytes a collective carries."));
  }
  const best = Math.max(1e-12, ...rows.map((/** @type {any} */ row) => row.busbw ?? 0));
  const box = table({
    name: "collective-sizes",
    plain: rows.length < 9,
    rows,
    empty: "No collective says how many bytes it carries.",
    sort: { key: "bytes_from", descending: false },
    search: (row) => row.name,
    columns: [
      { key: "name", title: "Collective", value: (row) => row.name },
      { key: "ranks", title: "Ranks", number: true, spare: 1, value: (row) => row.ranks, text: (row) => format.count(row.ranks) },
      {
        key: "bytes_from",
        title: "Bytes",
        number: true,
        hint: "From a power of two up to the next",
        value: (row) => row.bytes_from,
        text: (row) => `${format.bytesShort(row.bytes_from)} to ${format.bytesShort(row.bytes_below)}`,
      },
      { key: "count", title: "Count", number: true, value: (row) => row.count, text: (row) => format.count(row.count) },
      {
        key: "busbw",
        title: "Bus bandwidth",
        number: true,
        hint: "As nccl-tests count, without waiting",
        value: (row) => row.busbw,
        text: (row) => format.bandwidth(row.busbw),
        bar: (row) => (row.busbw ?? 0) / best,
      },
      { key: "best_busbw", title: "Best", number: true, spare: 3, value: (row) => row.best_busbw, text: (row) => format.bandwidth(row.best_busbw) },
      {
        key: "algbw_with_waiting",
        title: "With waiting",
        number: true,
        spare: 2,
        hint: "Bytes over the longest kernels, waiting and all",
        value: (row) => row.algbw_with_waiting,
        text: (row) => format.bandwidth(row.algbw_with_waiting),
      },
      timeColumn("kernel_p50_ns", "Kernel median", (row) => row.kernel.p50_ns, { spare: 1 }),
      timeColumn("kernel_p99_ns", "p99", (row) => row.kernel.p99_ns, { spare: 3 }),
    ],
  });
  return section("By size", "Warm-ups are left out.", box.element);
}

/** @param {any} one */
const communicatorName = (one) => one.communicator_name ?? one.communicator;

/** @param {Record<string, number>} times */
function greatest(times) {
  const all = Object.entries(times);
  return all.length ? all.reduce((most, one) => (one[1] > most[1] ? one : most)) : null;
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {Record<string, any>} keep */
function communicators(analysis, keep) {
  keep.communicatorTable ??= {};
  const most = Math.max(1, ...analysis.communicators.map((one) => greatest(one.exposed_ns)?.[1] ?? 0));
  const box = table({
    name: "communicators",
    keep: keep.communicatorTable,
    plain: analysis.communicators.length < 9,
    rows: analysis.communicators,
    search: communicatorName,
    columns: [
      {
        key: "communicator",
        title: "Communicator",
        value: communicatorName,
        cell: (row) => h("span", null, communicatorName(row), row.communicator_name ? h("span", { class: "p-faint" }, ` ${row.communicator}`) : null),
      },
      {
        key: "communicator_ranks",
        title: "Ranks",
        number: true,
        value: (row) => row.communicator_ranks,
        text: (row) =>
          row.communicator_ranks === null || row.communicator_ranks === row.ranks.length
            ? format.count(row.ranks.length)
            : `${format.count(row.ranks.length)} of ${format.count(row.communicator_ranks)}`,
      },
      { key: "members", title: "Recorded", wide: true, spare: 2, value: (row) => row.ranks.join(" "), text: (row) => ranges(row.ranks) },
      { key: "operations", title: "Operations", number: true, value: (row) => row.operations, text: (row) => format.count(row.operations) },
      { key: "bytes", title: "Bytes", number: true, value: (row) => row.bytes, text: (row) => format.bytes(row.bytes) },
      timeColumn("time_ns", "Time, most", (row) => greatest(row.time_ns)?.[1], { spare: 1, hint: "Of the rank with most" }),
      {
        key: "exposed_ns",
        title: "Exposed, most",
        number: true,
        hint: "Of the rank with most",
        value: (row) => greatest(row.exposed_ns)?.[1],
        bar: (row) => (greatest(row.exposed_ns)?.[1] ?? 0) / most,
        text: (row) => {
          const [rank, time] = greatest(row.exposed_ns) ?? [null, null];
          return rank === null ? format.NONE : `${format.time(time)}, rank ${rank}`;
        },
      },
    ],
  });
  return section("Communicators", null, box.element);
}

/** Numbers in a row as stretches: "0–7, 16". @param {number[]} numbers */
export function ranges(numbers) {
  const order = [...numbers].sort((a, b) => a - b);
  const parts = [];
  for (let at = 0; at < order.length; at++) {
    const from = order[at];
    while (order[at + 1] === order[at] + 1) at++;
    parts.push(order[at] === from ? String(from) : order[at] === from + 1 ? `${from}, ${order[at]}` : `${from}–${order[at]}`);
  }
  return parts.join(", ");
}

/** @param {import("../../types/analysis.js").Analysis} analysis */
function transfers(analysis) {
  if (!analysis.transfers.length) return null;
  const most = Math.max(1, ...analysis.transfers.map((one) => one.receiver_wait_ns + one.sender_wait_ns));
  const box = table({
    name: "transfers",
    plain: analysis.transfers.length < 9,
    rows: analysis.transfers,
    search: (row) => `rank ${row.sender} rank ${row.receiver} ${communicatorName(row)}`,
    columns: [
      { key: "sender", title: "From", value: (row) => row.sender, text: (row) => `rank ${row.sender ?? "?"}` },
      { key: "receiver", title: "To", value: (row) => row.receiver, text: (row) => `rank ${row.receiver ?? "?"}` },
      { key: "communicator", title: "Communicator", spare: 2, value: communicatorName },
      { key: "count", title: "Count", number: true, value: (row) => row.count, text: (row) => format.count(row.count) },
      { key: "bytes", title: "Bytes", number: true, value: (row) => row.bytes, text: (row) => format.bytes(row.bytes) },
      timeColumn("sender_wait_ns", "Sender waited", (row) => row.sender_wait_ns, { bar: (row) => row.sender_wait_ns / most }),
      timeColumn("receiver_wait_ns", "Receiver waited", (row) => row.receiver_wait_ns, { bar: (row) => row.receiver_wait_ns / most }),
      timeColumn("transfer_ns", "Transfer", (row) => row.transfer_ns),
      {
        key: "bandwidth",
        title: "Bandwidth",
        number: true,
        value: (row) => row.bandwidth,
        text: (row) => (row.shared ? "≥ " : "") + format.bandwidth(row.bandwidth),
      },
      {
        key: "shared",
        title: "Shared",
        number: true,
        spare: 3,
        hint: "In a kernel with other operations",
        value: (row) => row.shared,
        text: (row) => format.count(row.shared),
      },
    ],
  });
  return section("Sends and receives by pair", "Waiting is from an end's own kernel until the other's begins.", box.element);
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context @param {Record<string, any>} keep */
function list(analysis, context, keep) {
  keep.list ??= {};
  keep.communicator ??= "";
  keep.name ??= "";
  const fine = resolution(analysis);
  const names = [...new Set(analysis.ranks.flatMap((rank) => rank.communication.map((one) => one.name)))].sort();
  const box = table({
    name: "collectives",
    keep: keep.list,
    sort: { key: "start_ns", descending: false },
    async source({ sort, order, offset, limit }) {
      const answer = await context.api.rec("collectives", {
        sort,
        order,
        offset,
        limit,
        communicator: keep.communicator || undefined,
        name: keep.name || undefined,
      });
      return { total: answer.total, rows: answer.collectives };
    },
    empty: "No collectives.",
    openHint: () => "Show it on the timeline",
    open: (row) => showCollective(row, context),
    tools: [
      select("Collective", [{ id: "", title: "all collectives" }, ...names.map((name) => ({ id: String(name), title: String(name) }))], keep.name, (id) => {
        keep.name = id;
        box.restart();
      }),
      analysis.communicators.length > 1
        ? select(
            "Communicator",
            [{ id: "", title: "all communicators" }, ...analysis.communicators.map((one) => ({ id: one.communicator, title: communicatorName(one) }))],
            keep.communicator,
            (id) => {
              keep.communicator = id;
              box.restart();
            },
          )
        : h("span", null),
    ],
    columns: [
      { key: "start_ns", title: "Start", order: "start", number: true, value: (row) => row.start_ns, text: (row) => format.moment(row.start_ns, fine) },
      {
        key: "name",
        title: "Collective",
        fixed: true,
        value: (row) => row.name,
        text: (row) => (row.sender !== null || row.receiver !== null ? `${row.name} ${row.sender ?? "?"} → ${row.receiver ?? "?"}` : row.name),
      },
      { key: "communicator", title: "Communicator", spare: 2, value: communicatorName, fixed: true },
      { key: "sequence", title: "Sequence", number: true, spare: 3, value: (row) => row.sequence, text: (row) => format.count(row.sequence), fixed: true },
      { key: "bytes", title: "Bytes", order: "bytes", number: true, value: (row) => row.bytes, text: (row) => format.bytes(row.bytes) },
      { key: "dtype", title: "Type", spare: 3, value: (row) => row.dtype, fixed: true },
      {
        key: "longest_kernel_ns",
        title: "Longest kernel",
        order: "duration",
        number: true,
        value: (row) => row.longest_kernel_ns,
        text: (row) => format.time(row.longest_kernel_ns),
      },
      {
        key: "busbw",
        title: "Bus bandwidth",
        order: "busbw",
        number: true,
        spare: 1,
        value: (row) => row.busbw,
        text: (row) => format.bandwidth(row.busbw),
      },
      { key: "skew_ns", title: "Skew", order: "skew", number: true, value: (row) => row.skew_ns, text: (row) => format.time(row.skew_ns) },
      {
        key: "last_rank",
        title: "Last",
        spare: 1,
        value: (row) => row.last_rank,
        text: (row) => {
          if (row.last_rank !== null) return `rank ${row.last_rank}`;
          return row.last_undecided ? `undecided (rank ${row.last_undecided.rank}?)` : format.NONE;
        },
        fixed: true,
      },
      {
        key: "last_rank_cost_ns",
        title: "It cost",
        order: "cost",
        number: true,
        spare: 2,
        hint: "What the last rank alone cost the others",
        value: (row) => row.last_rank_cost_ns,
        text: (row) => format.time(row.last_rank_cost_ns),
      },
      {
        key: "notes",
        title: "",
        spare: 3,
        fixed: true,
        value: (row) =>
          [
            row.warm_up && "warm-up",
            row.shared_kernel > 1 && `shares its kernel with ${row.shared_kernel - 1}`,
            row.matched_by === "order" && "matched by order",
          ]
            .filter(Boolean)
            .join(", "),
      },
    ],
  });
  return section("All collectives", "Each over all its ranks.", box.element);
}
