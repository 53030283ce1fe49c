// @ts-check
/** The jobs that a daemon watches: their list, and the page of one, live. */

import { h, replace } from "./dom.js";
import * as format from "./format.js";
import { legend, lines } from "./charts.js";
import { failed, section } from "./panels/shared.js";
import { table } from "./table.js";
import { href } from "./url.js";

/** The daemon hears of a step half a second behind it at the latest: so it is here within two seconds, also where an answer takes a while. */
const AGAIN_MS = 500;
/** A page that nobody sees is kept less fresh. */
const HIDDEN_MS = 10_000;
const MINUTE_NS = 60e9;
/** The shortest and longest steps of a minute are drawn up to so many times the longest mean. */
const BAND = 3;

/** @param {number} ns since 1970 */
const clock = (ns) => new Date(ns / 1e6).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
/** @param {number} ns since 1970 */
const moment = (ns) => new Date(ns / 1e6).toLocaleString();

/**
 * Moments of a stretch of time that read well, about `wanted` of them: whole minutes and hours where it is.
 * @param {[number, number]} span ns since 1970
 * @param {number} wanted
 * @returns {number[]}
 */
export function clockTicks([from, to], wanted) {
  const step = ([1, 2, 5, 10, 15, 30, 60, 120, 180, 240, 360].find((minutes) => (to - from) / (minutes * MINUTE_NS) <= wanted) ?? 720) * MINUTE_NS;
  const zone = new Date(from / 1e6).getTimezoneOffset() * MINUTE_NS;
  const ticks = [];
  for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) ticks.push(at);
  return ticks;
}

/** @param {any} state */
function stateOf(state) {
  if (state === "running") return h("span", { class: "p-live" }, "running");
  return h("span", { class: ["hung", "died"].includes(state) ? "p-bad" : "p-faint" }, state);
}

/**
 * The list of jobs, above that of recordings.
 * @param {{api: any, openJob: (job: string) => void}} context
 */
export function jobList({ api, openJob }) {
  let last = "";
  const list = table({
    name: "jobs",
    rows: /** @type {any[]} */ ([]),
    plain: true,
    sort: { key: "started_ns", descending: true },
    empty: "No job has joined yet: `gputrace env --shell` says how jobs come to be watched.",
    openHint: (job) => `Show ${job.job}`,
    open: (job) => openJob(job.job),
    columns: [
      { key: "job", title: "Job", value: (job) => job.job, cell: (job) => h("strong", { class: "p-name" }, job.job) },
      { key: "state", title: "State", value: (job) => job.state, cell: (job) => stateOf(job.state) },
      { key: "user", title: "User", spare: 2, value: (job) => job.user },
      { key: "ranks", title: "Ranks", number: true, value: (job) => job.joined, text: (job) => `${job.joined} of ${job.world_size ?? job.ranks}` },
      { key: "steps", title: "Steps", number: true, spare: 1, value: (job) => job.steps, text: (job) => format.count(job.steps) },
      { key: "step_ns", title: "Step", number: true, value: (job) => job.step_ns, text: (job) => format.time(job.step_ns) },
      {
        key: "step_before_ns", title: "Before", number: true, spare: 2, hint: "Before the last change for good",
        value: (job) => job.step_before_ns,
        text: (job) => format.time(job.step_before_ns),
      },
      { key: "finding", title: "Found last", wide: true, value: (job) => job.finding, text: (job) => job.finding ?? format.NONE },
      { key: "started_ns", title: "Since", number: true, spare: 2, value: (job) => job.started_ns, text: (job) => clock(job.started_ns) },
    ],
  });
  const trouble = h("div", null);
  const element = h("section", { class: "p-section" }, h("header", { class: "p-head" }, h("h1", null, "Jobs")), trouble, list.element);
  return {
    element,
    async look() {
      try {
        const { jobs } = await api.json("jobs");
        replace(trouble);
        const now = JSON.stringify(jobs);
        if (now !== last && !element.contains(document.activeElement?.closest("tbody") ?? null)) {
          last = now;
          list.setRows(jobs);
        }
      } catch (error) {
        replace(trouble, failed(error, () => this.look(), "Jobs"));
      }
    },
  };
}

