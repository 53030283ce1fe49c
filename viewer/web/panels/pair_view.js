// @ts-check
/** Two recordings one above the other: what changed in words and bars, how they are aligned, and both timelines. */

import { shareBar } from "../charts.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { iconButton } from "../icons.js";
import { Pair } from "../pair.js";
import { changeOf, changed, difference } from "./change.js";
import { verdictOf } from "./changed_step.js";
import { PARTS, choice, select, shareParts } from "./shared.js";

/** @typedef {import("../pair.js").Settings} Settings */
/** @typedef {import("../../types/analysis.js").Diff} Diff */
/** @typedef {import("../counterpart.js").Pairing} Pairing */

/** Heights, CSS pixels: of a timeline's head, of its rows where they are few, where there is little room, and of what stands under both. */
const HEAD = 38;
const LEAST = 60;
const TIGHT = 110;
const UNDER = 44;
/** Said where operations can't be paired. */
const TOO_MANY = "too many of this name in the step to pair them";
/** Changes of less than this share of the whole are not named first. */
const SMALL = 0.002;

/**
 * What both recordings spend their time on: a typical step, or the whole where there are none. The parts sum to the time.
 * @typedef {{time: number, parts: import("../../types/analysis.js").Parts}} Side
 * @param {import("../../types/analysis.js").Diff} diff
 * @returns {{a: Side, b: Side}}
 */
export function sides(diff) {
  const side = (/** @type {number} */ time, /** @type {Record<string, number>} */ all) => {
    const of = (/** @type {string} */ name) => all[name] ?? 0;
    const [compute, hidden, exposed, copies] = ["compute", "hidden", "exposed", "copies"].map(of);
    return { time, parts: { compute, hidden, exposed, copies, idle: time - compute - hidden - exposed - copies } };
  };
  return { a: side(diff.step.a_ns, diff.parts_a), b: side(diff.step.b_ns, diff.parts_b) };
}

/**
 * What time changed by, the greatest first; they sum to the whole change. Computing counts once, whether something was
 * communicated meanwhile or not: communication that is no longer hidden lengthens a step by what is exposed, not by both.
 * @param {{a: {parts: import("../../types/analysis.js").Parts}, b: {parts: import("../../types/analysis.js").Parts}}} both
 */
export function changes({ a, b }) {
  const of = (/** @type {import("../../types/analysis.js").Parts} */ parts, /** @type {import("./shared.js").Part["key"]} */ key) =>
    parts[key] + (key === "compute" ? parts.hidden : 0);
  return PARTS.filter(({ key }) => key !== "hidden")
    .map((part) => {
      const [from, to] = [of(a.parts, part.key), of(b.parts, part.key)];
      const whole = part.key === "compute" ? { title: "all compute", hint: "kernels compute, whether anything is communicated meanwhile or not" } : {};
      return { ...part, ...whole, a: from, b: to, by: to - from };
    })
    .sort((x, y) => Math.abs(y.by) - Math.abs(x.by));
}

/** "3rd". @param {number} number */
export function ordinal(number) {
  const last = number % 100;
  const ending = last >= 11 && last <= 13 ? "th" : (["th", "st", "nd", "rd"][number % 10] ?? "th");
  return `${format.count(number)}${ending}`;
}

/** @param {Pairing} pairing @returns {{a: number | null, b: number | null}} durations, ns */
function durations({ refs: [a, b] }) {
  return { a: a?.duration ?? null, b: b?.duration ?? null };
}

/**
 * @param {import("./shared.js").Context & {announce?: (text: string) => void}} context
 * @param {HTMLElement} top   over the tabs
 * @param {{changed: () => void}} told
 */
