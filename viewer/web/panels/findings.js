// @ts-check
/** From the analysis to sentences and numbers that answer first: what it costs, where it is. */

import { causeTitle, meanParts } from "./shared.js";

/**
 * Where something can be seen.
 * @typedef {{from: number, to: number, rank?: number, device?: number, what: string}} Place
 * @typedef {{place?: Place, panel: string, late?: number, search?: string}} Lead
 */

/** @typedef {import("../../types/analysis.js").Analysis} Analysis */
/** @typedef {import("../../types/analysis.js").Finding} Finding */
/** @typedef {import("../../types/analysis.js").RankAnalysis} Rank */

/** Where each finding leads, by its code. @type {Record<Finding["code"], (finding: Finding, analysis: Analysis) => Lead>} */
const LEADS = {
  hang: (finding, analysis) => ({ panel: "devices", place: hangPlace(finding, analysis) }),
  exposed_communication: (finding, analysis) => ({
    panel: "steps",
    place: worstStep(finding, analysis, (step) => step.parts.exposed, "the step with most of it", true),
  }),
  host_late: (finding, analysis) => ({ panel: "idle", place: longestGap(finding, analysis, "host_late") }),
  event_wait: (finding, analysis) => ({ panel: "idle", place: longestGap(finding, analysis, "event_wait") }),
  peer_wait: (finding, analysis) => ({ panel: "idle", place: longestGap(finding, analysis, "peer_wait") }),
  queue_full: (finding, analysis) => ({ panel: "idle", place: longestGap(finding, analysis, "queue_full") }),
  nothing_submitted: (finding, analysis) => ({ panel: "idle", place: longestGap(finding, analysis, "nothing_submitted") }),
  short_kernels: (finding, analysis) => ({ panel: "kernels", place: longestGap(finding, analysis, null) }),
  slow_copies: (finding) => ({ panel: "copies", search: finding.code === "slow_copies" ? `Memcpy ${finding.facts.direction}` : "Memcpy" }),
  pageable_copies: () => ({ panel: "copies", search: "Pageable" }),
  uneven_compute: (finding, analysis) => ({
    panel: "steps",
    place: worstStep(finding, analysis, (step) => step.compute_ns, "its step with most compute", true),
  }),
  uneven_steps: (finding, analysis) => ({
    panel: "steps",
    place: worstStep(finding, analysis, (step) => step.duration_ns, "the longest step"),
  }),
  slow_rank: (finding) => ({ panel: "collectives", place: causePlace(finding), late: finding.rank ?? undefined }),
  slow_communicator: () => ({ panel: "collectives" }),
  uneven_work: (finding, analysis) => ({
    panel: "steps",
    place: causePlace(finding) ?? worstStep(finding, analysis, (step) => step.compute_ns, "its step with most compute", true),
  }),
  synchronization: (finding, analysis) => ({ panel: "idle", place: causePlace(finding) ?? longestGap(finding, analysis, null) }),
  small_collectives: (finding) => ({ panel: "collectives", place: causePlace(finding) }),
  late_start: (finding) => ({ panel: "collectives", place: causePlace(finding), late: finding.rank ?? undefined }),
  late_rank: (finding) => ({ panel: "collectives", late: finding.rank ?? undefined }),
  slow_product: operatorsLead,
  tf32_off: operatorsLead,
  recomputation: operatorsLead,
  copies_and_casts: operatorsLead,
  elementwise_chains: operatorsLead,
  optimizer_loop: operatorsLead,
  launch_bound_modules: operatorsLead,
  clock_held_down: () => ({ panel: "devices" }),
  starved_thread: () => ({ panel: "devices" }),
  disk_faults: () => ({ panel: "devices" }),
};

/**
 * Where a finding leads: a place on the timeline, and the panel that tells more.
 * @param {Finding} finding
 * @param {Analysis} analysis
 * @returns {Lead}
 */
export function leadOf(finding, analysis) {
  // A newer program's analysis may have findings that this page does not know.
  return LEADS[finding.code]?.(finding, analysis) ?? { panel: "steps" };
}

/** @param {Finding} finding @param {Analysis} analysis @returns {Rank[]} */
function ranksOf(finding, analysis) {
  const is = (/** @type {number | null} */ asked, /** @type {number | null} */ found) => asked === null || asked === found;
  return analysis.ranks.filter((rank) => is(finding.rank, rank.rank) && is(finding.device_index, rank.device_index));
}

/** What operators could do better. @param {Finding} finding @returns {Lead} */
function operatorsLead(finding) {
  return { panel: "operators", place: causePlace(finding) };
}

/** Where the cause of a finding is seen. @param {Finding} finding @returns {Place | undefined} */
function causePlace(finding) {
  const seen = finding.cause?.find((link) => link.start_ns !== null);
  if (!seen || seen.start_ns === null) return undefined;
  // As much of a step as it costs.
  const around = Math.max(finding.saves_per_step_ns ?? 0, 1_000_000);
  return { from: seen.start_ns, to: seen.start_ns + around, rank: seen.rank ?? undefined, what: "where it is worst" };
}

