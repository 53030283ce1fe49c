// @ts-check
/** What a step would take if something were different: changes to choose, and what the server predicts of them. */

import { axisBelow, axisLeft, frame, hideTip, legend, shape, showTip, tipLines } from "../charts.js";
import { h, replace, svg } from "../dom.js";
import * as format from "../format.js";
import { linear } from "../scales.js";
import { table } from "../table.js";
import { failed } from "./shared.js";

/** @typedef {import("../../types/analysis.js").WhatIf} WhatIf */
/** @typedef {import("../../types/analysis.js").Single} Single */
/** @typedef {import("./shared.js").Context} Context */
/** How something is changed. @typedef {"as-others" | "none" | "times" | "plus"} How */

/** A change as the server reads it, in its two halves. @param {string} change @returns {{target: string, value: string, how: How, factor: number}} */
export function readChange(change) {
  const at = change.lastIndexOf("=");
  const [target, value] = at < 0 ? [change, "none"] : [change.slice(0, at), change.slice(at + 1)];
  const factor = value.endsWith("x") ? Number(value.slice(0, -1)) : NaN;
  const how = value === "none" || value === "as-others" ? value : Number.isFinite(factor) ? "times" : "plus";
  return { target, value, how, factor: Number.isFinite(factor) ? factor : value === "none" ? 0 : 1 };
}

/** With a change; one of the same target goes, as only one can be. @param {readonly string[]} changes @param {string} change */
export function withChange(changes, change) {
  const { target } = readChange(change);
  const same = changes.findIndex((other) => readChange(other).target === target);
  return same < 0 ? [...changes, change] : changes.map((other, at) => (at === same ? change : other));
}

/** A bar to a low end and, fainter, on to a high one. @param {number} low @param {number} high @param {number} most what the whole width stands for */
export function intervalBar(low, high, most) {
  const share = (/** @type {number} */ value) => `${Math.min(100, Math.max(0, (100 * value) / most)).toFixed(2)}%`;
  return h(
    "span",
    { class: "p-interval", "aria-hidden": "true" },
    h("i", { style: { width: share(low) } }),
    h("i", { class: "p-hatched p-between", style: { left: share(low), width: share(Math.max(0, high - low)) } }),
  );
}

/** @param {{low: number, high: number}} interval */
function between({ low, high }) {
  const [a, b] = [format.time(Math.round(low)), format.time(Math.round(high))];
  return a === b ? a : `${a} to ${b}`;
}

/** Slider: so many times as long, at most and in steps of. */
const MOST = 2;
const STEP = 0.05;

