// @ts-check
/** Two recordings side by side, by step: what is new, gone, slower. */

import { legend, lines, shareBar } from "./charts.js";
import { h, replace } from "./dom.js";
import * as format from "./format.js";
import { PARTS, choice, failed, kindMark, nameCell, nothing, partsOf, section, select, shareParts } from "./panels/shared.js";
import { sideBySide } from "./panels/side_by_side.js";
import { table } from "./table.js";

/** A recording that is still being read is asked for again after so long. */
const AGAIN_MS = 400;

/** @typedef {import("./panels/shared.js").Context} Context */

export const compare = {
  id: "compare",
  title: "Compare",
  /** @param {HTMLElement} container @param {Context} context @returns {import("./panels/shared.js").Mounted} */
  mount(container, context) {
    /** @type {Record<string, any>} */
    const keep = { change: "changed", names: "short", rank: "0" };
    let asked = 0;
    const result = h("div", { class: "p-result" });
    const head = h("div", { class: "p-bar p-comparehead" });
    replace(container, head, result);

    async function start() {
      try {
        const { recordings } = await context.api.json("recordings");
        const others = recordings.filter((/** @type {any} */ one) => one.id !== context.info.id && one.state !== "failed");
        if (!others.length) {
          replace(head);
          replace(result, nothing("There is no other recording to compare with.", "Give two to `gputrace view A B`, or start `gputrace serve --dir DIR` on a folder of them."));
          return;
        }
        keep.other = others.some((/** @type {any} */ one) => one.id === keep.other) ? keep.other : alike(context.info, others).id;
        replace(head, h("span", null, "First ", h("strong", null, context.info.name)), h("span", { class: "p-faint" }, "against second"),
          select("Second recording", others.map((/** @type {any} */ one) => ({ id: one.id, title: one.name })), keep.other, (id) => {
            keep.other = id;
            load();
          }),
          context.link ? h("a", { class: "p-link", href: context.link({ rec: keep.other }), target: "_blank", rel: "noopener" }, "Open it beside this one") : null);
        load();
      } catch (error) {
        replace(result, failed(error, start, "Recordings"));
      }
    }

    async function load() {
      const mine = ++asked;
      const other = keep.other;
      const anchor = head.querySelector("a");
      if (anchor && context.link) anchor.href = context.link({ rec: other });
      replace(result, h("div", { class: "p-loading", role: "status" }, "Comparing …"));
      for (;;) {
        try {
          const comparison = await context.api.json("compare", { a: context.info.id, b: other });
          const there = await second(context, other).catch(() => null);
          const here = await context.analysis();
          if (mine === asked) replace(result, draw(comparison, here, there, context, keep));
          return;
        } catch (error) {
          if (mine !== asked) return;
          if (/** @type {any} */ (error).status !== 503) {
            replace(result, failed(error, load, "Comparison"));
            return;
          }
          await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
          if (mine !== asked) return;
        }
      }
    }
    start();
    return {
      refresh: load,
      destroy() {
        asked++;
        container.textContent = "";
      },
    };
  },
};

/**
 * What is needed of the second recording: its info, and the steps of its ranks.
 * @param {Context} context
 * @param {string} id
 */
async function second(context, id) {
  const path = `rec/${encodeURIComponent(id)}`;
  const info = await context.api.json(`${path}/info`);
  const analysis = await context.api.json(`${path}/${info.generation}/analysis`);
  return { info, ranks: analysis.ranks };
}

/**
 * The recording that is likely meant: whose name begins most like this one's, of such on a like device, the newest.
 * @param {{name: string, device?: string}} one
 * @param {any[]} others
 */
export function alike(one, others) {
  const common = (/** @type {string} */ other) => {
    let at = 0;
    while (at < one.name.length && one.name[at] === other[at]) at++;
    return at;
  };
  const rank = (/** @type {any} */ other) => [common(other.name), Number(other.device === one.device), other.modified_ms ?? 0];
  const better = (/** @type {number[]} */ a, /** @type {number[]} */ b) => {
    const at = a.findIndex((value, index) => value !== b[index]);
    return at >= 0 && a[at] > b[at];
  };
  return others.reduce((best, other) => (better(rank(other), rank(best)) ? other : best));
}