/**
 * What was found of a job and what changed for good, in the order of time.
 * @param {any} job
 * @returns {{time_ns: number, what: string, step: number | null, title: string, recording: string | null, change: boolean}[]}
 */
export function events(job) {
  const changes = job.changes.map((/** @type {any} */ { time_ns, step, before_ns, after_ns }) => ({
    time_ns, what: "change", step, recording: null, change: true,
    title: `${format.time(before_ns)} a step before, ${format.time(after_ns)} from here on`,
  }));
  const found = job.findings.map((/** @type {any} */ { time_ns, trigger, step, title, recording }) => ({
    time_ns, what: trigger, step, title, recording, change: false,
  }));
  return [...changes, ...found].sort((a, b) => a.time_ns - b.time_ns);
}

/** @typedef {import("./charts.js").LinesOptions} LinesOptions */

/**
 * The charts of a job: a day by minutes, and the last steps one by one.
 * @param {(recording: string) => void} open
 */
function charts(open) {
  /** @param {Partial<LinesOptions> & {label: string, title: string}} more @returns {LinesOptions} */
  const options = (more) => ({ series: [], span: [0, 1], format: format.time, time: clock, height: 150, ...more });
  /** @type {LinesOptions} */
  const day = options({ label: "Step time by minute", title: "Step time by minute: mean, and from the shortest to the longest", ticks: clockTicks });
  /** @type {LinesOptions} */
  const parts = options({
    label: "Exposed communication and the latest rank by minute",
    title: "A step, on average",
    height: 110,
    ticks: clockTicks,
  });
  const inStep = (/** @type {number} */ number) => (Number.isInteger(number) ? `step ${format.count(number)}` : "");
  /** @type {LinesOptions} */
  const recent = options({
    label: "The last steps",
    title: "The last steps, one by one",
    time: (at) => inStep(Math.floor(at)),
    axis: (at) => (Number.isInteger(at) ? String(at) : ""),
  });
  const all = [day, parts, recent].map((one) => ({ options: one, chart: lines(one) }));
  const marks = (/** @type {any[]} */ list, /** @type {(event: any) => number} */ at) => list.map((event) => ({
    at: at(event), change: event.change, title: `${event.what}: ${event.title}`,
    open: event.recording ? () => open(event.recording) : undefined,
  }));
  const colours = { step: "var(--series-1)", exposed: "var(--series-2)", late: "var(--series-7)" };
  return {
    elements: [
      legend([
        { title: "step time, by the slowest rank", colour: colours.step },
        { title: "exposed communication", colour: colours.exposed, hint: "Of the median rank; where kernels are recorded" },
        { title: "how late the latest rank is", colour: colours.late, hint: "For so long the others wait for it" },
      ]),
      ...all.map(({ chart }) => chart.element),
    ],
    /** @param {any} job */
    show(job) {
      const { minutes, recent: steps } = job;
      const list = events(job);
      const first = minutes[0]?.start_ns ?? 0;
      /** @type {[number, number]} */
      const span = [first, Math.max(first, minutes.at(-1)?.start_ns ?? 0) + MINUTE_NS];
      const points = (/** @type {any[]} */ of, /** @type {(one: any) => number} */ at, /** @type {(one: any) => number | null} */ value) =>
        of.filter((one) => typeof value(one) === "number").map((one) => /** @type {[number, number]} */ ([at(one), value(one)]));
      const byMinute = (/** @type {(one: any) => number | null} */ value) => points(minutes, (one) => one.start_ns, value);
      const means = byMinute((one) => one.sum_ns / one.steps);
      // One long step is not to make a line of the floor of all others.
      const highest = BAND * means.reduce((most, [, mean]) => Math.max(most, mean), 0);
      const minuteAt = (/** @type {number} */ at) =>
        minutes.find((/** @type {any} */ one) => one.start_ns === Math.floor(at / MINUTE_NS) * MINUTE_NS);
      Object.assign(day, {
        span,
        series: [{
          name: "step time", colour: colours.step, points: means,
          band: minutes.flatMap((/** @type {any} */ { start_ns, least_ns, most_ns }) =>
            [start_ns, start_ns + MINUTE_NS].map((at) => [at, least_ns, Math.min(most_ns, highest)])),
        }],
        note: (/** @type {number} */ at) => {
          const one = minuteAt(at);
          return one && `${format.time(one.least_ns)} to ${format.time(one.most_ns)} in ${format.count(one.steps)} steps`;
        },
        marks: marks(list.filter((event) => event.time_ns >= span[0] - MINUTE_NS), (event) => event.time_ns),
      });
      Object.assign(parts, {
        span,
        series: [
          { name: "exposed", colour: colours.exposed, points: byMinute((one) => one.exposed_ns) },
          { name: "latest rank", colour: colours.late, points: byMinute((one) => one.late_ns) },
        ].filter(({ points }) => points.length),
        note: (/** @type {number} */ at) => {
          const rank = minuteAt(at)?.latest_rank;
          return typeof rank === "number" ? `mostly rank ${rank}` : undefined;
        },
      });
      const number = (/** @type {any} */ one) => one.number;
      const lateness = (/** @type {any} */ one) => {
        const known = Object.values(one.late_ns).filter((late) => typeof late === "number");
        return known.length ? Math.max(...known) : null;
      };
      // Numbers may begin anew, as those of a second training do.
      const begin = steps.findLastIndex((/** @type {any} */ one, /** @type {number} */ at) => at > 0 && one.number < steps[at - 1].number);
      const row = steps.slice(Math.max(0, begin));
      const from = row[0]?.number ?? 0;
      const to = (row.at(-1)?.number ?? 0) + 1;
      Object.assign(recent, {
        span: [from, to],
        series: [
          { name: "step time", colour: colours.step, points: points(row, number, (one) => one.step_ns) },
          { name: "exposed", colour: colours.exposed, points: points(row, number, (one) => one.exposed_ns) },
          { name: "latest rank", colour: colours.late, points: points(row, number, lateness) },
        ].filter(({ points }) => points.length),
        marks: marks(list.filter(({ step }) => step !== null && step >= from && step < to), ({ step }) => step),
        note: (/** @type {number} */ at) => {
          const one = row.findLast((/** @type {any} */ { number }) => number <= at);
          const late = one && lateness(one);
          const rank = late > 0 ? Object.keys(one.late_ns).find((rank) => one.late_ns[rank] === late) : undefined;
          const missing = one?.missing ? `${format.count(one.missing)} ranks did not tell in time` : "";
          return [rank !== undefined && `rank ${rank} is the latest`, missing].filter(Boolean).join("; ") || undefined;
        },
      });
      for (const { options, chart } of all) {
        chart.element.hidden = options.series.every(({ points }) => !points.length);
        chart.redraw();
      }
    },
  };
}

