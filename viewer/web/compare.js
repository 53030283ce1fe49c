// @ts-check
/** Two recordings side by side, by step: what is new, gone, slower. */

import { legend, lines, shareBar } from "./charts.js";
import { h, replace } from "./dom.js";
import * as format from "./format.js";
import { CHANGES, changed, difference } from "./panels/change.js";
import { changedStep, interval } from "./panels/changed_step.js";
import { pairView } from "./panels/pair_view.js";
import { PARTS, afterTyping, choice, failed, kindMark, nameCell, nothing, section, select, shareParts } from "./panels/shared.js";
import { table } from "./table.js";

/** A recording that is still being read is asked for again after so long. */
const AGAIN_MS = 400;
/** How often a second recording is looked at that grows, and one that does not: it may be recorded anew. */
const GROWING_MS = 500;
const RESTING_MS = 5000;
/** Comparing anew takes this share of the time at most, as one part of so many. */
const REST = 4;

/** @typedef {import("./panels/shared.js").Context} Context */

export const compare = {
  id: "compare",
  title: "Compare",
  whole: true,
  /** @param {HTMLElement} container @param {Context} context @returns {import("./panels/shared.js").Mounted} */
  mount(container, context) {
    /** @type {Record<string, any>} */
    const keep = { change: "changed", rank: "0" };
    let asked = 0;
    const result = h("div", { class: "p-result" });
    const head = h("div", { class: "p-bar p-comparehead" });
    const top = document.getElementById("pair") ?? h("section");
    /** Which generation of this recording is compared, and whether names are written otherwise since. */
    let generation = -1;
    /** @type {any[]} */
    let compared = [];
    /** What a link said, or was last told to say. @type {any} */
    let told = null;
    let loaded = "";
    /** The second recording as it is shown. @type {any} */
    let there = null;
    /** Aligned by the beginning for want of steps, which may still come. */
    let stepless = false;
    let timer = 0;
    const live = h("span", { class: "live-place" });
    const view = pairView(context, top, { changed: tell });
    keep.view = view;
    const reveal = (/** @type {boolean} */ shown) => (view.element.hidden = view.bar.hidden = !shown);
    reveal(false);
    replace(container, h("div", { class: "pair-heads" }, head, view.bar), view.element, result);

    /** Tells the address what is shown. */
    function tell() {
      if (!loaded || !view.pair.settled) return;
      const { settings, sides } = view.pair;
      const { area } = sides[0].state.get();
      const now = {
        other: keep.other,
        settings,
        window: sides[0].target.map(Math.round),
        selection: view.pair.selection(),
        area: area && [Math.round(area.from), Math.round(area.to)],
      };
      if (JSON.stringify(now) === JSON.stringify(told)) return;
      told = now;
      context.state.set({ compare: told });
    }

    async function start() {
      try {
        const { recordings } = await context.api.json("recordings");
        const others = recordings.filter((/** @type {any} */ one) => one.id !== context.info.id && one.state !== "failed");
        if (!others.length) {
          replace(head);
          reveal(false);
          view.clear();
          replace(
            result,
            nothing(
              "There is no other recording to compare with.",
              "Give two to `gputrace view A B`, or start `gputrace serve --dir DIR` on a folder of them.",
            ),
          );
          return;
        }
        const linked = context.state.get().compare;
        const wanted = linked?.other ?? keep.other;
        keep.other = others.some((/** @type {any} */ one) => one.id === wanted) ? wanted : alike(context.info, others).id;
        replace(head, h("span", null, h("strong", null, context.info.name), h("span", { class: "p-faint" }, " over")),
          select("Second recording", others.map((/** @type {any} */ one) => ({ id: one.id, title: one.name })), keep.other, (id) => {
            keep.other = id;
            load();
          }),
          context.link ? h("a", { class: "p-link", href: context.link({ rec: keep.other }), target: "_blank", rel: "noopener" }, "Open it alone") : null);
        head.append(live);
        load();
      } catch (error) {
        replace(result, failed(error, start, "Recordings"));
      }
    }

    async function load() {
      // There was nothing to compare with; there may be by now.
      if (keep.other === undefined) return start();
      const mine = ++asked;
      clearTimeout(timer);
      const begun = performance.now();
      const other = keep.other;
      const anchor = head.querySelector("a");
      if (anchor && context.link) anchor.href = context.link({ rec: other });
      if (loaded !== other) {
        loaded = "";
        compared = [];
        reveal(false);
        view.clear();
        replace(result, h("div", { class: "p-loading", role: "status" }, "Comparing …"));
      }
      for (;;) {
        try {
          const comparison = await context.api.json("compare", { a: context.info.id, b: other });
          const latest = await second(context, other);
          const here = await context.wholeAnalysis();
          if (mine !== asked) return;
          there = latest;
          generation = context.info.generation;
          compared = [comparison, here, there];
          drawTables();
          const linked = context.state.get().compare;
          const known = linked?.other === other ? linked : null;
          const wanted = settingsOf(loaded === other ? null : known, comparison, here, there);
          // Steps may come while a recording grows; what was chosen stays.
          const again = loaded === other && !(stepless && wanted.align === "step" && view.pair.settings.align === "beginning");
          const settings = again ? view.pair.settings : wanted;
          const window = loaded === other ? null : known?.window ?? null;
          stepless = settings.align === "beginning" && wanted.align === "beginning";
          reveal(true);
          await view.load([context.info, there.info], [here.ranks, there.ranks], comparison.diff, settings, window);
          if (loaded !== other && known) await view.pair.choose(known.selection ?? null, known.area ?? null);
          if (mine !== asked) return;
          loaded = other;
          tell();
          say();
          watch(REST * (performance.now() - begun));
          return;
        } catch (error) {
          if (mine !== asked) return;
          if (/** @type {any} */ (error).status !== 503) {
            loaded = "";
            reveal(false);
            view.clear();
            replace(result, failed(error, load, "Comparison"));
            return;
          }
          await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
          if (mine !== asked) return;
        }
      }
    }
    /** Says whether the second recording grows. @param {{growing: boolean, lost?: number, error?: string | null} | null} [last] */
    function say(last = there?.info) {
      replace(live, last?.error ? h("span", { class: "badge bad", title: last.error }, "can't be read any more")
        : last?.growing ? h("span", { class: "badge live", title: "It is still being recorded, and compared anew as it grows" }, "live") : null);
    }

    /** Looks whether the second recording was read anew; the first is looked at by the page. @param {number} [rest] ms, at least */
    function watch(rest = 0) {
      clearTimeout(timer);
      const busy = there?.info.growing || there?.info.analysed === false;
      timer = window.setTimeout(look, Math.max(rest, busy ? GROWING_MS : RESTING_MS));
    }

    async function look() {
      const mine = asked;
      if (loaded && context.state.get().tab === "compare" && !document.hidden) {
        try {
          const last = await context.api.json(`rec/${encodeURIComponent(there.info.id)}/live`);
          if (mine !== asked) return;
          say(last);
          if (last.generation !== there.info.generation) return reload();
        } catch {
          // The page says when the server is gone.
        }
      }
      if (mine === asked) watch();
    }

    function drawTables() {
      const [comparison, here, there] = compared;
      if (comparison) replace(result, draw(comparison, here, there, context, keep));
    }

    const showsIt = () => context.state.get().tab === "compare";
    const renew = afterTyping(container, () => {
      if (!showsIt()) return;
      if (context.info.generation !== generation) load();
      else drawTables();
    });
    const reload = afterTyping(container, () => {
      if (showsIt()) load();
      else generation = -1;
    });
    // What became newer while something else was shown.
    const appeared = context.state.subscribe(["tab"], () => {
      if (showsIt() && loaded && context.info.generation !== generation) load();
    });
    // Back, or another link.
    const unsubscribe = context.state.subscribe(["compare"], (/** @type {any} */ { compare: linked }) => {
      if (linked === told || !linked) return;
      told = linked;
      if (linked.other !== keep.other || !loaded) {
        keep.other = linked.other;
        const list = head.querySelector("select");
        if (list) list.value = linked.other;
        loaded = "";
        load();
      } else void view.pair.restore({ ...view.pair.settings, rows: "gpu", ...linked.settings }, linked);
    });
    addEventListener("gputrace-pair-stale", reload);
    start();
    return {
      pair: view.pair,
      refresh: renew,
      destroy() {
        asked++;
        clearTimeout(timer);
        unsubscribe();
        appeared();
        removeEventListener("gputrace-pair-stale", reload);
        view.destroy();
        container.textContent = "";
      },
    };
  },
};

