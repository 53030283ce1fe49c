// @ts-check
/** From the analysis to sentences and numbers that answer first: what it costs, where it is. */

import { PARTS, causeTitle, partsOf } from "./shared.js";

/**
 * Where something can be seen.
 * @typedef {{from: number, to: number, rank?: number, device?: number, what: string}} Place
 * @typedef {{place?: Place, panel: string, late?: number, search?: string}} Lead
 */

/** What a finding's text begins with, and where it leads. @type {[RegExp, (finding: any, analysis: any) => Lead][]} */
const LEADS = [
  [/^Communication is not hidden/, (finding, analysis) => ({ panel: "steps", place: worstStep(finding, analysis, "communication_exposed_ns", "the step with most of it", true) })],
  [/^The GPU waits for the host/, (finding, analysis) => ({ panel: "idle", place: longestGap(finding, analysis, "host_late") })],
  [/^Streams wait for events/, (finding, analysis) => ({ panel: "idle", place: longestGap(finding, analysis, "event_wait") })],
  [/^The host waits for other ranks/, (finding, analysis) => ({ panel: "idle", place: longestGap(finding, analysis, "peer_wait") })],
  [/^Launches wait for room/, (finding, analysis) => ({ panel: "idle", place: longestGap(finding, analysis, "queue_full") })],
  [/^No thread submits/, (finding, analysis) => ({ panel: "idle", place: longestGap(finding, analysis, "nothing_submitted") })],
  [/^Most kernels are shorter/, (finding, analysis) => ({ panel: "kernels", place: longestGap(finding, analysis, null) })],
  [/^Copies /, () => ({ panel: "copies", search: "Memcpy" })],
  [/computes longer/, (finding, analysis) => ({ panel: "steps", place: worstStep(finding, analysis, "compute_ns", "its step with most compute", true) })],
  [/^Some steps take/, (finding, analysis) => ({ panel: "steps", place: worstStep(finding, analysis, "duration_ns", "the longest step") })],
  [/keeps the others waiting/, (finding) => ({ panel: "collectives", late: finding.rank })],
  [/clock is held down|waits for a processor|waits for pages/, () => ({ panel: "devices" })],
];

/**
 * Where a finding leads: a place on the timeline, and the panel that tells more.
 * @param {any} finding
 * @param {any} analysis
 * @returns {Lead}
 */
export function leadOf(finding, analysis) {
  const found = LEADS.find(([pattern]) => pattern.test(finding.text));
  return found ? found[1](finding, analysis) : { panel: finding.saves_ns === null ? "devices" : "steps", place: hangPlace(finding, analysis) };
}

/** @param {any} finding @param {any} analysis @returns {any[]} */
function ranksOf(finding, analysis) {
  return analysis.ranks.filter((/** @type {any} */ rank) => finding.rank === null || rank.rank === finding.rank);
}

/**
 * The step with most of something; a `usual` one says more than the first, which warms up, or another outlier.
 * @param {any} finding @param {any} analysis @param {string} measure @param {string} what @param {boolean} [usual] @returns {Place | undefined}
 */
function worstStep(finding, analysis, measure, what, usual = false) {
  let worst;
  for (const rank of ranksOf(finding, analysis)) {
    const some = usual ? rank.steps.filter((/** @type {any} */ step) => !step.outlier) : rank.steps;
    for (const step of some.length > 0 ? some : rank.steps) if (!worst || step[measure] > worst.step[measure]) worst = { rank, step };
  }
  return worst && { from: worst.step.start_ns, to: worst.step.end_ns, rank: worst.rank.rank ?? undefined, device: worst.rank.device_index, what };
}

/** @param {any} finding @param {any} analysis @param {string | null} cause @returns {Place | undefined} */
function longestGap(finding, analysis, cause) {
  let longest;
  for (const rank of ranksOf(finding, analysis)) {
    for (const gap of rank.longest_gaps) {
      if (cause && gap.cause !== cause) continue;
      if (!longest || gap.end_ns - gap.start_ns > longest.gap.end_ns - longest.gap.start_ns) longest = { rank, gap };
    }
  }
  return longest && { from: longest.gap.start_ns, to: longest.gap.end_ns, rank: longest.rank.rank ?? undefined, device: longest.rank.device_index, what: "the longest gap" };
}