/**
 * The step with most of something; a `usual` one says more than the first, which warms up, or another outlier.
 * @param {Finding} finding
 * @param {Analysis} analysis
 * @param {(step: Rank["steps"][number]) => number} time
 * @param {string} what
 * @param {boolean} [usual]
 * @returns {Place | undefined}
 */
function worstStep(finding, analysis, time, what, usual = false) {
  let worst;
  for (const rank of ranksOf(finding, analysis)) {
    const some = usual ? rank.steps.filter((step) => !step.outlier) : rank.steps;
    for (const step of some.length > 0 ? some : rank.steps) if (!worst || time(step) > time(worst.step)) worst = { rank, step };
  }
  return worst && { from: worst.step.start_ns, to: worst.step.end_ns, rank: worst.rank.rank ?? undefined, device: worst.rank.device_index, what };
}

/** @param {Finding} finding @param {Analysis} analysis @param {string | null} cause @returns {Place | undefined} */
function longestGap(finding, analysis, cause) {
  let longest;
  for (const rank of ranksOf(finding, analysis)) {
    for (const gap of rank.longest_gaps) {
      if (cause && gap.cause !== cause) continue;
      if (!longest || gap.end_ns - gap.start_ns > longest.gap.end_ns - longest.gap.start_ns) longest = { rank, gap };
    }
  }
  return (
    longest && {
      from: longest.gap.start_ns,
      to: longest.gap.end_ns,
      rank: longest.rank.rank ?? undefined,
      device: longest.rank.device_index,
      what: "the longest gap",
    }
  );
}

/** @param {Finding} finding @param {Analysis} analysis @returns {Place | undefined} */
function hangPlace(finding, analysis) {
  const hang = analysis.hangs[0];
  if (!hang) return undefined;
  const since = Math.min(...hang.waiting.map((one) => one.since_ns));
  return Number.isFinite(since)
    ? { from: since, to: Math.max(hang.noticed_ns, since + 1), rank: finding.rank ?? undefined, what: "where it stands" }
    : undefined;
}

/**
 * Sums over devices, and who is worst: what the answer strip says.
 * @param {Analysis} analysis
 */
export function summary(analysis) {
  const { ranks } = analysis;
  const sum = { span: 0, busy: 0, communication: 0, idle: 0 };
  /** @type {Record<string, number>} */
  const causes = {};
  const parts = meanParts(ranks.map((rank) => rank.parts), 1);
  for (const rank of ranks) {
    sum.span += rank.span_ns;
    sum.busy += rank.busy_ns;
    sum.communication += rank.communication_ns;
    sum.idle += rank.idle_ns;
    for (const [cause, time] of Object.entries(rank.idle_causes)) causes[cause] = (causes[cause] ?? 0) + time;
  }
  const over = (/** @type {number} */ part, /** @type {number} */ whole) => (whole > 0 ? part / whole : null);
  const worst = (/** @type {(rank: Rank) => number | null} */ of) =>
    ranks.reduce(
      (/** @type {Rank | null} */ best, rank) =>
        of(rank) !== null && (!best || /** @type {number} */ (of(rank)) > /** @type {number} */ (of(best))) ? rank : best,
      null,
    );
  const mostIdle = worst((rank) => rank.idle_ratio);
  const cause = Object.entries(causes).sort((a, b) => b[1] - a[1])[0];
  return {
    span: Math.max(0, ...ranks.map((rank) => rank.span_ns)),
    busy: over(sum.busy, sum.span),
    leastBusy: mostIdle,
    exposed: over(parts.exposed, sum.span),
    mostExposed: worst((rank) => over(rank.communication_exposed_ns, rank.span_ns)),
    overlap: over(parts.hidden, sum.communication),
    leastOverlap: worst((rank) => (rank.overlap_ratio === null ? null : 1 - rank.overlap_ratio)),
    communication: sum.communication,
    idle: over(sum.idle, sum.span),
    cause: cause && cause[1] > 0 ? { key: cause[0], title: causeTitle(cause[0]), share: cause[1] / sum.idle } : null,
    parts,
    late: lateRank(analysis),
    steps: stepsOf(analysis),
  };
}

/** The rank whose lateness cost most, whether or not the analysis finds that it stands out. @param {Analysis} analysis */
export function lateRank(analysis) {
  const arrivals = analysis.arrivals.filter((one) => one.collectives > 0);
  if (arrivals.length < 2) return null;
  const most = arrivals.reduce((best, one) => (one.cost_ns > best.cost_ns ? one : best));
  const span = Math.max(1, ...analysis.ranks.map((rank) => rank.span_ns));
  const standsOut = analysis.findings.some(
    (finding) => finding.code === "late_rank" && finding.rank === most.rank && finding.device_index === most.device_index,
  );
  return { ...most, share: most.cost_ns / span, standsOut };
}

/** The job's step, with how many stand out on the rank where most do. @param {import("../../types/analysis.js").Analysis} analysis */
function stepsOf({ step, ranks }) {
  if (!step) return null;
  const outliers = ranks.map(({ step_summary: summary }) => (summary ? summary.outliers.length - summary.warm_up.length : 0));
  return { ...step, outlierCount: Math.max(...outliers) };
}
