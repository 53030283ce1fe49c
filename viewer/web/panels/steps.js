// @ts-check
/** Steps: what each is made of on each rank, and which stand out. */

import { axisBelow, axisLeft, box, frame, hatching, hideTip, legend, shareBar, showTip, tipLines } from "../charts.js";
import { h, svg } from "../dom.js";
import * as format from "../format.js";
import { linear } from "../scales.js";
import { table } from "../table.js";
import { PARTS, choice, chosenSteps, nothing, panel, meanParts, resolution, section, shareParts } from "./shared.js";
import { number, rangeLine } from "./step_choice.js";
import { ratesOf, utilization } from "./step_rates.js";

/** A bar is at least so wide, else neighbours share one. */
const LEAST_BAR = 4;

export const steps = panel("steps", "Steps", (analysis, context, keep, redraw) => {
  if (!analysis.ranks.length) return nothing("No rank ran anything on a GPU.");
  const having = analysis.ranks.filter((rank) => rank.steps.length);
  return [
    having.length
      ? chartSection(having, analysis, context, keep, redraw)
      : nothing("This recording has no steps.", 'Name them with ranges (NVTX, record_function) like "step 12", and each gets a bar here.'),
    rankSection(analysis, context),
    measureSection(analysis, context),
    having.length ? stepTable(having, analysis, context, keep) : null,
  ];
});

/**
 * Steps put together, so that every bar has its width: means of neighbours.
 * @param {any[]} all steps of a rank
 * @param {number} every how many are one bar
 * @returns {{first: any, last: any, count: number, duration: number, parts: import("../../types/analysis.js").Parts, outliers: number}[]}
 */
export function bars(all, every) {
  const result = [];
  for (let at = 0; at < all.length; at += every) {
    const group = all.slice(at, at + every);
    const parts = meanParts(group.map(({ parts }) => parts));
    const duration = group.reduce((sum, step) => sum + step.duration_ns / group.length, 0);
    result.push({
      first: group[0],
      last: group[group.length - 1],
      count: group.length,
      duration,
      parts,
      outliers: group.filter((step) => step.outlier).length,
    });
  }
  return result;
}

/**
 * Where the axis ends: at the longest bar, or somewhat above the usual where a few (warm-up) would flatten all others.
 * @param {number[]} durations
 */
export function axisTop(durations) {
  const order = [...durations].sort((a, b) => a - b);
  const most = order[order.length - 1] ?? 1;
  const usual = order[Math.floor((order.length - 1) * 0.9)] ?? most;
  return most > 2.2 * usual ? 1.7 * usual : most;
}

/** What a step that is not like the others is called. @param {any} step */
const standing = (step) => (step.warm_up ? "warm-up" : step.outlier ? "outlier" : "");

/**
 * @param {any[]} ranks
 * @param {import("../../types/analysis.js").Analysis} analysis
 * @param {import("./shared.js").Context} context
 * @param {Record<string, any>} keep
 * @param {() => void} redraw
 */
function chartSection(ranks, analysis, context, keep, redraw) {
  keep.measure ??= "time";
  const several = format.severalDevices(analysis);
  const most = ranks.reduce((best, rank) => (rank.steps.length > best.steps.length ? rank : best));
  const detected = ranks.some((rank) => rank.step_summary?.detected);
  const shared = ranks.length <= 3 || most.steps.length <= 3 ? 132 : ranks.length <= 8 ? 84 : 56;
  const chart = stepChart(ranks, keep, shared, context, several);
  const measure = choice(
    "Height of the bars",
    [
      { id: "time", title: "Time" },
      { id: "share", title: "Share", hint: "Every step as high as the others: what it is made of" },
    ],
    keep.measure,
    (id) => {
      keep.measure = id;
      chart.redraw();
    },
  );
  const facts = most.step_summary;
  const note =
    facts?.count === 1
      ? "Choose it to see it on the timeline."
      : facts
        ? `${format.count(facts.count)} ${facts.count === 1 ? "step" : "steps"}${detected ? ", guessed from the order of the kernels" : ""}: ` +
          `median ${format.time(facts.p50_ns)}, mean ${format.time(facts.mean_ns)}${facts.warm_up.length ? " without warm-up" : ""}, ` +
          `p99 ${format.time(facts.p99_ns)}, longest ${format.time(facts.max_ns)}. ` +
          `${detected ? "" : "A step is what was launched in it, from its first operation to the next step's. "}Choose one to see it on the timeline, ` +
          "or drag over several."
        : null;
  return section(
    facts?.count === 1 ? "Time of the step" : "Time of each step",
    note,
    h("div", { class: "p-bar" }, legend(PARTS.map((part) => ({ ...part }))), h("span", { class: "p-spacer" }), measure),
    chart.element,
    chart.range.element);
}