export function pairView(context, top, told) {
  const answer = h("div", { class: "pair-answer" });
  const overviews = [0, 1].map(() => h("div", { class: "pair-overview" }));
  const names = [0, 1].map((side) => h("span", { class: "pair-name" }));
  replace(top, answer, h("div", { class: "pair-overviews" }, overviews));
  const panes = [0, 1].map((side) => h("section", { class: "pair-pane", "aria-label": side === 0 ? "First recording" : "Second recording" }));
  const bar = h("div", { class: "p-bar pair-bar" });
  const stepBar = h("div", { class: "pair-step" });
  const strip = h("div", { class: "pair-strip" });
  const element = h("div", { class: "pair", role: "group", "aria-label": "Both timelines" }, stepBar, h("div", { class: "pair-panes" }, panes), strip);
  /** @type {any[]} */ let infos = [];
  /** @type {any[]} */ let places = [];
  let drawn = "";
  let several = false;
  /** What a screen reader heard last of an operation. */
  let heard = "";
  /** @type {HTMLInputElement} */ let filter;

  const pair = new Pair({ announce: context.announce ?? (() => undefined) }, panes.map((container, side) => ({ container, overview: overviews[side] })), {
    changed() {
      drawBar();
      told.changed();
    },
    selected: (pairing) => drawStrip(pairing),
    words,
  });
  for (const side of pair.sides) {
    const { labels, state, context: { side: at } } = side;
    replace(labels.tools, names[at], labels.more);
    state.subscribe(["collapsed", "rowHeight", "filter", "order", "pins"], fit);
    // How names are written is the whole page's.
    state.subscribe(["names"], ({ names }) => context.state.set({ names }));
  }
  const spelled = (/** @type {import("../state.js").ViewState} */ { names }) => pair.sides.forEach(({ state }) => state.set({ names }));
  const unspelled = context.state.subscribe(["names"], spelled);
  spelled(context.state.get());
  // Rows of both are filtered by the one box.
  filter = /** @type {HTMLInputElement} */ (pair.sides[0].labels.input);
  filter.classList.add("p-filter", "pair-filter");
  pair.sides[1].labels.input = filter;
  // In the next frame: what is resized while sizes are told is told of again.
  const resized = new ResizeObserver(() => requestAnimationFrame(fit));
  for (const one of [element, document.getElementById("panel")]) if (one) resized.observe(one);

  /** As tall as their rows need, and both in view where there is room. */
  function fit() {
    const panel = element.closest("#panel");
    if (!panel || panes[0].hidden) return;
    const above = panes[0].getBoundingClientRect().top - panel.getBoundingClientRect().top + panel.scrollTop;
    const room = panel.clientHeight - above - UNDER - 2 * HEAD;
    const wanted = pair.sides.map(({ layout }) => Math.max(LEAST, layout.height + layout.pinnedHeight));
    // What one does not need is the other's.
    const even = room / 2;
    wanted.forEach((height, side) => {
      const most = Math.max(TIGHT, wanted[1 - side] < even ? room - wanted[1 - side] : even);
      panes[side].style.height = `${Math.round(HEAD + Math.min(height, most))}px`;
    });
  }

  /** What the pointer's operation is in the other recording. @param {Pairing | null} pairing */
  function words(pairing) {
    if (!pairing) return [];
    if (pairing.place < 0) return [TOO_MANY];
    const { a, b } = durations(pairing);
    const nth = `${ordinal(pairing.place + 1)} of ${format.count(pairing.counts[a === null ? 1 : 0])}${pairing.step >= 0 ? " in its step" : ""}`;
    if (a === null || b === null) return [`not in the ${a === null ? "first" : "second"} recording`, nth];
    const by = b - a;
    return [
      `first ${format.time(a)}, second ${format.time(b)}: ${format.signed(format.time, by)}${a > 0 ? ` (${format.signed(format.percent, by / a)})` : ""}`,
      nth,
    ];
  }

  /** @param {Pairing | null} pairing */
  function drawStrip(pairing) {
    if (!pairing) {
      heard = "";
      replace(
        strip,
        h(
          "span",
          { class: "p-faint" },
          "Point at an operation to see it in both. ",
          h("kbd", null, "J"),
          " ",
          h("kbd", null, "K"),
          " next, previous step; ",
          h("kbd", null, "M"),
          " in both: marks to align; ",
          h("kbd", null, "?"),
          " all keys",
        ),
      );
      return;
    }
    const { a, b } = durations(pairing);
    const [own] = pairing.refs.filter((ref) => ref !== null);
    const step = pair.steps[0][pairing.step]?.name ?? pair.steps[1][pairing.step]?.name;
    const side = a === null ? 1 : 0;
    const others = pairing.counts[0] === pairing.counts[1] ? "" : ` (${format.count(pairing.counts[1 - side])} in the other)`;
    const place = `${ordinal(pairing.place + 1)} of ${format.count(pairing.counts[side])}${step ? ` in ${step}` : ""}${others}`;
    const nth = pairing.place < 0 ? TOO_MANY : place;
    const value = (/** @type {string} */ name, /** @type {number | null} */ duration) =>
      h("span", { class: "pair-value" }, h("span", { class: "p-faint" }, name), " ", duration === null ? "not there" : format.time(duration));
    const begins = pairing.refs.map((ref, at) => (ref ? ref.start - (pairing.begins[at] ?? NaN) : NaN));
    replace(
      strip,
      h("span", { class: `swatch kind-${own?.kind}` }),
      h("strong", { class: "pair-what", title: pairing.name }, format.middle(format.shortName(pairing.name), 60)),
      h("span", { class: "p-faint" }, nth),
      pairing.place < 0
        ? null
        : [
            value("first", a),
            value("second", b),
            a !== null && b !== null ? h("span", { class: "pair-value" }, difference(a, b), changed(changeOf(a, b))) : changed(a === null ? "new" : "gone"),
          ],
      begins.every(Number.isFinite)
        ? h(
            "span",
            { class: "p-faint", title: "How far into its step it begins" },
            `begins at ${format.time(begins[0])} and ${format.time(begins[1])} of the step`,
          )
        : null,
      h("span", { class: "p-spacer" }),
      pairing.refs[0] ? h("button", { type: "button", class: "p-link", onclick: () => open(0) }, "First on its timeline") : null,
      pairing.refs[1] && context.link ? h("a", { class: "p-link", href: address(1), target: "_blank", rel: "noopener" }, "Second on its timeline") : null);
    const sentence = [format.shortName(pairing.name), nth, ...words(pairing).slice(0, 1)].filter(Boolean).join("; ");
    if (sentence !== heard) context.announce?.(sentence);
    heard = sentence;
  }

  /** @param {0 | 1} side @returns {[number, number]} */
  const shownBy = (side) => pair.sides[side].target;
  const open = (/** @type {0 | 1} */ side) => {
    const [from, to] = shownBy(side);
    const ref = pair.chosen?.refs[side];
    const row = ref && pair.sides[side].rows[ref.row];
    return context.goTo({ from, to, ...(ref && row ? { key: row.key, start: ref.start } : {}) });
  };
  const address = (/** @type {0 | 1} */ side) => context.link?.({ rec: infos[side].id, from: shownBy(side)[0], to: shownBy(side)[1] });

  /** How they are aligned; only what has changed is made anew, so that the focus stays. */
  function drawBar() {
    const { settings, steps } = pair;
    const wanted = JSON.stringify([settings, infos.map((info) => info.id), places.length, steps.map((list) => list.length)]);
    if (wanted === drawn) return;
    drawn = wanted;
    const count = Math.min(steps[0].length, steps[1].length);
    const had = bar.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent : null;
    const marks = settings.marks.every((at) => at !== null);
    const kinds = [
      ...(count ? [{ id: "step", title: "By step", hint: "A step of the first over the same step of the second" }] : []),
      { id: "beginning", title: "From the beginning", hint: "Both from where their recording begins" },
      ...(marks ? [{ id: "mark", title: "By marks", hint: "The mark of the first over the mark of the second" }] : []),
    ];
    const move = (/** @type {"left" | "right"} */ icon, /** @type {string} */ title, /** @type {1 | -1} */ by) =>
      iconButton(icon, title, () => pair.turn(by), { disabled: settings.align === "step" && (settings.step + by < 0 || settings.step + by >= count) });
    replace(
      bar,
      places.length > 1
        ? select(
            "Rank",
            places.map((place, at) => ({ id: String(at), title: format.place(place, several) })),
            String(places.findIndex((place) => place.rank === settings.place.rank && place.device_index === settings.place.device_index)),
            (id) => {
              pair.set({ place: places[Number(id)] }, settings.align === "step" ? "aligned" : "stay");
            },
          )
        : null,
      h("span", { class: "p-faint pair-word" }, "aligned"),
      choice("Alignment", kinds, settings.align, (id) => pair.set({ align: /** @type {Settings["align"]} */ (id) }, id === "mark" ? "stay" : "aligned")),
      count
        ? h(
            "span",
            { class: "pair-steps" },
            move("left", "Previous step (K)", -1),
            select(
              "Step",
              Array.from({ length: count }, (_, at) => ({
                id: String(at),
                title: steps[0][at].name === steps[1][at].name ? steps[0][at].name : `${steps[0][at].name} and ${steps[1][at].name}`,
              })),
              String(settings.step),
              (id) => pair.set({ align: "step", step: Number(id) }, "aligned"),
            ),
            move("right", "Next step (J)", 1),
          )
        : null,
      count
        ? choice(
            "Scale",
            [
              { id: "", title: "Same scale", hint: "A pixel is as much time in both: the slower one is longer" },
              { id: "fit", title: "Same width", hint: "The second is stretched so that its step is as wide as the first's" },
            ],
            settings.fit ? "fit" : "",
            (id) => pair.set({ fit: id === "fit" }, "aligned"),
          )
        : null,
      select(
        "Rows",
        [
          { id: "gpu", title: "GPU rows" },
          { id: "host", title: "GPU and host rows" },
          { id: "all", title: "All rows" },
        ],
        settings.rows,
        (id) => pair.set({ rows: /** @type {Settings["rows"]} */ (id) }, "stay"),
      ),
      filter,
    );
    if (had)
      for (const one of bar.querySelectorAll("button, select"))
        if ((one.getAttribute("aria-label") ?? one.textContent) === had) /** @type {HTMLElement} */ (one).focus();
    drawStep();
    fit();
  }

  /** What the chosen step is made of in both, and what changed. */
  function drawStep() {
    const [a, b] = [0, 1].map((side) => pair.steps[side][pair.settings.step]);
    stepBar.hidden = !(a && b) || pair.settings.align !== "step";
    if (!a || !b) return;
    const [first, second] = [a, b].map(({ measures }) => ({ time: measures.duration_ns, parts: measures.parts }));
    const most = Math.max(first.time, second.time, 1);
    const line = (/** @type {string} */ who, /** @type {typeof first} */ one) => [
      h("span", { class: "p-faint" }, who),
      shareBar(shareParts(one.parts), { total: most, format: format.time, label: `${who} recording` }),
      h("span", { class: "pair-time" }, format.time(one.time)),
    ];
    const chips = changes({ a: first, b: second })
      .filter(({ by }) => Math.abs(by) >= SMALL * most)
      .slice(0, 5);
    replace(
      stepBar,
      h("div", { class: "pair-bars" }, line("first", first), line("second", second)),
      h(
        "div",
        { class: "pair-chips" },
        h(
          "span",
          { class: "pair-chip pair-total" },
          h("span", null, a.name === b.name ? a.name : `${a.name} and ${b.name}`),
          difference(first.time, second.time),
          changed(changeOf(first.time, second.time)),
        ),
        chips.map((part) =>
          h(
            "span",
            { class: "pair-chip", title: `${part.hint}: ${format.time(part.a)} and ${format.time(part.b)}` },
            h("span", null, h("i", { class: part.hatched ? "pair-dot p-hatched" : "pair-dot", style: { "--c": part.colour } }), part.title),
            h("span", { class: part.by > 0 ? "p-slower" : "p-faster" }, format.signed(format.time, part.by)),
          ),
        ),
      ),
    );
  }

  /** The answer in one look: how much slower or faster, and by what. @param {any[][]} ranks @param {Diff} diff */
  function drawAnswer(ranks, diff) {
    if (!ranks[0].length || !ranks[1].length) {
      replace(answer, h("p", { class: "p-quiet" }, "Nothing ran on a GPU in one of them."));
      return;
    }
    const { a, b } = sides(diff);
    const parts = changes({ a, b });
    const by = diff.step.change_ns;
    const steps = Math.min(...[...diff.a, ...diff.b].map((run) => run.steps));
    const change = diff.step.verdict;
    const unit = steps ? "a step" : "the span";
    const cause = parts
      .filter((part) => Math.sign(part.by) === Math.sign(by) && Math.abs(part.by) >= SMALL * a.time)
      .slice(0, 2)
      .map((part) => `${part.title} ${format.signed(format.time, part.by)}`);
    const share = a.time > 0 ? format.percent(Math.abs(by) / a.time) : "";
    const head =
      change === "same" || by === 0
        ? `${steps ? "Steps take as long in both" : "Both take as long"}`
        : `The second is ${share} ${by > 0 ? "slower" : "faster"}`;
    const figure = (/** @type {string} */ name, /** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ hint) => {
      const step = to - from;
      const small = Math.abs(step) < SMALL * Math.max(a.time, 1);
      return h(
        "span",
        { class: `p-figure pair-figure ${small ? "p-calm" : step > 0 ? "pair-worse" : "pair-better"}`, title: hint },
        h("span", { class: "p-figurename" }, name),
        h("span", { class: "p-figurevalue" }, small ? "same" : format.signed(format.time, step)),
        h("span", { class: "p-figuremore" }, `${format.time(from)} → ${format.time(to)}`),
      );
    };
    replace(
      answer,
      h(
        "p",
        { class: "pair-head" },
        h("strong", { class: change === "slower" ? "p-slower" : change === "faster" ? "p-faster" : "" }, head),
        change === "same" || by === 0
          ? "."
          : [`: ${format.signed(format.time, by)}${steps ? " a step" : ""}`, cause.length ? [", ", cause.join(", ")] : null, "."],
        h(
          "span",
          { class: "p-faint" },
          ` ${verdictOf(diff)} `,
          steps
            ? `Medians of ${format.count(diff.a[0].steps)} and ${format.count(diff.b[0].steps)} steps.`
            : "Steps are not marked in both, so the whole spans are compared.",
        ),
      ),
      h(
        "div",
        { class: "p-figures" },
        figure(steps ? "A step" : "Span", a.time, b.time, `${unit} of the slowest GPU`),
        parts
          .filter((part) => part.a > 0 || part.b > 0)
          .map((part) => figure(part.title[0].toUpperCase() + part.title.slice(1), part.a, part.b, part.hint)),
      ),
    );
  }

  /** Keys of the pair that no single timeline has. @param {KeyboardEvent} event */
  function key(event) {
    const { target } = event;
    if (panes[0].hidden || event.defaultPrevented || document.querySelector("dialog[open]") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return;
    const by = event.code === "KeyJ" ? 1 : event.code === "KeyK" ? -1 : 0;
    if (!by) return;
    event.preventDefault();
    pair.turn(/** @type {1 | -1} */ (by));
    context.announce?.(pair.steps[0][pair.settings.step]?.name ?? "");
  }
  addEventListener("keydown", key);
  const appear = () => {
    const { tab, dark, theme } = context.state.get();
    pair.appear(tab === "compare" && infos.length > 0, dark, theme);
    document.body.classList.toggle("comparing", tab === "compare" && infos.length > 0);
    top.hidden = tab !== "compare" || !infos.length;
  };
  const unsubscribe = context.state.subscribe(["tab", "dark", "theme"], appear);

  return {
    element,
    bar,
    pair,
    /** @param {any[]} both infos @param {any[][]} ranks @param {Diff} diff @param {Settings} settings @param {[number, number] | null} window */
    async load(both, ranks, diff, settings, window) {
      infos = both;
      const here = (/** @type {any} */ one) => ({ rank: one.rank ?? null, device_index: one.device_index });
      several = ranks.some((list) => format.severalDevices({ ranks: list }));
      places = ranks[0].map(here).filter((place) => ranks[1].some((other) => (other.rank ?? null) === place.rank && other.device_index === place.device_index));
      const known = places.some((place) => place.rank === settings.place.rank && place.device_index === settings.place.device_index);
      names.forEach((name, side) =>
        replace(
          name,
          h("span", { class: `pair-number pair-number-${side + 1}`, "aria-hidden": "true" }, String(side + 1)),
          h("strong", { title: both[side].name }, format.middle(both[side].name, 26)),
        ),
      );
      drawAnswer(ranks, diff);
      appear();
      await pair.load(both, ranks, known || !places.length ? settings : { ...settings, place: places[0] }, window);
      drawStep();
      fit();
    },
    /** Leads to it in both. */
    show() {
      element.scrollIntoView({ block: "start", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    },
    /** @param {string} text */
    say(text) {
      replace(strip, h("span", { class: "p-faint" }, text));
      context.announce?.(text);
    },
    /** The recordings are no longer compared. */
    clear() {
      infos = [];
      appear();
    },
    destroy() {
      infos = [];
      appear();
      unsubscribe();
      unspelled();
      resized.disconnect();
      removeEventListener("keydown", key);
      replace(top);
    },
  };
}