/** The part of the page; it stays while the page is drawn anew, and asks again when there is a newer recording. */
export class WhatIfPart {
  /** @param {Context} context */
  constructor(context) {
    this.context = context;
    this.singles = h("div", { class: "p-singles" });
    this.chosen = h("div", { class: "p-chosen", role: "group", "aria-label": "Changes that are tried together" });
    this.result = h("div", { class: "p-result", "aria-live": "polite" });
    this.error = h("p", { class: "p-bad", role: "alert", hidden: true });
    this.input = h("input", {
      class: "p-filter",
      type: "text",
      placeholder: "kernel:*gemm*=0.8x",
      "aria-label": "A change: TARGET=CHANGE",
      spellcheck: "false",
      autocomplete: "off",
    });
    this.input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Enter") void this.add();
    });
    const add = h("button", { type: "button", class: "p-button", onclick: () => void this.add() }, "Try");
    this.element = h("section", { class: "p-section p-whatif" },
      h("header", { class: "p-head" }, h("h2", null, "What if"),
        h("p", { class: "p-note" }, "A replay of all ranks with other times. Tick changes to try them together, or write one.")),
      this.result, this.chosen, h("div", { class: "p-bar" }, this.input, add), this.error, this.singles);
    /** What there is without changes. @type {WhatIf | null} */
    this.base = null;
    /** Of which generation and steps. */
    this.of = "";
    /** @type {AbortController | null} */
    this.asking = null;
    this.pending = false;
    /** The boxes of the table, by what they stand for. @type {Map<string, HTMLInputElement>} */
    this.boxes = new Map();
    /** What the controls were made for. */
    this.controls = "";
    context.state.subscribe(["changes"], () => this.changed());
  }

  get changes() {
    return /** @type {string[]} */ (this.context.state.get().changes);
  }

  /** @param {string[]} changes */
  set(changes) {
    this.context.state.set({ changes });
  }

  /** What was written; what the server does not take stays there with the reason. @private */
  async add() {
    const change = this.input.value.trim();
    if (!change) return;
    const changes = withChange(this.changes, change);
    try {
      await this.context.api.whatIf(changes, this.steps);
    } catch (error) {
      return this.wrong(/** @type {Error} */ (error).message);
    }
    this.set(changes);
    this.input.value = "";
  }

  /** @private @param {string | null} line */
  wrong(line) {
    this.error.hidden = line === null;
    this.error.textContent = line ?? "";
  }

  /** @returns {string} */
  get steps() {
    return this.context.state.get().steps;
  }

  /** Asks what there is, where that was not asked of this generation and these steps. */
  renew() {
    const { api, info } = this.context;
    const wanted = `${api.generation} ${this.steps}`;
    if (this.of === wanted) return;
    this.of = wanted;
    this.asking?.abort();
    this.asking = null;
    if (info.growing) {
      replace(this.result, h("p", { class: "p-faint" }, "Predictions are there when the recording has ended."));
      return;
    }
    if (!this.base) replace(this.result, h("div", { class: "p-loading", role: "status" }, "Building the graph of all ranks …"));
    else this.result.classList.add("p-stale");
    void this.begin(api, wanted);
  }

  /** @private @param {any} api @param {string} wanted */
  async begin(api, wanted) {
    try {
      const base = await api.whatIf([], this.steps);
      if (this.of !== wanted) return;
      this.base = base;
      this.fill();
      this.changed();
    } catch (error) {
      if (this.of !== wanted || /** @type {any} */ (error)?.status === 410) return;
      this.base = null;
      this.result.classList.remove("p-stale");
      replace(this.singles);
      const again = () => {
        this.of = "";
        this.renew();
      };
      replace(
        this.result,
        /** @type {any} */ (error)?.status === 404
          ? h("p", { class: "p-faint" }, /** @type {Error} */ (error).message)
          : failed(error, again, "What if"),
      );
    }
  }

  /** The table of single changes. @private */
  fill() {
    const { base } = this;
    if (!base) return;
    this.boxes.clear();
    const share = (/** @type {Single} */ one) => middleOf(one.saves_per_step_ns) / Math.max(1, base.measured_step_ns);
    const most = Math.max(1e-9, ...base.singles.map(share));
    const list = table({
      name: "what-if",
      rows: base.singles,
      search: (one) => one.change,
      empty: "No single change saves anything.",
      columns: [
        { key: "try", title: "", hint: "Try", fixed: true, value: () => "", cell: (one) => this.box(one.change) },
        { key: "change", title: "Change", wide: true, value: (one) => one.change, cell: (one) => changeCell(one.change) },
        {
          key: "saves_ns",
          title: "Saves a step",
          number: true,
          value: (one) => middleOf(one.saves_per_step_ns),
          text: (one) => format.time(Math.round(middleOf(one.saves_per_step_ns))),
        },
        {
          key: "share",
          title: "%",
          number: true,
          value: share,
          text: (one) => format.percent(share(one)),
          bar: (one) => share(one) / most,
        },
        {
          key: "step_ns",
          title: "Step then",
          number: true,
          spare: 2,
          value: (one) => middleOf(one.predicted_step_ns),
          text: (one) => between(one.predicted_step_ns),
        },
      ],
    });
    replace(this.singles, list.element);
  }

  /** @private @param {string} change */
  box(change) {
    const box = h("input", { type: "checkbox", "aria-label": `Try ${change}` });
    box.checked = this.changes.includes(change);
    box.addEventListener("change", () => this.set(box.checked ? withChange(this.changes, change) : this.changes.filter((other) => other !== change)));
    this.boxes.set(change, box);
    return box;
  }

  /** Other changes: what stands there is kept as far as it fits, since a slider may be held. @private */
  changed() {
    const { changes } = this;
    for (const [change, box] of this.boxes) box.checked = changes.includes(change);
    const controls = JSON.stringify(changes.map((change) => [readChange(change).target, readChange(change).how]));
    if (controls !== this.controls) {
      this.controls = controls;
      const focused = /** @type {HTMLElement | null} */ (this.chosen.querySelector(":focus"))?.dataset.of;
      replace(
        this.chosen,
        changes.map((change) => this.control(change)),
        changes.length > 1 ? h("button", { type: "button", class: "p-link", onclick: () => this.set([]) }, "None of these") : null,
      );
      if (focused) [...this.chosen.querySelectorAll("select")].find((one) => one.dataset.of === focused)?.focus();
    }
    for (const input of this.chosen.querySelectorAll("input")) {
      const change = changes.find((one) => readChange(one).target === input.dataset.of);
      if (!change) continue;
      const { factor } = readChange(change);
      if (document.activeElement !== input) input.value = String(factor);
      input.setAttribute("aria-valuetext", `${factor} times as long`);
      const output = input.nextElementSibling;
      if (output) output.textContent = `${factor.toFixed(2)}×`;
    }
    void this.ask();
  }

  /** How one target is changed. @private @param {string} change */
  control(change) {
    const { target, how, value, factor } = readChange(change);
    const isIdle = target.startsWith("idle:");
    const to = (/** @type {string} */ next) => this.set(withChange(this.changes, `${target}=${next}`));
    const ways = [
      ...(isIdle ? [] : [["as-others", "as the others"]]), ["none", "no time"], ["times", "times as long"], ...(how === "plus" ? [["plus", value]] : []),
    ];
    const choose = h(
      "select",
      { class: "p-select", "aria-label": `How ${target} is changed`, dataset: { of: target } },
      ways.map(([id, title]) => h("option", { value: id, selected: id === how }, title)),
    );
    choose.addEventListener("change", () => to(choose.value === "times" ? `${how === "times" ? factor : 0.5}x` : choose.value));
    choose.addEventListener("keydown", (event) => event.stopPropagation());
    let slider = null;
    if (how === "times") {
      slider = h("input", {
        type: "range",
        class: "p-slider",
        min: 0,
        max: Math.max(MOST, factor),
        step: STEP,
        value: factor,
        "aria-label": `How many times as long ${target} takes`,
        dataset: { of: target },
      });
      const input = slider;
      input.addEventListener("input", () => to(`${Number(Number(input.value).toFixed(2))}x`));
      input.addEventListener("keydown", (event) => event.stopPropagation());
    }
    return h("div", { class: "p-control" },
      h("span", { class: "p-target", title: target }, target), choose,
      slider ? h("span", { class: "p-slide" }, slider, h("output", null, `${factor.toFixed(2)}×`)) : null,
      h(
        "button",
        {
          type: "button",
          class: "p-close",
          "aria-label": `Not ${change}`,
          title: "Take it away",
          onclick: () => this.set(this.changes.filter((other) => readChange(other).target !== target)),
        },
        "×",
      ),
    );
  }

  /** Asks for a prediction: one at a time, and of what is chosen last. @private */
  async ask() {
    const { base } = this;
    if (!base) return;
    if (this.asking) {
      this.pending = true;
      return;
    }
    const { changes } = this;
    if (changes.length === 0) return this.show(base, null);
    const asking = (this.asking = new AbortController());
    try {
      const answer = await this.context.api.whatIf(changes, this.steps, asking.signal);
      if (!asking.signal.aborted) this.show(answer, null);
    } catch (error) {
      if (!asking.signal.aborted && /** @type {any} */ (error)?.status !== 410) this.show(null, /** @type {Error} */ (error).message);
    }
    if (this.asking !== asking) return;
    this.asking = null;
    if (!this.pending) return;
    this.pending = false;
    await this.ask();
  }

  /** @private @param {WhatIf | null} answer @param {string | null} wrong */
  show(answer, wrong) {
    this.wrong(wrong);
    this.result.classList.toggle("p-stale", wrong !== null);
    if (answer) replace(this.result, outcome(answer), about(answer));
  }
}