/** @typedef {{name: string, top: number, bars: (ReturnType<typeof bars>[number] & {rank: any, label: string})[]}} Row */

/**
 * A row of bars for each rank; where there are many ranks and hardly a step, a row for each step.
 * @param {any[]} ranks @param {Record<string, any>} keep @param {number} rowHeight @param {import("./shared.js").Context} context @param {boolean} several
 */
function stepChart(ranks, keep, rowHeight, context, several) {
  const few = ranks.length > 3 && Math.max(...ranks.map((rank) => rank.steps.length)) <= 3;
  /** @type {(every: number) => Row[]} */
  const rowsOf = few
    ? () =>
        Array.from({ length: Math.max(...ranks.map((rank) => rank.steps.length)) }, (_, index) => {
          const there = ranks.filter((rank) => rank.steps[index]);
          return {
            name: there[0].steps[index].name,
            bars: there.flatMap((rank) =>
              bars([rank.steps[index]], 1).map((bar) => ({ ...bar, rank, label: String(rank.rank ?? rank.device_index) })),
            ),
            top: 0,
          };
        })
    : (every) =>
        ranks.map((rank) => ({
          name: format.place(rank, several),
          bars: bars(rank.steps, every).map((bar, at) => ({ ...bar, rank, label: number(bar.first, at) })),
          top: 0,
        }));
  const rowCount = rowsOf(1).length;
  const margin = { left: 104, right: 14, top: 12, bottom: 40 };
  const gap = 16;
  /** @type {Row[]} */
  let rows = [];
  let pitch = 1;
  let chosen = { row: 0, bar: -1 };
  const marked = svg("rect", { class: "p-markedbar" });
  /** Bars of a row that are chosen together, from the one that was taken first. @type {{row: number, first: number, last: number} | null} */
  let held = null;
  let isDragged = false;
  /** How many steps one bar is. */
  let every = 1;
  const holding = svg("rect", { class: "p-heldbars" });
  const range = rangeLine(context, () => hold(null));
  const longest = Math.max(...rowsOf(1).map((row) => row.bars.length));
  const chart = frame({
    height: margin.top + rowCount * (rowHeight + gap) + margin.bottom - gap,
    label: `Bars of ${Math.max(...ranks.map((rank) => rank.steps.length))} steps on ${ranks.length} ranks; the table below has the same numbers`,
    draw(width, height, root) {
      const room = width - margin.right;
      const share = keep.measure === "share";
      const before = every;
      every = Math.max(1, Math.ceil((longest * LEAST_BAR) / (room - margin.left)));
      // Bars that were chosen are others now.
      if (every !== before) held = null;
      pitch = Math.min(few ? 88 : 72, (room - margin.left) / Math.ceil(longest / every));
      const right = Math.min(room, Math.max(margin.left + 240, margin.left + pitch * Math.ceil(longest / every) + 8));
      const thick = Math.max(1, pitch - Math.min(10, Math.max(1, pitch * 0.22)));
      const hatch = hatching(root);
      rows = rowsOf(every).map((row, index) => ({ ...row, top: margin.top + index * (rowHeight + gap) }));
      const top = share ? 1 : axisTop(rows.flatMap((row) => row.bars.map((bar) => bar.duration)));
      rows.forEach((row, index) => {
        const bottom = row.top + rowHeight;
        const y = linear([0, top], [bottom, row.top], rowHeight > 100 ? 4 : 2);
        axisLeft(root, y, { left: margin.left, right, format: share ? format.percent : format.time });
        root.append(svg("text", { class: "p-rowname", x: 0, y: row.top + 11 }, format.middle(row.name, 16), svg("title", null, row.name)));
        const paths = Object.fromEntries(PARTS.map((part) => [part.key, /** @type {string[]} */ ([])]));
        /** @type {string[]} */
        const flags = [];
        /** @type {string[]} */
        const broken = [];
        row.bars.forEach((bar, at) => {
          const x = margin.left + at * pitch + (pitch - thick) / 2;
          let level = bottom;
          for (const part of PARTS) {
            const value = share ? bar.parts[part.key] / (bar.duration || 1) : bar.parts[part.key];
            const next = Math.max(row.top - 3, Math.min(level, level - (bottom - y.toPixel(value))));
            if (level - next > 0.05) paths[part.key].push(box(x, next, thick, level - next));
            level = next;
          }
          if (!share && bar.duration > top * 1.001)
            broken.push(`M${(x - 1).toFixed(1)},${row.top + 11}l${(thick + 2).toFixed(1)},-4v3l${(-thick - 2).toFixed(1)},4z`);
          // As narrow as the bars are near, so that one flag does not hide the next.
          const half = Math.max(0.5, Math.min(4, pitch / 2 - 0.5));
          if (bar.outliers) flags.push(`M${(x + thick / 2).toFixed(1)},${Math.max(row.top - 4, level - 5).toFixed(1)}m${-half},-5h${2 * half}l${-half},5z`);
        });
        for (const part of PARTS) {
          const d = paths[part.key].join("");
          if (!d) continue;
          root.append(svg("path", { d, class: part.key === "idle" ? "p-idlebar" : null, style: { fill: part.colour } }));
          if (part.hatched) root.append(svg("path", { d, fill: hatch }));
        }
        if (broken.length) root.append(svg("path", { class: "p-broken", d: broken.join("") }, svg("title", null, "longer than the axis")));
        if (flags.length) root.append(svg("path", { class: "p-flag", d: flags.join("") }, svg("title", null, "outliers")));
        if (index === rows.length - 1) {
          const most = rows.reduce((best, one) => (one.bars.length > best.bars.length ? one : best)).bars;
          const needed = most.length / Math.max(2, Math.floor((right - margin.left) / 48));
          const label = [1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000].find((one) => one >= needed) ?? Math.ceil(needed);
          const ticks = most.map((_, at) => at).filter((at) => at % label === 0);
          axisBelow(
            root,
            { toPixel: (at) => margin.left + at * pitch + pitch / 2, ticks, domain: [0, most.length] },
            {
              y: bottom,
              left: margin.left,
              right,
              format: (at) => most[at].label,
              title: few ? "rank" : every > 1 ? `step; each bar is the mean of ${every}` : "step",
            },
          );
        }
      });
      root.append(holding, marked);
      hold(held);
    },
    keys(event) {
      const moves = /** @type {Record<string, [number, number]>} */ ({ ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] });
      const move = moves[event.key];
      if (move) {
        const row = event.shiftKey ? chosen.row : Math.max(0, Math.min(rows.length - 1, chosen.row + move[0]));
        const bar = Math.max(0, Math.min(rows[row].bars.length - 1, chosen.bar + move[1]));
        if (event.shiftKey) hold({ row, first: held?.row === row ? held.first : Math.max(0, chosen.bar), last: bar });
        mark(row, bar);
      } else if (event.key === "Enter" && event.shiftKey) range.only();
      else if (event.key === "Enter") open();
      else if (event.key === "Escape" && held) hold(null);
      else return;
      event.preventDefault();
      event.stopPropagation();
    },
  });
  function open() {
    const bar = rows[chosen.row]?.bars[chosen.bar];
    if (!bar) return;
    hideTip();
    const { rank } = bar;
    context.goTo({ from: bar.first.start_ns, to: bar.last.end_ns, rank: rank.rank ?? undefined, device: rank.device_index });
  }
  /** Chooses bars together. @param {typeof held} next */
  function hold(next) {
    held = next;
    const some = held && rows[held.row]?.bars.slice(Math.min(held.first, held.last), Math.max(held.first, held.last) + 1);
    const place = held && some?.length ? { x: margin.left + Math.min(held.first, held.last) * pitch, width: some.length * pitch, y: rows[held.row].top - 4 }
      : { x: 0, width: 0, y: 0 };
    for (const [name, value] of Object.entries({ ...place, height: rowHeight + 8 })) holding.setAttribute(name, String(value));
    range.show(some?.length ? some.flatMap((bar) => [bar.first, bar.last]) : []);
  }
  /** @param {number} row @param {number} at */
  function mark(row, at) {
    chosen = { row, bar: at };
    const bar = rows[row]?.bars[at];
    if (!bar) return;
    for (const [name, value] of Object.entries({ x: margin.left + at * pitch, width: pitch, y: rows[row].top - 4, height: rowHeight + 8 }))
      marked.setAttribute(name, String(value));
    const bounds = chart.root.getBoundingClientRect();
    const name = bar.count > 1 ? `${bar.first.name} to ${bar.last.name}, mean` : bar.first.name;
    showTip(
      bounds.left + margin.left + (at + 1) * pitch,
      bounds.top + rows[row].top + rowHeight / 2,
      tipLines(
        [
          format.place(bar.rank, several),
          ", ",
          name,
          bar.outliers ? h("span", { class: "p-badge" }, bar.count > 1 ? `${bar.outliers} outliers` : "outlier") : null,
        ],
        [
          ...PARTS.map((part) => ({
            name: part.title,
            colour: part.colour,
            hatched: part.hatched,
            value: `${format.time(bar.parts[part.key])}  ${format.percent(bar.duration ? bar.parts[part.key] / bar.duration : 0)}`,
          })),
          { name: "together", value: format.time(bar.duration), strong: true },
          ...(bar.count === 1 ? ratesOf(bar.first) : []),
        ],
      ),
    );
  }
  /** The bar at the pointer. @param {Event} event */
  function under(event) {
    const pointer = /** @type {PointerEvent} */ (event);
    const bounds = chart.root.getBoundingClientRect();
    const bar = Math.floor((pointer.clientX - bounds.left - margin.left) / pitch);
    const y = pointer.clientY - bounds.top;
    const row = rows.findIndex((one) => y >= one.top - gap / 2 && y < one.top + rowHeight + gap / 2);
    return row >= 0 && bar >= 0 && bar < rows[row].bars.length ? { row, bar } : null;
  }
  /** Where a drag began. @type {{row: number, bar: number} | null} */
  let from = null;
  chart.root.classList.add("p-pointing");
  chart.root.addEventListener("pointerdown", (event) => {
    const at = under(event);
    // With Shift what is held goes on to here.
    const isLonger = /** @type {PointerEvent} */ (event).shiftKey && at;
    if (isLonger) hold({ row: at.row, first: held?.row === at.row ? held.first : at.bar, last: at.bar });
    from = isLonger ? null : at;
    isDragged = Boolean(isLonger);
  });
  chart.root.addEventListener("pointermove", (event) => {
    const at = under(event);
    if (from && at && /** @type {PointerEvent} */ (event).buttons & 1 && (isDragged || at.bar !== from.bar)) {
      isDragged = true;
      hold({ row: from.row, first: from.bar, last: at.bar });
    }
    if (at) return mark(at.row, at.bar);
    unmark();
  });
  const unmark = () => {
    chosen.bar = -1;
    marked.setAttribute("width", "0");
    hideTip();
  };
  chart.root.addEventListener("pointerleave", unmark);
  chart.root.addEventListener("click", () => (isDragged ? undefined : open()));
  return { ...chart, range };
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context */
function rankSection(analysis, context) {
  const several = format.severalDevices(analysis);
  const whole = Math.max(1, ...analysis.ranks.map((rank) => rank.span_ns));
  const parts = table({
    name: "ranks",
    plain: analysis.ranks.length < 9,
    rows: analysis.ranks,
    sort: { key: "rank", descending: false },
    openHint: () => "Show this rank on the timeline",
    open: (rank) => context.goTo({ from: context.info.begin, to: context.info.end, rank: rank.rank ?? undefined, device: rank.device_index }),
    columns: [
      { key: "rank", title: "Rank", value: (rank) => rank.rank ?? rank.device_index, text: (rank) => format.place(rank, several) },
      { key: "bar", title: "Compute, communication, copies, idle", fixed: true, wide: true, value: () => "",
        cell: (rank) => shareBar(shareParts(rank.parts), { total: whole, format: format.time, label: format.place(rank, several) }) },
      { key: "span_ns", title: "Span", number: true, value: (rank) => rank.span_ns, text: (rank) => format.time(rank.span_ns) },
      ...partColumns(
        (/** @type {import("../../types/analysis.js").RankAnalysis} */ rank) => rank,
        (ns, rank) => format.percent(rank.span_ns ? ns / rank.span_ns : null),
        { compute: 2, overlap: 2 },
      ),
      { key: "device_name", title: "Device", spare: 3, value: (rank) => rank.device_name },
      { key: "host", title: "Host", spare: 3, value: (rank) => rank.host },
    ],
  });
  return section(chosenSteps(context) ? "These steps by rank" : "The whole run by rank", "Each moment counts once: the parts sum to the span.", parts.element);
}