/**
 * What to show first: what the link says, else the step that changed most, of the first rank that is in both.
 * @param {any} linked
 * @param {any} comparison
 * @param {any} here
 * @param {any} there
 * @returns {import("./pair.js").Settings}
 */
function settingsOf(linked, comparison, here, there) {
  const is = (/** @type {any} */ place) => (/** @type {any} */ one) => (one.rank ?? null) === (place.rank ?? null) && one.device_index === place.device_index;
  const both = comparison.ranks.filter((/** @type {any} */ place) => here.ranks.some(is(place)) && there.ranks.some(is(place)));
  const [first] = both.length ? both : here.ranks.length ? here.ranks : [{ rank: null, device_index: 0 }];
  const place = linked?.settings?.place ?? { rank: first.rank ?? null, device_index: first.device_index };
  const steps = comparison.steps.filter((/** @type {any} */ step) => is(place)(step) && step.duration_a_ns !== null && step.duration_b_ns !== null);
  // Where no rank is in both, the first of each are compared.
  const marked = steps.length > 0 || (!both.length && here.ranks[0]?.steps.length > 0 && there.ranks[0]?.steps.length > 0);
  return {
    align: marked ? "step" : "beginning",
    step: steps.length ? mostChanged(steps).place : 0,
    marks: [null, null],
    fit: false,
    rows: "gpu",
    ...linked?.settings,
    place,
  };
}

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