/** @param {{low: number, high: number}} interval */
const middleOf = ({ low, high }) => (low + high) / 2;

/** @param {string} change */
function changeCell(change) {
  const { target, value } = readChange(change);
  return h("span", { class: "p-name" }, target, h("span", { class: "p-faint" }, `=${value}`));
}

/** The measured step beside the predicted one. @param {WhatIf} answer */
function outcome(answer) {
  const { measured_step_ns: measured, predicted_step_ns: predicted, changes } = answer;
  const most = Math.max(1, measured, changes.length ? predicted.high : 0);
  const line = (/** @type {string} */ title, /** @type {Node} */ bar, /** @type {string} */ value, /** @type {string} */ kind) =>
    h("div", { class: `p-stepbar ${kind}` }, h("span", { class: "p-quiet" }, title), bar, h("span", { class: "p-stepvalue" }, value));
  const bars = [line("measured", intervalBar(measured, measured, most), format.time(Math.round(measured)), "p-measured")];
  if (changes.length === 0) return [h("div", { class: "p-stepbars" }, bars)];
  bars.push(line("predicted", intervalBar(predicted.low, predicted.high, most), between(predicted), "p-predicted"));
  const saved = measured - middleOf(predicted);
  const words =
    Math.abs(saved) < 0.0005 * measured
      ? "No different from now."
      : [
          h("strong", null, format.time(Math.round(Math.abs(saved)))),
          ` ${saved > 0 ? "less" : "more"} a step, `,
          h("strong", null, `${answer.speedup.toFixed(2)} times`),
          " as fast.",
        ];
  return [h("div", { class: "p-stepbars" }, bars), h("p", { class: "p-verdict" }, words), stepChart(answer)];
}