/** @param {number | null | undefined} a @param {number | null | undefined} b */
export function relative(a, b) {
  return typeof a === "number" && typeof b === "number" && a > 0 ? (b - a) / a : null;
}

const CHANGES = /** @type {const} */ ({
  slower: { sign: "▲", title: "slower", class: "p-slower" },
  faster: { sign: "▼", title: "faster", class: "p-faster" },
  new: { sign: "+", title: "new", class: "p-slower" },
  gone: { sign: "\u2212", title: "gone", class: "p-faster" },
  same: { sign: "=", title: "same", class: "p-faint" },
});

/** @param {keyof typeof CHANGES} change */
function changeMark(change) {
  const { sign, title, class: tone } = CHANGES[change] ?? CHANGES.same;
  return h("span", { class: `p-change ${tone}` }, h("span", { "aria-hidden": "true" }, sign), " ", title);
}

/** A difference of two times with its share of the first. @param {number | null | undefined} a @param {number | null | undefined} b */
function difference(a, b) {
  if (typeof a !== "number" || typeof b !== "number") return format.NONE;
  const ratio = relative(a, b);
  const tone = ratio === null || Math.abs(ratio) <= 0.02 ? "p-faint" : b > a ? "p-slower" : "p-faster";
  return h("span", { class: tone }, format.signed(format.time, b - a), ratio === null ? null : h("small", { class: "p-range" }, format.signed(format.percent, ratio)));
}

/** @param {any} comparison @param {any} here @param {any} there @param {Context} context @param {Record<string, any>} keep */
function draw(comparison, here, there, context, keep) {
  return [rankSection(comparison), stepSection(comparison, here, there, context, keep), kernelSection(comparison, context, keep)];
}

/** @param {any} comparison */
function rankSection(comparison) {
  const most = Math.max(1, ...comparison.ranks.flatMap((/** @type {any} */ rank) => [rank.a?.span_ns ?? 0, rank.b?.span_ns ?? 0]));
  const bar = (/** @type {any} */ measures, /** @type {string} */ label) => (measures ? shareBar(shareParts(partsOf(measures, measures.span_ns)), { total: most, format: format.time, label }) : h("span", { class: "p-faint" }, "not there"));
  const column = (/** @type {string} */ key, /** @type {string} */ title, /** @type {(measures: any) => number} */ of, /** @type {1 | 2 | 3 | undefined} */ spare) => ({
    key: `${key}_difference_ns`, title, number: true, spare, value: (/** @type {any} */ rank) => (rank.a && rank.b ? of(rank.b) - of(rank.a) : null), cell: (/** @type {any} */ rank) => difference(rank.a && of(rank.a), rank.b && of(rank.b)),
  });
  const list = table({
    name: "compared-ranks",
    plain: comparison.ranks.length < 9,
    rows: comparison.ranks,
    columns: [
      { key: "rank", title: "Rank", value: (rank) => rank.rank ?? rank.device_index, text: (rank) => format.place(rank) },
      { key: "bars", title: "First above, second below", fixed: true, wide: true, value: () => "", cell: (rank) => h("span", { class: "p-pair" }, bar(rank.a, "first"), bar(rank.b, "second")) },
      { key: "span_a_ns", title: "Span, first", number: true, spare: 2, value: (rank) => rank.a?.span_ns, text: (rank) => format.time(rank.a?.span_ns) },
      { key: "span_b_ns", title: "second", number: true, spare: 2, value: (rank) => rank.b?.span_ns, text: (rank) => format.time(rank.b?.span_ns) },
      column("span", "Span", (measures) => measures.span_ns, undefined),
      column("compute", "Compute", (measures) => measures.compute_ns, 1),
      column("exposed", "Exposed", (measures) => measures.communication_exposed_ns, 1),
      column("idle", "Idle", (measures) => measures.idle_ns, 1),
      { key: "change", title: "", value: (rank) => rank.change, cell: (rank) => changeMark(rank.change) },
    ],
  });
  return section("Ranks", "Differences are second minus first.", h("div", { class: "p-bar" }, legend(PARTS)), list.element);
}