/** @param {any} finding @param {any} analysis @returns {Place | undefined} */
function hangPlace(finding, analysis) {
  const hang = analysis.hangs?.[0];
  if (finding.saves_ns !== null || !hang) return undefined;
  const since = Math.min(...hang.waiting.map((/** @type {any} */ one) => one.since_ns));
  return Number.isFinite(since) ? { from: since, to: Math.max(hang.noticed_ns, since + 1), rank: finding.rank ?? undefined, what: "where it stands" } : undefined;
}

/**
 * Sums over devices, and who is worst: what the answer strip says.
 * @param {any} analysis
 */
export function summary(analysis) {
  const { ranks } = analysis;
  const sum = { span: 0, busy: 0, communication: 0, hidden: 0, exposed: 0, idle: 0 };
  /** @type {Record<string, number>} */
  const causes = {};
  const parts = Object.fromEntries(PARTS.map((part) => [part.key, 0]));
  for (const rank of ranks) {
    sum.span += rank.span_ns;
    sum.busy += rank.busy_ns;
    sum.communication += rank.communication_ns;
    sum.hidden += rank.communication_hidden_ns;
    sum.exposed += rank.communication_exposed_ns;
    sum.idle += rank.idle_ns;
    for (const [cause, time] of Object.entries(rank.idle_causes)) causes[cause] = (causes[cause] ?? 0) + time;
    for (const [key, time] of Object.entries(partsOf(rank, rank.span_ns))) parts[key] += time;
  }
  const over = (/** @type {number} */ part, /** @type {number} */ whole) => (whole > 0 ? part / whole : null);
  const worst = (/** @type {(rank: any) => number | null} */ of) => ranks.reduce((/** @type {any} */ best, /** @type {any} */ rank) => (of(rank) !== null && (!best || /** @type {number} */ (of(rank)) > /** @type {number} */ (of(best))) ? rank : best), null);
  const mostIdle = worst((rank) => rank.idle_ratio);
  const cause = Object.entries(causes).sort((a, b) => b[1] - a[1])[0];
  return {
    span: Math.max(0, ...ranks.map((/** @type {any} */ rank) => rank.span_ns)),
    busy: over(sum.busy, sum.span),
    leastBusy: mostIdle,
    exposed: over(sum.exposed, sum.span),
    mostExposed: worst((rank) => over(rank.communication_exposed_ns, rank.span_ns)),
    overlap: over(sum.hidden, sum.communication),
    leastOverlap: worst((rank) => (rank.overlap_ratio === null ? null : 1 - rank.overlap_ratio)),
    communication: sum.communication,
    idle: over(sum.idle, sum.span),
    cause: cause && cause[1] > 0 ? { key: cause[0], title: causeTitle(cause[0]), share: cause[1] / sum.idle } : null,
    parts,
    late: lateRank(analysis),
    steps: stepsOf(ranks),
  };
}

/** The rank whose lateness cost most, whether or not it stands out. @param {any} analysis */
export function lateRank(analysis) {
  const arrivals = (analysis.arrivals ?? []).filter((/** @type {any} */ one) => one.collectives > 0);
  if (arrivals.length < 2) return null;
  const most = arrivals.reduce((/** @type {any} */ best, /** @type {any} */ one) => (one.cost_ns > best.cost_ns ? one : best));
  const span = Math.max(1, ...analysis.ranks.map((/** @type {any} */ rank) => rank.span_ns));
  // The analyzer's own rule for its finding: mostly last, in five or more, for 1 % of the span.
  const standsOut = most.last_count > 0.6 * most.collectives && most.collectives >= 5 && most.cost_ns >= 0.01 * span;
  return { ...most, share: most.cost_ns / span, standsOut };
}

/** Steps of the rank that has most of them. @param {any[]} ranks */
function stepsOf(ranks) {
  const having = ranks.filter((rank) => rank.step_summary);
  if (!having.length) return null;
  const most = having.reduce((best, rank) => (rank.step_summary.count > best.step_summary.count ? rank : best));
  return { ...most.step_summary, outlierCount: Math.max(...having.map((rank) => rank.step_summary.outliers.length)) };
}