/** What it is a prediction of. @param {WhatIf} answer */
function about(answer) {
  const [first, last] = answer.steps;
  const steps = answer.step_count === 1 ? first : `${first} to ${last} (${format.count(answer.step_count)} steps)`;
  return h("p", { class: "p-faint p-about" },
    `Replayed: ${steps}, ${format.count(answer.operations)} operations; no rule explains ${format.percent(answer.unexplained_ratio)} of a step.`,
    answer.steps_left_out ? ` ${format.count(answer.steps_left_out)} more steps were not replayed.` : "");
}

/** Steps that have marks of their own; of more there are lines alone. */
const MARKED = 80;

/** Each step as it was, and as it would be. @param {WhatIf} answer */
function stepChart({ step_times_ns: times }) {
  const { names, measured, predicted } = times;
  if (measured.length < 2) return null;
  const series = [
    { title: "measured", colour: "var(--text-3)", values: measured, shape: 0 },
    { title: "predicted", colour: "var(--accent)", values: predicted, shape: 3 },
  ];
  const greatest = Math.max(1, ...measured, ...predicted);
  const margin = { left: 64, right: 12, top: 8, bottom: 26 };
  let at = -1;
  let xOf = (/** @type {number} */ _) => 0;
  const cursor = svg("line", { class: "p-cursor" });
  const chart = frame({
    height: 120,
    label: `Time of each step, measured and predicted, of ${names.length} steps`,
    draw(width, height, root) {
      const [right, bottom] = [width - margin.right, height - margin.bottom];
      const x = linear([0, measured.length - 1], [margin.left + 6, right - 6], Math.max(2, Math.floor(width / 90)));
      const y = linear([0, greatest], [bottom, margin.top], 2);
      xOf = x.toPixel;
      axisLeft(root, y, { left: margin.left, right, format: format.time });
      axisBelow(root, { ...x, ticks: x.ticks.filter(Number.isInteger) }, { y: bottom, left: margin.left, right, format: (place) => names[place] ?? "" });
      for (const one of series) {
        const points = one.values.map((value, place) => [x.toPixel(place), y.toPixel(value)]);
        root.append(
          svg("path", {
            class: "p-line",
            d: points.map(([px, py], place) => `${place ? "L" : "M"}${px.toFixed(1)},${py.toFixed(1)}`).join(""),
            style: { stroke: one.colour },
          }),
        );
        if (points.length <= MARKED)
          root.append(svg("path", { d: points.map(([px, py]) => shape(one.shape, 2.8, px, py)).join(""), style: { fill: one.colour } }));
      }
      for (const [key, value] of Object.entries({ x1: -9, x2: -9, y1: margin.top, y2: bottom })) cursor.setAttribute(key, String(value));
      root.append(cursor);
    },
    keys(event) {
      const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (!step) return;
      mark(at + step);
      event.preventDefault();
      event.stopPropagation();
    },
  });
  /** @param {number} place */
  function mark(place) {
    at = Math.max(0, Math.min(measured.length - 1, place));
    const x = xOf(at);
    cursor.setAttribute("x1", String(x));
    cursor.setAttribute("x2", String(x));
    const bounds = chart.root.getBoundingClientRect();
    showTip(
      bounds.left + x,
      bounds.top + 50,
      tipLines(
        names[at],
        series.map((one) => ({ name: one.title, value: format.time(Math.round(one.values[at])), colour: one.colour })),
      ),
    );
  }
  chart.root.addEventListener("pointermove", (event) => {
    const pointer = /** @type {PointerEvent} */ (event);
    const [a, b] = [xOf(0), xOf(measured.length - 1)];
    const share = (pointer.clientX - chart.root.getBoundingClientRect().left - a) / Math.max(1, b - a);
    if (share > -0.05 && share < 1.05) mark(Math.round(share * (measured.length - 1)));
    else hideTip();
  });
  return h(
    "div",
    { class: "p-stepchart" },
    h("div", { class: "p-bar" }, legend(series.map(({ title, colour, shape: mark }) => ({ title, colour, shape: mark })))),
    chart.element,
  );
}