/** @param {any} comparison @param {any} here @param {any} there @param {Context} context @param {Record<string, any>} keep */
function stepSection(comparison, here, there, context, keep) {
  if (!comparison.steps.length) return section("Steps", null, nothing("Neither recording has steps to set beside each other."));
  const places = comparison.ranks.filter((/** @type {any} */ rank) => comparison.steps.some((/** @type {any} */ step) => step.rank === rank.rank && step.device_index === rank.device_index));
  if (!places[Number(keep.rank)]) keep.rank = "0";
  const holder = h("div", null);
  const drawOne = () => {
    const place = places[Number(keep.rank)];
    const rows = comparison.steps.filter((/** @type {any} */ step) => step.rank === place.rank && step.device_index === place.device_index);
    const same = (/** @type {any} */ rank) => rank.rank === place.rank && rank.device_index === place.device_index;
    const mine = here.ranks.find(same);
    const theirs = there?.ranks.find(same);
    const linkTo = (/** @type {any} */ step) => (step && context.link ? context.link({ rec: there.info.id, from: step.start_ns, to: step.end_ns }) : null);
    const go = (/** @type {number} */ at) => {
      const step = mine?.steps[at];
      if (step) context.goTo({ from: step.start_ns, to: step.end_ns, rank: place.rank ?? undefined, device: place.device_index });
    };
    const points = (/** @type {string} */ key) => /** @type {[number, number][]} */ (rows.filter((/** @type {any} */ row) => row[key] !== null).map((/** @type {any} */ row) => [row.place, row[key]]));
    const chart = lines({
      series: [["first", "duration_a_ns"], ["second", "duration_b_ns"]].map(([name, key], index) => {
        const durations = points(key);
        return { name, points: durations, until: (durations[durations.length - 1]?.[0] ?? -1) + 1, colour: `var(--series-${index + 1})` };
      }),
      span: [0, Math.max(1, rows.length)], label: "Durations of the steps of both recordings", format: format.time, height: 190, title: "duration",
      time: (at) => { const row = rows[Math.floor(at)]; return row ? row.name_a ?? row.name_b : String(Math.floor(at)); },
      axis: (at) => (Number.isInteger(at) ? String(at) : ""), open: (at) => choose(Math.floor(at)),
    });
    const picture = sideBySide(context, { open(side, from, to) {
      const margin = (to - from) * 0.5;
      if (side === 0) context.goTo({ from: from - margin, to: to + margin, rank: place.rank ?? undefined, device: place.device_index });
      else if (context.link) window.open(context.link({ rec: there.info.id, from: from - margin, to: to + margin }), "_blank", "noopener");
    } });
    const both = rows.filter((/** @type {any} */ row) => mine?.steps[row.place] && theirs?.steps[row.place]);
    const chosen = h("span", { class: "p-bar p-stepchoice" });
    const choose = (/** @type {number} */ at) => {
      const row = both.find((/** @type {any} */ one) => one.place === at);
      if (!row) return;
      keep.place = at;
      const [a, b] = [mine.steps[at], theirs.steps[at]];
      const index = both.indexOf(row);
      const move = (/** @type {string} */ sign, /** @type {string} */ title, /** @type {any} */ to) => h("button", { type: "button", class: "p-button", "aria-label": title, title, disabled: !to, onclick: () => choose(to.place) }, sign);
      const address = linkTo(b);
      replace(chosen, move("‹", "Step before", both[index - 1]), select("Step", both.map((/** @type {any} */ one) => ({ id: String(one.place), title: one.name_a === one.name_b ? one.name_a : `${one.name_a} and ${one.name_b}` })), String(at), (id) => choose(Number(id))), move("›", "Next step", both[index + 1]),
        difference(a.duration_ns, b.duration_ns), changeMark(row.change), h("span", { class: "p-spacer" }),
        h("button", { type: "button", class: "p-link", onclick: () => go(at) }, "First on the timeline"), address ? h("a", { class: "p-link", href: address, target: "_blank", rel: "noopener" }, "Second on its timeline") : null);
      picture.show([
        { id: context.info.id, generation: context.info.generation, name: context.info.name, step: a.name, from: a.start_ns, to: a.end_ns },
        { id: there.info.id, generation: there.info.generation, name: there.info.name, step: b.name, from: b.start_ns, to: b.end_ns },
      ], place.rank, place.device_index);
    };

    const greatest = Math.max(1, ...rows.map((/** @type {any} */ row) => row.duration_a_ns === null || row.duration_b_ns === null ? 0 : Math.abs(row.duration_b_ns - row.duration_a_ns)));
    keep.steps ??= {};
    const list = table({
      name: "compared-steps",
      keep: keep.steps,
      rows,
      search: (row) => `${row.name_a ?? ""} ${row.name_b ?? ""} ${row.change}`,
      openHint: () => "Show it on the timeline",
      open: (row) => go(row.place),
      columns: [
        { key: "place", title: "Step", number: true, value: (row) => row.place, text: (row) => String(row.place) },
        { key: "name_a", title: "First", value: (row) => row.name_a },
        { key: "name_b", title: "Second", value: (row) => row.name_b, cell: (row) => {
          const address = linkTo(theirs?.steps[row.place]);
          return row.name_b && address ? h("a", { class: "p-link", href: address, target: "_blank", rel: "noopener", title: "Opens the second recording at this step" }, row.name_b) : row.name_b ?? format.NONE;
        } },
        { key: "duration_a_ns", title: "Duration, first", number: true, value: (row) => row.duration_a_ns, text: (row) => format.time(row.duration_a_ns) },
        { key: "duration_b_ns", title: "second", number: true, value: (row) => row.duration_b_ns, text: (row) => format.time(row.duration_b_ns) },
        { key: "difference_ns", title: "Difference", number: true, value: (row) => (row.duration_a_ns !== null && row.duration_b_ns !== null ? row.duration_b_ns - row.duration_a_ns : null), cell: (row) => difference(row.duration_a_ns, row.duration_b_ns) },
        { key: "bar", title: "", fixed: true, wide: true, spare: 1, value: () => "", cell: (row) => diverging(row.duration_a_ns === null || row.duration_b_ns === null ? 0 : (row.duration_b_ns - row.duration_a_ns) / greatest) },
        { key: "change", title: "Change", value: (row) => row.change, cell: (row) => changeMark(row.change) },
      ],
    });
    replace(holder, h("div", { class: "p-bar" }, chooser, legend([{ title: `first: ${context.info.name}`, colour: "var(--series-1)" }, { title: `second: ${there?.info.name ?? "the other"}`, colour: "var(--series-2)" }])), chart.element,
      both.length ? [h("h3", { class: "p-subhead" }, "One step of both, on one scale"), chosen, picture.element] : null, list.element);
    if (both.length) choose(both.some((/** @type {any} */ row) => row.place === keep.place) ? keep.place : mostChanged(both).place);
  };
  const chooser = places.length > 1 ? select("Rank", places.map((/** @type {any} */ rank, /** @type {number} */ index) => ({ id: String(index), title: format.place(rank) })), keep.rank, (id) => {
    keep.rank = id;
    drawOne();
  }) : null;
  drawOne();
  return section("Steps", "Set beside each other by their place in the run.", holder);
}