/**
 * A column for each part of a span of time, and one for how much of its communication is hidden.
 * @template Row
 * @param {(row: Row) => {parts: import("../../types/analysis.js").Parts, overlap_ratio: number | null}} of   the span of a row
 * @param {(ns: number, row: Row) => string} text
 * @param {{compute: 1 | 2 | 3, overlap: 1 | 2 | 3}} spare   when these go in narrow windows
 * @returns {import("../table.js").Column<Row>[]}
 */
function partColumns(of, text, spare) {
  /** @type {Record<import("./shared.js").Part["key"], 1 | 2 | 3>} */
  const spares = { compute: spare.compute, hidden: 2, exposed: 1, copies: 2, idle: 1 };
  return [
    ...PARTS.map(({ key, hint }) => ({
      key: `${key}_part_ns`, title: key[0].toUpperCase() + key.slice(1), number: true, spare: spares[key], hint,
      value: (/** @type {Row} */ row) => of(row).parts[key], text: (/** @type {Row} */ row) => text(of(row).parts[key], row),
    })),
    {
      key: "overlap_ratio",
      title: "Overlap",
      number: true,
      spare: spare.overlap,
      hint: "Share of the communication that is hidden behind compute",
      value: (row) => of(row).overlap_ratio,
      text: (row) => format.percent(of(row).overlap_ratio),
    },
  ];
}

