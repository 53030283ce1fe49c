// @ts-check
/** Devices and hosts as they were sampled, what recording cost, and what is missing. */

import { h } from "../dom.js";
import * as format from "../format.js";
import { table } from "../table.js";
import { counterTitle, drawCounters } from "./counters.js";
import { panel, resolution, section } from "./shared.js";

export const devices = panel("devices", "Devices", (analysis, context, keep) => {
  const charts = h("div", { class: "p-smalls" });
  drawCounters(
    charts,
    analysis,
    context,
    (row) => row.what === "counter" && row.device !== null && row.device !== undefined && !/throttle/.test(`${row.label} ${row.detail}`),
  );
  return [
    truth(analysis, context),
    hangs(analysis, context),
    topology(context.info),
    deviceTable(analysis, keep),
    charts,
    hostTables(analysis, keep),
    cost(analysis, keep),
    unfinished(analysis, context),
  ];
}, { partly: "Counters, losses and what recording cost are" });

/** What is missing, and what was assumed. @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context */
function truth(analysis, context) {
  const { info } = context;
  const losses = analysis.losses.map((loss) =>
    h(
      "li",
      { class: "p-loss" },
      h("strong", null, loss.count === null ? loss.what : `${format.count(loss.count)} ${loss.what}`),
      loss.affects ? h("span", { class: "p-quiet" }, `: touches ${loss.affects}`) : null,
    ),
  );
  const spread = analysis.clock_end_spread_ns;
  const apart = spread === null ? "" : `; ends of one collective lie ${format.time(spread)} apart`;
  const notes = [...new Set([...analysis.notes, analysis.clock && `Clocks: ${analysis.clock}${apart}`].filter(Boolean))];
  const events =
    info.total_events > info.events
      ? `${format.count(info.events)} of ${format.count(info.total_events)} events`
      : info.events !== undefined
        ? `all ${format.count(info.events)} events`
        : "";
  return h(
    "div",
    { class: "p-columns p-three" },
    recording(info, analysis),
    section(
      "What is missing",
      events ? `The recording holds ${events}.` : null,
      losses.length ? h("ul", { class: "p-list" }, losses) : h("p", { class: "p-quiet" }, "Nothing was lost."),
    ),
    section(
      "What was assumed",
      null,
      notes.length
        ? h(
            "ul",
            { class: "p-list p-notes" },
            notes.map((note) => h("li", null, note)),
          )
        : h("p", { class: "p-quiet" }, "Nothing."),
    ),
  );
}

/** When a recording began, where its stamps count from the epoch: ISO without the zone, which is UTC. @param {string | undefined} origin ns */
export function beganAt(origin) {
  const ms = Number(BigInt(origin ?? 0) / 1_000_000n);
  // Before 2010 there were no recordings: such stamps count from something else.
  return ms > Date.UTC(2010, 0) && ms < Date.UTC(2200, 0) ? new Date(ms).toISOString().replace("T", " ").slice(0, 19) + " UTC" : null;
}