/** @param {any} job */
function words(job) {
  const before = typeof job.step_before_ns === "number" ? ` (before: ${format.time(job.step_before_ns)})` : "";
  return [
    `of ${job.user}, mode ${job.mode}`,
    `${job.joined} of ${job.world_size ?? job.ranks} ranks`,
    job.nodes > 1 ? `${format.count(job.nodes)} nodes` : "",
    `${format.count(job.steps)} steps`,
    `${format.time(job.step_ns)} a step${before}`,
    job.missing_reports ? `${format.count(job.missing_reports)} reports of ranks did not come in time` : "",
    job.lost_rows ? `${format.count(job.lost_rows)} rows lost` : "",
  ].filter(Boolean).join(", ");
}

/**
 * The page of one job.
 * @param {HTMLElement} container
 * @param {{api: any, id: string, leave: () => void}} context
 */
export function mountJob(container, { api, id, leave }) {
  container.classList.add("p-library");
  const open = (/** @type {string} */ recording) => void go(`captures/${recording}`);
  const drawn = charts(open);
  const state = h("span", null);
  const said = h("p", { class: "p-quiet" });
  const trouble = h("div", { role: "status" });
  const ring = h(
    "button",
    { class: "p-button", type: "button", title: "What its ring holds, as it grows", onclick: () => void go(`jobs/${id}`) },
    "Timeline",
  );
  /** Opens a recording of the daemon's. @param {string} name its path in the daemon's folder */
  async function go(name) {
    try {
      const { recordings } = await api.json("recordings");
      const one = recordings.find((/** @type {any} */ other) => other.name === name);
      if (one) location.assign(href({ rec: one.id }));
      else replace(trouble, h("p", { class: "p-bad" }, `${name} is not there any more.`));
    } catch (error) {
      replace(trouble, failed(error, () => void go(name), name));
    }
  }
  const found = table({
    name: "found",
    rows: /** @type {any[]} */ ([]),
    plain: true,
    sort: { key: "time_ns", descending: true },
    empty: "Nothing was found.",
    openHint: (event) => (event.recording ? `Open ${event.recording}` : "Nothing was kept of it"),
    open: (event) => event.recording && open(event.recording),
    rowClass: (event) => (event.recording ? null : "p-faint"),
    columns: [
      {
        key: "time_ns", title: "When",
        value: (event) => event.time_ns,
        cell: (event) => h("span", { title: moment(event.time_ns) }, clock(event.time_ns)),
      },
      { key: "what", title: "What", value: (event) => event.what },
      {
        key: "step", title: "Step", number: true, spare: 1,
        value: (event) => event.step,
        text: (event) => (event.step === null ? format.NONE : format.count(event.step)),
      },
      { key: "title", title: "Found", wide: true, value: (event) => event.title, cell: (event) => h("span", { title: event.title }, event.title) },
      { key: "recording", title: "Kept as", spare: 2, value: (event) => event.recording, text: (event) => event.recording ?? format.NONE },
    ],
  });
  const time = (/** @type {string} */ key, /** @type {string} */ title, /** @type {string} */ hint, /** @type {1 | 2 | 3 | undefined} */ spare) => ({
    key, title, hint, spare, number: true,
    value: (/** @type {any} */ one) => one.step?.[key], text: (/** @type {any} */ one) => format.time(one.step?.[key]),
  });
  const ranks = table({
    name: "ranks",
    rows: /** @type {any[]} */ ([]),
    plain: true,
    sort: { key: "rank", descending: false },
    columns: [
      { key: "rank", title: "Rank", number: true, value: (one) => one.rank },
      { key: "host", title: "Node", spare: 2, value: (one) => one.host },
      { key: "state", title: "State", value: (one) => one.state, cell: (one) => stateOf(one.state) },
      {
        key: "last_step", title: "Last step", number: true, spare: 1,
        value: (one) => one.last_step,
        text: (one) => (one.last_step === null ? format.NONE : format.count(one.last_step)),
      },
      time("duration_ns", "Time", "Of the last step", undefined),
      time("communication_ns", "Communication", "By NCCL", 1),
      time("late_ns", "Late", "The others waited for it for so long", undefined),
      time("compute_ns", "Compute", "Where kernels are recorded", 2),
      time("exposed_ns", "Exposed", "Where kernels are recorded", 2),
      time("idle_ns", "Idle", "Where kernels are recorded", 2),
      {
        key: "lost_rows", title: "Lost", number: true, spare: 2, hint: "Rows lost while recording",
        value: (one) => one.lost_rows,
        text: (one) => format.count(one.lost_rows),
      },
    ],
  });
  replace(
    container,
    h("header", { class: "p-head" },
      h("div", { class: "p-bar" }, h("h1", null, id), state, ring, h("button", { class: "p-button", type: "button", onclick: leave }, "All jobs")),
      said),
    trouble,
    section("Steps", null, drawn.elements),
    section("What was found", null, found.element),
    section("Ranks", null, ranks.element),
  );
  let last = "";
  let lastFound = "";
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const isUsed = (/** @type {HTMLElement} */ element) => element.contains(document.activeElement?.closest("tbody") ?? null);
  async function look() {
    clearTimeout(timer);
    try {
      const job = await api.json(`jobs/${encodeURIComponent(id)}`);
      replace(trouble);
      const now = JSON.stringify(job);
      if (now !== last) {
        last = now;
        document.title = `${job.job} – gputrace`;
        replace(state, stateOf(job.state));
        said.textContent = words(job);
        drawn.show(job);
        const list = events(job);
        const foundNow = JSON.stringify(list);
        // Rows that are made anew while one is clicked lose the click.
        if (foundNow !== lastFound && !isUsed(found.element)) {
          lastFound = foundNow;
          found.setRows(list);
        }
        if (!isUsed(ranks.element)) ranks.setRows(job.processes);
      }
    } catch (error) {
      replace(trouble, failed(error, look, "The job"));
    }
    timer = setTimeout(look, document.hidden ? HIDDEN_MS : AGAIN_MS);
  }
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) void look();
  });
  void look();
}