/** @param {any} comparison @param {any} here @param {any} there @param {Context} context @param {Record<string, any>} keep */
function draw(comparison, here, there, context, keep) {
  const steps = stepSection(comparison, here, there, context, keep);
  return [changedStep(comparison.diff), rankSection(comparison, keep), steps, kernelSection(comparison, context, keep)];
}

/** @param {any} comparison @param {Record<string, any>} keep */
function rankSection(comparison, keep) {
  const most = Math.max(1, ...comparison.ranks.flatMap((/** @type {any} */ rank) => [rank.a?.span_ns ?? 0, rank.b?.span_ns ?? 0]));
  const bar = (/** @type {import("../types/analysis.js").Parts | null} */ parts, /** @type {string} */ label) =>
    parts ? shareBar(shareParts(parts), { total: most, format: format.time, label }) : h("span", { class: "p-faint" }, "not there");
  const column = (/** @type {import("./panels/shared.js").Part["key"]} */ key, /** @type {string} */ title) => ({
    key: `${key}_difference_ns`,
    title,
    number: true,
    spare: /** @type {1} */ (1),
    value: (/** @type {any} */ rank) => (rank.a && rank.b ? rank.parts_b[key] - rank.parts_a[key] : null),
    cell: (/** @type {any} */ rank) => difference(rank.parts_a?.[key], rank.parts_b?.[key]),
  });
  const list = table({
    name: "compared-ranks",
    plain: comparison.ranks.length < 9,
    rows: comparison.ranks,
    openHint: () => "Show it in both timelines",
    open: (rank) => {
      if (!rank.a || !rank.b) return;
      keep.view.pair.set({ place: { rank: rank.rank ?? null, device_index: rank.device_index } }, "aligned");
      keep.view.show();
    },
    columns: [
      { key: "rank", title: "Rank", value: (rank) => rank.rank ?? rank.device_index, text: (rank) => format.place(rank) },
      {
        key: "bars",
        title: "First above, second below",
        fixed: true,
        wide: true,
        value: () => "",
        cell: (rank) => h("span", { class: "p-pair" }, bar(rank.parts_a, "first"), bar(rank.parts_b, "second")),
      },
      { key: "span_a_ns", title: "Span, first", number: true, spare: 2, value: (rank) => rank.a?.span_ns, text: (rank) => format.time(rank.a?.span_ns) },
      { key: "span_b_ns", title: "second", number: true, spare: 2, value: (rank) => rank.b?.span_ns, text: (rank) => format.time(rank.b?.span_ns) },
      {
        key: "span_difference_ns",
        title: "Span",
        number: true,
        value: (rank) => (rank.a && rank.b ? rank.b.span_ns - rank.a.span_ns : null),
        cell: (rank) => difference(rank.a?.span_ns, rank.b?.span_ns),
      },
      column("compute", "Compute"),
      column("exposed", "Exposed"),
      column("idle", "Idle"),
      { key: "change", title: "", value: (rank) => rank.change, cell: (rank) => changed(rank.change) },
    ],
  });
  return section("Ranks", "Differences are second minus first.", h("div", { class: "p-bar" }, legend(PARTS)), list.element);
}