/** The step whose durations differ most: the one to look at first. @param {any[]} rows with both durations */
export function mostChanged(rows) {
  const change = (/** @type {any} */ row) => Math.abs(row.duration_b_ns - row.duration_a_ns);
  // The first step warms up in most programs: it is chosen only where there is no other.
  const usual = rows.length > 1 ? rows.filter((row) => row.place > 0) : rows;
  return usual.reduce((most, row) => (change(row) > change(most) ? row : most));
}

/** A bar to the right for more, to the left for less. @param {number} share from -1 to 1 */
function diverging(share) {
  return h("span", { class: "p-diverging", "aria-hidden": "true" },
    h("span", { class: share > 0 ? "p-more-bar" : "p-less-bar", style: { width: `${(Math.min(1, Math.abs(share)) * 50).toFixed(2)}%` } }));
}

/** @param {any} comparison @param {Context} context @param {Record<string, any>} keep */
function kernelSection(comparison, context, keep) {
  const kinds = /** @type {(keyof typeof CHANGES)[]} */ (["slower", "faster", "new", "gone", "same"]);
  const counts = Object.fromEntries(kinds.map((kind) => [kind, comparison.kernels.filter((/** @type {any} */ row) => row.change === kind).length]));
  const rows = () => comparison.kernels.filter((/** @type {any} */ row) => (keep.change === "all" ? true : keep.change === "changed" ? row.change !== "same" : row.change === keep.change));
  const greatest = Math.max(1, ...comparison.kernels.map((/** @type {any} */ row) => Math.abs(row.difference_ns)));
  keep.kernels ??= {};
  const mean = (/** @type {number} */ total, /** @type {number} */ count) => (count ? total / count : null);
  const list = table({
    name: "compared-kernels",
    keep: keep.kernels,
    rows: rows(),
    search: (row) => `${row.name} ${row.kind} ${row.change}`,
    searchHint: "Filter by name",
    openHint: () => "Find it on the timeline",
    open: (row) => (row.change === "new" ? undefined : context.search?.(row.name)),
    empty: keep.change === "changed" ? "No kernel changed by more than 2 %." : "None.",
    tools: [
      choice("Changes", [{ id: "changed", title: "Changed" }, ...kinds.filter((kind) => counts[kind]).map((kind) => ({ id: kind, title: `${CHANGES[kind].title} ${counts[kind]}` })), { id: "all", title: "All" }], keep.change, (id) => {
        keep.change = id;
        list.setRows(rows());
      }),
      choice("Names", [{ id: "short", title: "Short names" }, { id: "full", title: "Full" }], keep.names, (id) => {
        keep.names = id;
        list.refresh();
      }),
    ],
    columns: [
      { key: "name", title: "Name", wide: true, value: (row) => row.name, cell: (row) => nameCell(row.name, keep.names === "short") },
      { key: "kind", title: "Kind", spare: 2, value: (row) => row.kind, cell: (row) => kindMark(row.kind) },
      { key: "change", title: "Change", value: (row) => row.change, cell: (row) => changeMark(row.change) },
      { key: "difference_ns", title: "Difference", number: true, value: (row) => row.difference_ns, cell: (row) => difference(row.total_a_ns, row.total_b_ns) },
      { key: "bar", title: "", fixed: true, spare: 1, value: () => "", cell: (row) => diverging(row.difference_ns / greatest) },
      { key: "total_a_ns", title: "Total, first", number: true, value: (row) => row.total_a_ns, text: (row) => format.time(row.total_a_ns) },
      { key: "total_b_ns", title: "second", number: true, value: (row) => row.total_b_ns, text: (row) => format.time(row.total_b_ns) },
      { key: "count_a", title: "Count, first", number: true, spare: 2, value: (row) => row.count_a, text: (row) => format.count(row.count_a) },
      { key: "count_b", title: "second", number: true, spare: 2, value: (row) => row.count_b, text: (row) => format.count(row.count_b) },
      { key: "mean_difference_ns", title: "Mean, difference", number: true, spare: 3, value: (row) => { const a = mean(row.total_a_ns, row.count_a); const b = mean(row.total_b_ns, row.count_b); return a === null || b === null ? null : b - a; }, cell: (row) => difference(mean(row.total_a_ns, row.count_a), mean(row.total_b_ns, row.count_b)) },
    ],
  });
  return section("Kernels", "Over all ranks, the greatest difference first. Below 2 % of the first it is the same.", list.element);
}
