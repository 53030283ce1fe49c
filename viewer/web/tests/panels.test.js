// @ts-check
import { close, deepEqual, equal, ok } from "./assert.js";
import { alike, mostChanged } from "../compare.js";
import { ago } from "../library.js";
import { fit } from "../palette.js";
import { relative } from "../panels/change.js";
import { ranges } from "../panels/collectives.js";
import { counterTitle } from "../panels/counters.js";
import { matrix } from "../panels/devices.js";
import { lateRank, leadOf, summary } from "../panels/findings.js";
import { lateBy } from "../panels/idle.js";
import { merged } from "../panels/kernels.js";
import { PARTS, meanParts } from "../panels/shared.js";
import { axisTop, bars } from "../panels/steps.js";

/** Measures of a step in which 50 compute, 20 of it with communication, 10 communicate alone, 5 copy alone, of 100. */
const measures = {
  busy_ns: 65,
  communication_ns: 30,
  communication_exposed_ns: 10,
  idle_ns: 30,
  overlap_ratio: 2 / 3,
  parts: { compute: 30, hidden: 20, exposed: 10, copies: 5, idle: 35 },
};

/** @param {any} more */
const rank = (more) => ({
  rank: 0,
  device_index: 0,
  span_ns: 100,
  idle_ratio: 0.35,
  idle_causes: { host_late: 30 },
  steps: [],
  step_summary: null,
  longest_gaps: [],
  ...measures,
  ...more,
});