/** All measures of the catalogue. @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context */
function measureSection(analysis, context) {
  const several = format.severalDevices(analysis);
  const list = table({
    name: "measures",
    plain: analysis.ranks.length < 9,
    rows: analysis.ranks,
    openHint: () => "Show this rank on the timeline",
    open: (rank) => context.goTo({ from: context.info.begin, to: context.info.end, rank: rank.rank ?? undefined, device: rank.device_index }),
    columns: [
      { key: "rank", title: "Rank", value: (rank) => rank.rank ?? rank.device_index, text: (rank) => format.place(rank, several) },
      ...measureColumns(analysis.measures),
    ],
  });
  return section("All measures by rank", "Unions of what ran: those of several kinds may overlap.", list.element);
}

/**
 * A column for each measure.
 * @param {import("../../types/analysis.js").Measure[]} measures
 */
export function measureColumns(measures) {
  return measures.map(({ name, unit, label, definition }) => ({
    key: name, title: label[0].toUpperCase() + label.slice(1), hint: definition, number: true,
    value: (/** @type {any} */ row) => row[name],
    text: (/** @type {any} */ row) => (unit === "ratio" ? format.percent(row[name]) : format.time(row[name])),
  }));
}

/**
 * @param {any[]} ranks
 * @param {import("../../types/analysis.js").Analysis} analysis
 * @param {import("./shared.js").Context} context
 * @param {Record<string, any>} keep
 */