/** What was recorded, where, when. @param {any} info @param {import("../../types/analysis.js").Analysis} analysis */
function recording(info, analysis) {
  const gpus = [...new Set(analysis.ranks.map((rank) => rank.device_name).filter(Boolean))];
  const facts = [
    ["From", info.source ?? analysis.source],
    ["Command", info.command?.length ? info.command.join(" ") : null],
    ["Ended with", info.exit_status === null || info.exit_status === undefined ? null : `status ${info.exit_status}`],
    ["Began", beganAt(info.origin_ns)],
    ["GPUs", gpus.length ? `${format.count(analysis.ranks.length)}: ${gpus.join(", ")}` : null],
    ["Hosts", info.hosts?.filter(Boolean).length ? info.hosts.filter(Boolean).join(", ") : null],
  ].filter(([, value]) => value);
  return section(
    "The recording",
    analysis.device === "sim"
      ? "No GPU was used: times on the device come from a model."
      : analysis.device === "imported"
        ? "Imported from another tool's trace."
        : null,
    h(
      "dl",
      { class: "p-facts" },
      facts.map(([name, value]) => [h("dt", null, name), h("dd", null, format.middle(String(value), 300))]),
    ),
  );
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context */
function hangs(analysis, context) {
  if (!analysis.hangs.length) return null;
  return section(
    "Hangs",
    "Operations in which ranks waited, and that never ended.",
    h(
      "ul",
      { class: "p-list" },
      analysis.hangs.map((hang) => {
        const since = Math.min(...hang.waiting.map((one) => one.since_ns));
        return h(
          "li",
          { class: "p-loss" },
          h("strong", null, `${hang.name}${hang.sequence === null ? "" : ` #${hang.sequence}`} on ${hang.communicator_name ?? hang.communicator}`),
          ` nothing ended for ${format.time(hang.silent_ns)}; waiting: rank ${hang.waiting.map((one) => one.rank).join(", ")}`,
          hang.follows ? h("span", { class: "p-quiet" }, " (follows from another hang)") : null,
          " ",
          Number.isFinite(since)
            ? h(
                "button",
                {
                  type: "button",
                  class: "p-link",
                  onclick: () => context.goTo({ from: since, to: Math.max(since + 1, hang.noticed_ns), rank: hang.waiting[0]?.rank ?? undefined }),
                },
                "Show",
              )
            : null,
          h(
            "ul",
            { class: "p-list" },
            hang.absent.map((one) => h("li", null, `rank ${one.rank ?? "?"} ${one.text}`)),
          ),
        );
      }),
    ),
  );
}

/**
 * How the GPUs of a host are joined, as `nvidia-smi topo -m` writes it: NVLinks, or else the way over PCIe.
 * @param {any} host
 * @returns {{headings: string[], rows: {gpu: any, ways: (string | null)[]}[]}} ways: by heading, null from a GPU to itself
 */
export function matrix(host) {
  const pairs = new Map(host.pairs.map((/** @type {any} */ pair) => [`${pair.a} ${pair.b}`, pair]));
  const between = (/** @type {number} */ a, /** @type {number} */ b) => {
    const pair = pairs.get(`${Math.min(a, b)} ${Math.max(a, b)}`);
    return pair?.nvlinks > 0 ? `NV${pair.nvlinks}` : pair?.way ?? format.NONE;
  };
  return {
    headings: [...host.gpus.map((/** @type {any} */ gpu) => `GPU ${gpu.index}`), ...host.nics.map((/** @type {any} */ nic) => nic.name)],
    rows: host.gpus.map((/** @type {any} */ gpu) => ({ gpu, ways: [
      ...host.gpus.map((/** @type {any} */ other) => (other.index === gpu.index ? null : between(gpu.index, other.index))),
      ...host.nics.map((/** @type {any} */ nic) => nic.ways.find((/** @type {[number, string]} */ [index]) => index === gpu.index)?.[1] ?? format.NONE),
    ] })),
  };
}

/** What stands between devices, in words. @param {string} way */
function inWords(way) {
  const links = /^NV(\d+)$/.exec(way);
  if (links) return `${links[1]} NVLinks`;
  /** @type {Record<string, string>} */
  const words = {
    PIX: "PCIe, one bridge at most",
    PXB: "PCIe, several bridges",
    PHB: "PCIe, over the host bridge",
    NODE: "PCIe, host bridges of one NUMA node",
    SYS: "PCIe, over the link between NUMA nodes",
  };
  return words[way] ?? "not known";
}

/** How the GPUs are joined, where the recording says it. @param {any} info */
function topology(info) {
  const hosts = (info.topology ?? []).filter((/** @type {any} */ host) => host.gpus.length);
  if (!hosts.length) return null;
  const of = hosts.map((/** @type {any} */ host) => {
    const { headings, rows } = matrix(host);
    const used = new Set(rows.flatMap((row) => row.ways).filter((way) => way !== null));
    const list = table({
      name: `topology-${host.host}`,
      plain: true,
      rows,
      columns: [
        {
          key: "gpu",
          title: "",
          value: (row) => row.gpu.index,
          cell: (row) => h("span", { title: [row.gpu.name, row.gpu.pci].filter(Boolean).join(", ") }, `GPU ${row.gpu.index}`),
        },
        ...headings.map((title, place) => ({
          key: `to-${place}`,
          title,
          value: (/** @type {any} */ row) => row.ways[place] ?? "",
          cell: (/** @type {any} */ row) =>
            row.ways[place] === null
              ? h("span", { class: "p-quiet", title: "itself" }, "\u00b7")
              : h("span", { title: inWords(row.ways[place]) }, row.ways[place]),
        })),
        { key: "numa", title: "NUMA node", number: true, value: (row) => row.gpu.numa_node ?? null },
        {
          key: "nvlinks",
          title: "NVLinks",
          value: (row) => row.gpu.nvlinks,
          text: (row) =>
            row.gpu.nvlinks > 0 && row.gpu.nvlink_generation ? `${row.gpu.nvlinks} of generation ${row.gpu.nvlink_generation}` : String(row.gpu.nvlinks),
        },
        {
          key: "pcie",
          title: "PCIe",
          wide: true,
          value: (row) => row.gpu.pcie_generation ?? null,
          text: (row) => (row.gpu.pcie_generation ? `generation ${row.gpu.pcie_generation}, ${row.gpu.pcie_lanes ?? "?"} lanes` : format.NONE),
        },
      ],
    });
    const refused = host.pairs.filter((/** @type {any} */ pair) =>
      pair.peer_access.some((/** @type {[string, string]} */ [kind, allowed]) => kind === "read" && allowed !== "ok"),
    );
    return h(
      "div",
      null,
      hosts.length > 1 ? h("h3", null, host.host) : null,
      list.element,
      h("p", { class: "p-quiet" }, [...used].map((way) => `${way}: ${inWords(way)}`).join("; ")),
      refused.length
        ? h(
            "p",
            { class: "p-loss" },
            `No access to each other's memory: ${refused
              .slice(0, 8)
              .map((/** @type {any} */ pair) => `GPU ${pair.a} and ${pair.b}`)
              .join(", ")}${refused.length > 8 ? ` and ${refused.length - 8} more` : ""}`,
          )
        : null,
    );
  });
  return section("Topology", "How the GPUs of a host, and its network cards, are joined.", of);
}

/**
 * Mean, and least and greatest below it where they differ.
 * @param {any} value
 * @param {(value: number) => string} write
 */
function sampled(value, write) {
  if (!value) return format.NONE;
  return h(
    "span",
    { title: `${format.count(value.count)} samples` },
    write(value.mean),
    value.max > value.min ? h("small", { class: "p-range" }, `${write(value.min)} to ${write(value.max)}`) : null,
  );
}

/** Counters worth a column, first those that people look for. */
const COLUMNS = [
  "gpu_utilization_percent",
  "memory_utilization_percent",
  "memory_used_bytes",
  "power_watts",
  "temperature_celsius",
  "sm_clock_mhz",
  "memory_clock_mhz",
  "nvlink_sent_bytes_per_second",
  "nvlink_received_bytes_per_second",
  "pcie_sent_bytes_per_second",
  "pcie_received_bytes_per_second",
  "ecc_corrected_errors",
  "ecc_uncorrected_errors",
];

/** @param {import("../../types/analysis.js").Analysis} analysis @param {Record<string, any>} keep */
function deviceTable(analysis, keep) {
  const rows = analysis.device_state;
  const several = format.severalDevices(analysis);
  if (!rows.length) {
    const listed = table({
      name: "gpus",
      plain: analysis.ranks.length < 9,
      rows: analysis.ranks,
      columns: [
        { key: "rank", title: "Rank", value: (rank) => rank.rank ?? rank.device_index, text: (rank) => format.place(rank, several) },
        { key: "device_index", title: "GPU", number: true, value: (rank) => rank.device_index },
        { key: "device_name", title: "Name", value: (rank) => rank.device_name },
        { key: "host", title: "Host", wide: true, value: (rank) => rank.host || null },
      ],
    });
    return section(
      "GPUs",
      analysis.device === "imported" ? "Imported traces have no samples of clocks, power and memory." : "Nothing was sampled.",
      analysis.ranks.length ? listed.element : null,
    );
  }
  keep.devices ??= {};
  const used = COLUMNS.filter((name) => rows.some((/** @type {any} */ row) => row.values[name]));
  const others = [...new Set(rows.flatMap((/** @type {any} */ row) => Object.keys(row.values)))].filter(
    (name) => !COLUMNS.includes(name) && name !== "throttle_reasons",
  );
  const list = table({
    name: "device-state",
    keep: keep.devices,
    plain: rows.length < 9,
    rows,
    search: (row) => `${row.host} ${row.name} ${row.index} ${row.ranks.map((/** @type {number} */ rank) => `rank ${rank}`).join(" ")}`,
    columns: [
      {
        key: "index",
        title: "GPU",
        value: (row) => `${row.host} ${row.index}`,
        text: (row) => `GPU ${row.index}`,
        cell: (row) => h("span", { title: `${row.name} on ${row.host}` }, `GPU ${row.index}`),
      },
      { key: "ranks", title: "Ranks", value: (row) => row.ranks.join(" "), text: (row) => row.ranks.join(", ") || format.NONE },
      { key: "name", title: "Name", spare: 2, value: (row) => row.name },
      { key: "host", title: "Host", spare: 3, value: (row) => row.host },
      {
        key: "throttled",
        title: "Throttled",
        hint: "Share of the samples in which the clock was held down, by reason",
        value: (row) => Math.max(0, ...Object.values(row.throttled)),
        fixed: true,
        cell: (row) => {
          const reasons = Object.entries(row.throttled).filter(([, share]) => /** @type {number} */ (share) > 0);
          return reasons.length
            ? h(
                "span",
                { class: "p-warned" },
                reasons.map(([why, share]) => `${why.replaceAll("_", " ")} ${format.percent(/** @type {number} */ (share))}`).join(", "),
                row.throttled_clock_mhz ? ` at ${format.digits(row.throttled_clock_mhz)} MHz` : "",
              )
            : h("span", { class: "p-faint" }, "no");
        },
      },
      ...[...used, ...others].map((name, index) => {
        const { title, write } = counterTitle(String(name));
        return { key: `${name}_mean`, title, number: true, spare: /** @type {1 | 2 | 3} */ (index < 2 ? undefined : index < 6 ? 2 : 3),
          value: (/** @type {any} */ row) => row.values[name]?.mean, cell: (/** @type {any} */ row) => sampled(row.values[name], write) };
      }),
    ],
  });
  return section("GPUs as they were sampled", "Means over the run, from its first operation to its last; least and greatest below.", list.element);
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {Record<string, any>} keep */
function hostTables(analysis, keep) {
  if (!analysis.host_state.length) return null;
  const names = [...new Set(analysis.host_state.flatMap((/** @type {any} */ row) => Object.keys(row.values)))];
  keep.threads ??= {};
  const processes = table({
    name: "host-state",
    plain: analysis.host_state.length < 9,
    rows: analysis.host_state,
    columns: [
      { key: "rank", title: "Process", value: (row) => row.rank ?? row.pid, text: (row) => (row.rank === null ? `process ${row.pid}` : `rank ${row.rank}`) },
      { key: "host", title: "Host", spare: 2, value: (row) => row.host },
      { key: "pid", title: "Process id", number: true, spare: 3, value: (row) => row.pid },
      ...names.map((name) => {
        const { title, write } = counterTitle(String(name));
        return {
          key: `${name}_mean`,
          title,
          number: true,
          value: (/** @type {any} */ row) => row.values[name]?.mean,
          cell: (/** @type {any} */ row) => sampled(row.values[name], write),
        };
      }),
    ],
  });
  const rows = analysis.host_state.flatMap((/** @type {any} */ process) => process.threads.map((/** @type {any} */ thread) => ({ process, thread })));
  const threadNames = [...new Set(rows.flatMap((/** @type {any} */ row) => Object.keys(row.thread.values)))];
  const threads = table({
    name: "threads",
    keep: keep.threads,
    rows,
    sort: { key: "cpu_cores_mean", descending: true },
    search: (row) => `${row.thread.name} rank ${row.process.rank} ${row.thread.thread}`,
    columns: [
      {
        key: "name",
        title: "Thread",
        value: (row) => row.thread.name,
        cell: (row) =>
          h("span", null, row.thread.name || `thread ${row.thread.thread}`, row.thread.launches ? h("span", { class: "p-badge" }, "launches") : null),
      },
      {
        key: "rank",
        title: "Process",
        value: (row) => row.process.rank ?? row.process.pid,
        text: (row) => (row.process.rank === null ? `process ${row.process.pid}` : `rank ${row.process.rank}`),
      },
      ...threadNames.map((name, index) => {
        const { title, write } = counterTitle(String(name));
        return {
          key: `${name}_mean`,
          title,
          number: true,
          spare: /** @type {2 | 3 | undefined} */ (index < 2 ? undefined : 3),
          value: (/** @type {any} */ row) => row.thread.values[name]?.mean,
          cell: (/** @type {any} */ row) => sampled(row.thread.values[name], write),
        };
      }),
    ],
  });
  return [
    section("Processes", null, processes.element),
    rows.length
      ? section("Threads", "The busiest of each process. A thread that launches and waits for a processor holds the GPU up.", threads.element)
      : null,
  ];
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {Record<string, any>} keep */
function cost(analysis, keep) {
  const over = analysis.recording_overhead;
  const rows = analysis.recording_cost;
  if (!over && !rows.length) return null;
  keep.cost ??= {};
  const list = rows.length
    ? table({
        name: "recording-cost",
        keep: keep.cost,
        plain: rows.length < 9,
        rows,
        columns: [
          {
            key: "rank",
            title: "Process",
            value: (row) => row.rank ?? row.pid,
            text: (row) => (row.rank === null ? `process ${row.pid}` : `rank ${row.rank}`),
          },
          {
            key: "own_cpu_share",
            title: "Own threads",
            number: true,
            hint: "CPU time of the collector's own threads, over the run: the share of one core",
            value: (row) => row.own_cpu_share,
            text: (row) => format.percent(row.own_cpu_share),
          },
          {
            key: "callback_share",
            title: "In the program",
            number: true,
            hint: "Time of the program's threads inside the collector, over the run",
            value: (row) => row.callback_share,
            text: (row) => format.percent(row.callback_share),
          },
          { key: "rows", title: "Rows", number: true, value: (row) => row.rows, text: (row) => format.count(row.rows) },
          { key: "bytes_written", title: "Written", number: true, value: (row) => row.bytes_written, text: (row) => format.bytes(row.bytes_written) },
          {
            key: "bytes_per_row",
            title: "a row",
            number: true,
            spare: 2,
            value: (row) => row.bytes_per_row,
            text: (row) => format.bytes(row.bytes_per_row),
          },
          {
            key: "own_cpu_ns_per_row",
            title: "CPU a row",
            number: true,
            spare: 2,
            value: (row) => row.own_cpu_ns_per_row,
            text: (row) => format.time(row.own_cpu_ns_per_row),
          },
          {
            key: "peak_memory_bytes",
            title: "Memory, most",
            number: true,
            value: (row) => row.peak_memory_bytes,
            text: (row) => format.bytes(row.peak_memory_bytes),
          },
          {
            key: "longest_flush_ns",
            title: "Longest flush",
            number: true,
            spare: 3,
            value: (row) => row.longest_flush_ns,
            text: (row) => format.time(row.longest_flush_ns),
          },
          {
            key: "buffers_refused",
            title: "Refused buffers",
            number: true,
            spare: 3,
            value: (row) => row.buffers_refused,
            text: (row) => format.count(row.buffers_refused),
          },
        ],
      }).element
    : null;
  const added = over
    ? h(
        "p",
        null,
        "Recording added ",
        h("strong", null, format.percent(over.relative)),
        ` to a step (${format.time(over.difference_ns)} of ${format.time(over.step_off_ns)}; with 95 % confidence between ` +
          `${format.percent(over.relative_low)} and ${format.percent(over.relative_high)}, over ${format.count(over.blocks)} blocks of steps).`,
      )
    : null;
  return section("What recording cost", null, added, list);
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context */
function unfinished(analysis, context) {
  const rows = analysis.unfinished;
  if (!rows.length) return null;
  const fine = resolution(analysis);
  const list = table({
    name: "unfinished",
    rows,
    sort: { key: "start_ns", descending: false },
    search: (row) => `${row.what} ${row.name ?? ""} rank ${row.rank}`,
    openHint: () => "Show it on the timeline",
    open: (row) =>
      context.goTo({
        from: row.start_ns,
        to: row.start_ns + Math.max(1, row.at_least_ns),
        rank: row.rank ?? undefined,
        device: row.device_index ?? undefined,
      }),
    columns: [
      { key: "start_ns", title: "Began", number: true, value: (row) => row.start_ns, text: (row) => format.moment(row.start_ns, fine) },
      { key: "rank", title: "Rank", value: (row) => row.rank, text: (row) => (row.rank === null ? format.NONE : `rank ${row.rank}`) },
      { key: "what", title: "What", value: (row) => row.what },
      { key: "name", title: "Name", wide: true, value: (row) => row.name },
      { key: "at_least_ns", title: "For at least", number: true, value: (row) => row.at_least_ns, text: (row) => format.time(row.at_least_ns) },
    ],
  });
  return section("Not finished when the recording ended", "No part of any time.", list.element);
}