/** @type {Record<string, () => void>} */
export const tests = {
  "the mean of steps has the mean of their parts"() {
    const parts = meanParts([measures.parts, { compute: 0, hidden: 0, exposed: 0, copies: 5, idle: 45 }]);
    deepEqual(parts, { compute: 15, hidden: 10, exposed: 5, copies: 5, idle: 40 });
    equal(PARTS.reduce((sum, part) => sum + parts[part.key], 0), 75);
  },
  "neighbours that share a bar keep the sum"() {
    const steps = Array.from({ length: 7 }, (_, index) => ({
      ...measures,
      name: `step ${index}`,
      duration_ns: 100 + index,
      parts: { ...measures.parts, idle: 35 + index },
      outlier: index === 3,
      start_ns: index,
      end_ns: index + 1,
    }));
    const three = bars(steps, 3);
    deepEqual(three.map((bar) => bar.count), [3, 3, 1]);
    deepEqual(three.map((bar) => bar.outliers), [0, 1, 0]);
    for (const bar of three) close(Object.values(bar.parts).reduce((a, b) => a + b, 0), bar.duration);
    equal(three[1].first.name, "step 3");
  },
  "between GPUs stand NVLinks or else the way over PCIe"() {
    const gpu = (/** @type {number} */ index) => ({ index, name: "GPU", nvlinks: 4 });
    const { headings, rows } = matrix({ host: "a", gpus: [gpu(0), gpu(1), gpu(3)], nics: [{ name: "mlx5_0", ways: [[0, "PIX"], [3, "SYS"]] }], pairs: [
      { a: 0, b: 1, way: "PXB", nvlinks: 4, peer_access: [] },
      { a: 1, b: 3, way: "NODE", nvlinks: 0, peer_access: [] },
    ] });
    deepEqual(headings, ["GPU 0", "GPU 1", "GPU 3", "mlx5_0"]);
    deepEqual(
      rows.map((/** @type {any} */ row) => row.ways),
      [
        [null, "NV4", "\u2013", "PIX"],
        ["NV4", null, "NODE", "\u2013"],
        ["\u2013", "NODE", null, "SYS"],
      ],
    );
  },
  "a slow first step does not flatten the others"() {
    equal(axisTop([1000, ...Array(19).fill(40)]), 68);
    equal(axisTop([60, 40, 41]), 60);
    equal(axisTop([]), 1);
  },
  "names that differ by a number are one"() {
    const rows = lateBy([
      { host_late_by: { "range: step 1": 5, "range: step 2": 6, "nothing recorded": 7, "call: cuMemcpyDtoHAsync_v2": 1 } },
    ]);
    deepEqual(
      rows.map((row) => [row.what, row.name, row.time, row.names]),
      [
        ["range", "step #", 11, 2],
        ["nothing recorded", "", 7, 1],
        ["call", "cuMemcpyDtoHAsync_v2", 1, 1],
      ],
    );
  },
  "kernels of all ranks sum, and shares sum to one"() {
    const kernel = {
      name: "k",
      kind: "compute",
      kind_reason: "",
      count: 2,
      total_ns: 10,
      min_ns: 4,
      max_ns: 6,
      p50_ns: 4,
      p99_ns: 6,
      occupancy: 0.5,
    };
    const [both, other] = merged([
      { kernels: [kernel] },
      {
        kernels: [
          { ...kernel, count: 1, total_ns: 20, min_ns: 20, max_ns: 20, occupancy: null },
          { ...kernel, kind: "copy", total_ns: 30 },
        ],
      },
    ]);
    deepEqual(
      [both.count, both.total_ns, both.mean_ns, both.min_ns, both.max_ns, both.p50_ns, both.occupancy, both.ranks],
      [3, 30, 10, 4, 20, null, 0.5, 2],
    );
    close(both.share + other.share, 1);
  },
  "ranks in a row are written as stretches"() {
    equal(ranges([0, 1, 2, 3, 7, 9, 8, 16, 17]), "0–3, 7–9, 16, 17");
    equal(ranges([]), "");
  },
  "findings lead to their places"() {
    const analysis = {
      ranks: [
        rank({
          steps: [
            { start_ns: 0, end_ns: 5, duration_ns: 5, parts: { exposed: 1 } },
            { start_ns: 5, end_ns: 14, duration_ns: 9, parts: { exposed: 3 } },
          ],
          longest_gaps: [
            { start_ns: 1, end_ns: 9, cause: "host_late" },
            { start_ns: 20, end_ns: 25, cause: "event_wait" },
          ],
        }),
      ],
      hangs: [],
    };
    const lead = (/** @type {string} */ code, /** @type {any} */ facts = {}) =>
      leadOf(/** @type {any} */ ({ code, facts, rank: 0, device_index: 0 }), /** @type {any} */ (analysis));
    equal(lead("exposed_communication").place?.from, 5);
    equal(lead("host_late").place?.to, 9);
    equal(lead("event_wait").place?.from, 20);
    equal(lead("peer_wait").place, undefined);
    equal(lead("uneven_steps").place?.to, 14);
    equal(lead("late_rank").late, 0);
    equal(lead("slow_copies", { direction: "HtoD" }).search, "Memcpy HtoD");
    equal(lead("pageable_copies").panel, "copies");
    equal(lead("something_new").panel, "steps");
  },
  "the summary weighs ranks by their spans"() {
    const all = summary(
      /** @type {any} */ ({
        findings: [],
        ranks: [
          rank({}),
          rank({
            rank: 1,
            span_ns: 300,
            busy_ns: 300,
            idle_ns: 0,
            idle_ratio: 0,
            idle_causes: {},
            parts: { ...measures.parts, compute: 265, idle: 0 },
          }),
        ],
        arrivals: [],
      }),
    );
    close(/** @type {number} */ (all.busy), 365 / 400);
    close(/** @type {number} */ (all.exposed), 20 / 400);
    close(/** @type {number} */ (all.overlap), 40 / 60);
    equal(all.leastBusy?.rank, 0);
    equal(all.cause?.key, "host_late");
    equal(all.late, null);
    equal(Object.values(all.parts).reduce((a, b) => a + b, 0), 400);
  },
  "a late rank stands out where the analysis finds so"() {
    const arrival = (/** @type {number} */ number, /** @type {number} */ last, /** @type {number} */ cost) => ({
      rank: number,
      device_index: number,
      collectives: 10,
      last_count: last,
      cost_ns: cost,
      wait_ns: 0,
      skew_ns: 0,
    });
    const of = (/** @type {any[]} */ arrivals, /** @type {any[]} */ findings) =>
      lateRank(/** @type {any} */ ({ ranks: [rank({})], arrivals, findings }));
    const found = { code: "late_rank", rank: 0, device_index: 0 };
    equal(of([arrival(0, 7, 20), arrival(1, 3, 1)], [found])?.standsOut, true);
    equal(of([arrival(0, 7, 20), arrival(1, 3, 1)], [{ ...found, rank: 1 }, { ...found, code: "hang" }])?.standsOut, false);
    equal(of([arrival(0, 7, 20)], [found]), null);
  },
  "letters find commands"() {
    ok(fit("Show the collectives", "coll") > fit("Copy a link to this view", "coll"));
    ok(fit("Zoom to the selection", "zts") > 0);
    ok(fit("Zoom", "q") < 0);
    equal(fit("Zoom", ""), 0);
  },
  "how long ago"() {
    equal(ago(0, 5000), "just now");
    equal(ago(0, 125_000), "2 min ago");
    equal(ago(0, 86400_000 * 3), "3 days ago");
  },
  "comparisons"() {
    equal(relative(0, 5), null);
    equal(relative(10, 5), -0.5);
    equal(alike({ name: "ddp-2" }, [{ name: "pp" }, { name: "ddp-1" }]).name, "ddp-1");
    equal(
      alike({ name: "x", device: "cuda" }, [
        { name: "a", device: "sim", modified_ms: 9 },
        { name: "b", device: "cuda", modified_ms: 1 },
        { name: "c", device: "cuda", modified_ms: 2 },
      ]).name,
      "c",
    );
  },
  "the step that changed most is looked at first, but for the warm-up"() {
    const row = (/** @type {number} */ place, /** @type {number} */ b) => ({ place, duration_a_ns: 10, duration_b_ns: b });
    equal(mostChanged([row(0, 100), row(1, 12), row(2, 5)]).place, 2);
    equal(mostChanged([row(0, 100)]).place, 0);
  },
  "counters have titles and units"() {
    equal(counterTitle("sm_clock_mhz").title, "SM clock");
    equal(counterTitle("gpu_utilization_percent").title, "GPU utilization");
    equal(counterTitle("pcie_sent_bytes_per_second").write(2e9).replaceAll("\u202f", " "), "2.00 GB/s");
  },
};