function stepTable(ranks, analysis, context, keep) {
  const several = format.severalDevices(analysis);
  const fine = resolution(analysis);
  const rows = ranks.flatMap((rank) => rank.steps.map((/** @type {any} */ step, /** @type {number} */ index) => ({ rank, step, index })));
  const longest = Math.max(1, ...rows.map((row) => row.step.duration_ns));
  const chosen = chosenSteps(context);
  keep.table ??= {};
  const list = table({
    name: "steps",
    keep: keep.table,
    rows,
    search: (row) => `${row.step.name} ${format.place(row.rank, several)} ${standing(row.step)}`,
    searchHint: "Filter by name, rank, outlier",
    openHint: () => "Show this step on the timeline",
    open: (row) => context.goTo({ from: row.step.start_ns, to: row.step.end_ns, rank: row.rank.rank ?? undefined, device: row.rank.device_index }),
    columns: [
      { key: "name", title: "Step", value: (row) => row.step.name },
      {
        key: "rank",
        title: "Rank",
        value: (row) => row.rank.rank ?? row.rank.device_index,
        text: (row) => format.place(row.rank, several),
      },
      {
        key: "start_ns",
        title: "Start",
        number: true,
        spare: 2,
        value: (row) => row.step.start_ns,
        text: (row) => format.moment(row.step.start_ns, fine),
      },
      {
        key: "duration_ns",
        title: "Duration",
        number: true,
        value: (row) => row.step.duration_ns,
        text: (row) => format.time(row.step.duration_ns),
        bar: (row) => row.step.duration_ns / longest,
      },
      {
        key: "host_duration_ns",
        title: "On the host",
        hint: "From the beginning of its range to that of the next",
        number: true,
        spare: 3,
        value: (row) => row.step.host_duration_ns,
        text: (row) => format.time(row.step.host_duration_ns),
      },
      ...partColumns((/** @type {any} */ row) => row.step, format.time, { compute: 1, overlap: 3 }),
      ...utilization(rows),
      {
        key: "outlier",
        title: "",
        value: (row) => row.step.outlier,
        cell: (row) => (standing(row.step) ? h("span", { class: "p-badge" }, standing(row.step)) : ""),
        hint: "Further from the median than 3 robust standard deviations and 5 %; slow first ones are warm-up, and left out of means",
      },
      {
        key: "only",
        title: "",
        hint: "Limit all numbers of the page to a step",
        fixed: true,
        value: () => "",
        cell: ({ step, index }) => {
          const one = number(step, index);
          return one === chosen ? "" : h("button", { type: "button", class: "p-link", title: `Limit all numbers of the page to ${step.name}`,
            onclick: () => context.state.set({ steps: one }) }, "only");
        },
      },
    ],
  });
  return section("Steps as numbers", "Compute, hidden, exposed, copies and idle sum to the duration.", list.element);
}