/** @param {any} comparison @param {any} here @param {any} there @param {Context} context @param {Record<string, any>} keep */
function stepSection(comparison, here, there, context, keep) {
  if (!comparison.steps.length) return section("Steps", null, nothing("Neither recording has steps to set beside each other."));
  const places = comparison.ranks.filter((/** @type {any} */ rank) =>
    comparison.steps.some((/** @type {any} */ step) => step.rank === rank.rank && step.device_index === rank.device_index),
  );
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
      if (!mine?.steps[at] || !theirs?.steps[at]) return;
      keep.view.pair.set({ align: "step", step: at, place: { rank: place.rank ?? null, device_index: place.device_index } }, "aligned");
      keep.view.show();
    };
    const points = (/** @type {string} */ key) =>
      /** @type {[number, number][]} */ (rows.filter((/** @type {any} */ row) => row[key] !== null).map((/** @type {any} */ row) => [row.place, row[key]]));
    const chart = lines({
      series: [["first", "duration_a_ns"], ["second", "duration_b_ns"]].map(([name, key], index) => {
        const durations = points(key);
        return { name, points: durations, until: (durations[durations.length - 1]?.[0] ?? -1) + 1, colour: `var(--series-${index + 1})` };
      }),
      span: [0, Math.max(1, rows.length)], label: "Durations of the steps of both recordings", format: format.time, height: 190, title: "duration",
      time: (at) => { const row = rows[Math.floor(at)]; return row ? row.name_a ?? row.name_b : String(Math.floor(at)); },
      axis: (at) => (Number.isInteger(at) ? String(at) : ""), open: (at) => go(Math.floor(at)),
    });
    const greatest = Math.max(
      1,
      ...rows.map((/** @type {any} */ row) =>
        row.duration_a_ns === null || row.duration_b_ns === null ? 0 : Math.abs(row.duration_b_ns - row.duration_a_ns),
      ),
    );
    keep.steps ??= {};
    const list = table({
      name: "compared-steps",
      keep: keep.steps,
      rows,
      search: (row) => `${row.name_a ?? ""} ${row.name_b ?? ""} ${row.change}`,
      openHint: () => "Show it in both timelines",
      open: (row) => go(row.place),
      columns: [
        { key: "place", title: "Step", number: true, value: (row) => row.place, text: (row) => String(row.place) },
        { key: "name_a", title: "First", value: (row) => row.name_a },
        {
          key: "name_b",
          title: "Second",
          value: (row) => row.name_b,
          cell: (row) => {
            const address = linkTo(theirs?.steps[row.place]);
            return row.name_b && address
              ? h("a", { class: "p-link", href: address, target: "_blank", rel: "noopener", title: "Opens the second recording at this step" }, row.name_b)
              : (row.name_b ?? format.NONE);
          },
        },
        { key: "duration_a_ns", title: "Duration, first", number: true, value: (row) => row.duration_a_ns, text: (row) => format.time(row.duration_a_ns) },
        { key: "duration_b_ns", title: "second", number: true, value: (row) => row.duration_b_ns, text: (row) => format.time(row.duration_b_ns) },
        {
          key: "difference_ns",
          title: "Difference",
          number: true,
          value: (row) => (row.duration_a_ns !== null && row.duration_b_ns !== null ? row.duration_b_ns - row.duration_a_ns : null),
          cell: (row) => difference(row.duration_a_ns, row.duration_b_ns),
        },
        {
          key: "bar",
          title: "",
          fixed: true,
          wide: true,
          spare: 1,
          value: () => "",
          cell: (row) => diverging(row.duration_a_ns === null || row.duration_b_ns === null ? 0 : (row.duration_b_ns - row.duration_a_ns) / greatest),
        },
        { key: "change", title: "Change", value: (row) => row.change, cell: (row) => changed(row.change) },
      ],
    });
    replace(
      holder,
      h(
        "div",
        { class: "p-bar" },
        chooser,
        legend([
          { title: `first: ${context.info.name}`, colour: "var(--series-1)" },
          { title: `second: ${there?.info.name ?? "the other"}`, colour: "var(--series-2)" },
        ]),
      ),
      chart.element,
      list.element,
    );
  };
  const chooser =
    places.length > 1
      ? select(
          "Rank",
          places.map((/** @type {any} */ rank, /** @type {number} */ index) => ({ id: String(index), title: format.place(rank) })),
          keep.rank,
          (id) => {
            keep.rank = id;
            drawOne();
          },
        )
      : null;
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
  const kinds = /** @type {(keyof typeof CHANGES)[]} */ (["slower", "faster", "new", "gone", "same", "unknown"]);
  const counts = Object.fromEntries(kinds.map((kind) => [kind, comparison.kernels.filter((/** @type {any} */ row) => row.change === kind).length]));
  const rows = () =>
    comparison.kernels.filter((/** @type {any} */ row) =>
      keep.change === "all" ? true : keep.change === "changed" ? !["same", "unknown"].includes(row.change) : row.change === keep.change,
    );
  /** How sure a kernel's change a step is, by name. @type {Map<string, any>} */
  const sure = new Map();
  for (const row of comparison.diff.rows) if (row.by === "kernel" && row.rank === null) sure.set(row.name, row);
  const of = (/** @type {any} */ row) => sure.get(row.name);
  const greatest = Math.max(1, ...comparison.kernels.map((/** @type {any} */ row) => Math.abs(row.difference_ns)));
  keep.kernels ??= {};
  const mean = (/** @type {number} */ total, /** @type {number} */ count) => (count ? total / count : null);
  const list = table({
    name: "compared-kernels",
    keep: keep.kernels,
    rows: rows(),
    search: (row) => `${row.name} ${row.kind} ${row.change}`,
    searchHint: "Filter by name",
    openHint: () => "Show it in both timelines",
    open: async (row) => {
      keep.view.show();
      try {
        if (!(await keep.view.pair.find(row.name))) keep.view.say(`${format.shortName(row.name)} is not on the rows of this rank.`);
      } catch (error) {
        keep.view.say(`${format.shortName(row.name)} could not be looked for: ${/** @type {Error} */ (error).message}`);
      }
    },
    empty: keep.change === "changed" ? "No kernel is sure to have changed." : "None.",
    tools: [
      choice(
        "Changes",
        [
          { id: "changed", title: "Changed" },
          ...kinds.filter((kind) => counts[kind]).map((kind) => ({ id: kind, title: `${CHANGES[kind].title} ${counts[kind]}` })),
          { id: "all", title: "All" },
        ],
        keep.change,
        (id) => {
          keep.change = id;
          list.setRows(rows());
        },
      ),
      choice(
        "Names",
        [
          { id: "short", title: "Short names" },
          { id: "full", title: "Full" },
        ],
        context.state.get().names,
        (id) => context.state.set({ names: id }),
      ),
    ],
    columns: [
      { key: "name", title: "Name", wide: true, value: (row) => row.name, cell: (row) => nameCell(row.name, context.state.get().names === "short") },
      { key: "kind", title: "Kind", spare: 2, value: (row) => row.kind, cell: (row) => kindMark(row.kind) },
      { key: "change", title: "Change", value: (row) => row.change, cell: (row) => changed(row.change) },
      { key: "difference_ns", title: "Difference", number: true, value: (row) => row.difference_ns, cell: (row) => difference(row.total_a_ns, row.total_b_ns) },
      { key: "bar", title: "", fixed: true, spare: 1, value: () => "", cell: (row) => diverging(row.difference_ns / greatest) },
      {
        key: "step_change_ns",
        title: "A step",
        number: true,
        spare: 1,
        value: (row) => of(row)?.change_ns ?? null,
        text: (row) => format.signed(format.time, of(row)?.change_ns),
      },
      { key: "sure", title: "95 %", spare: 2, value: (row) => of(row)?.low_ns ?? null, text: (row) => interval(of(row)?.low_ns, of(row)?.high_ns) },
      { key: "total_a_ns", title: "Total, first", number: true, value: (row) => row.total_a_ns, text: (row) => format.time(row.total_a_ns) },
      { key: "total_b_ns", title: "second", number: true, value: (row) => row.total_b_ns, text: (row) => format.time(row.total_b_ns) },
      { key: "count_a", title: "Count, first", number: true, spare: 2, value: (row) => row.count_a, text: (row) => format.count(row.count_a) },
      { key: "count_b", title: "second", number: true, spare: 2, value: (row) => row.count_b, text: (row) => format.count(row.count_b) },
      {
        key: "mean_difference_ns",
        title: "Mean, difference",
        number: true,
        spare: 3,
        value: (row) => {
          const a = mean(row.total_a_ns, row.count_a);
          const b = mean(row.total_b_ns, row.count_b);
          return a === null || b === null ? null : b - a;
        },
        cell: (row) => difference(mean(row.total_a_ns, row.count_a), mean(row.total_b_ns, row.count_b)),
      },
    ],
  });
  return section("Kernels", "Over all ranks, the greatest difference first. Of those called slower or faster at most one in twenty is not.", list.element);
}
