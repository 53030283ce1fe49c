// @ts-check
/** Ranks: what each rank came to in each step, as a picture; from a cell to that rank's timeline. */

import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { FIRST, groupings, measureOf, stateWords } from "../heat.js";
import { HeatMap } from "../heat_map.js";
import { afterTyping, choice, chosenSteps, failed, nothing, ofSteps, section, select } from "./shared.js";

/** @typedef {import("../heat.js").HeatView} HeatView */
/** @typedef {import("./shared.js").Context} Context */

const TITLE = "Ranks";

/** A value in the unit of its measure. @param {{unit: string}} measure @returns {(value: number | null) => string} */
const written = ({ unit }) => (value) => (value === null ? "no value" : unit === "ratio" ? format.percent(value) : format.time(value));

export const ranks = {
  id: "ranks",
  title: TITLE,
  key: "Q",
  /** @param {HTMLElement} container @param {Context} context @returns {import("./shared.js").Mounted} */
  mount(container, context) {
    const part = new RanksPart(container, context);
    const end = context.state.subscribe(["heat", "steps", "dark"], (/** @type {any} */ _, /** @type {Set<string>} */ changed) => part.changed(changed));
    void part.load();
    return {
      refresh: afterTyping(container, () => void part.load()),
      part,
      destroy() {
        end();
        part.destroy();
      },
    };
  },
};

class RanksPart {
  /** @param {HTMLElement} container @param {Context} context */
  constructor(container, context) {
    this.container = container;
    this.context = context;
    this.asked = 0;
    /** What is drawn of what the address says. */
    this.drawn = "";
    /** @type {import("../heat.js").Overview | null} */
    this.overview = null;
    /** Cells are asked for of the generation that the overview is of. @type {any} */
    this.api = context.api;
    this.map = new HeatMap({
      choose: (cell) => this.choose({ cell }),
      open: (row, step) => this.open(row, step),
      resized: () => void this.fill(),
      say: (text) => context.announce?.(text),
    });
    this.note = h("p", { class: "p-note heat-note", role: "status" });
  }

  /** @returns {HeatView} */
  get view() {
    return this.context.state.get().heat ?? FIRST;
  }

  /** What of the view needs other cells. */
  get key() {
    const { measure, binned } = this.view;
    return JSON.stringify([measure, binned, chosenSteps(this.context)]);
  }

  /** What the user chose, which shows already. @param {Partial<HeatView>} patch */
  choose(patch) {
    this.context.state.set({ heat: { ...this.view, ...patch } });
  }

  /** @param {Set<string>} changed */
  changed(changed) {
    if (!this.overview) return;
    if (changed.has("dark")) this.map.draw();
    if (this.key !== this.drawn) void this.fill();
    else this.map.arrange(this.view);
    if (changed.has("heat")) this.controls();
  }

  /** Asks who the ranks are, then for their cells. */
  async load() {
    const mine = ++this.asked;
    const { container, context } = this;
    const { api } = context;
    // Until the new one is there nothing is asked for by the old one.
    this.overview = null;
    if (!container.hasChildNodes()) {
      const doing = typeof context.info.reading === "number" ? "Reading" : "Analysing";
      replace(container, h("div", { class: "p-loading", role: "status" }, `${doing} the recording …`));
    }
    try {
      const overview = await api.ranks();
      if (mine !== this.asked) return;
      this.overview = overview;
      this.api = api;
      this.drawn = "";
      if (!overview.rows.length) return replace(container, nothing("No rank ran anything on a GPU."));
      this.bar = h("div", { class: "p-bar" });
      const isFocused = document.activeElement === this.map.body;
      replace(container, section("Ranks by steps", null, this.about(overview), this.bar, this.note, this.map.legend, this.map.element));
      if (isFocused) this.map.body.focus({ preventScroll: true });
      this.map.fit();
      if (!overview.steps.length)
        this.container.append(nothing(
          "This recording has no steps.",
          'Name them with ranges (NVTX, record_function) like "step 12", and each gets a column here.',
        ));
      this.controls();
      await this.fill();
    } catch (error) {
      if (mine !== this.asked || /** @type {any} */ (error)?.status === 410) return;
      replace(container, failed(error, () => void this.load(), TITLE));
    }
  }

  /** How many ranks it is of. @private @param {import("../heat.js").Overview} overview */
  about(overview) {
    const waiting = overview.rows.filter((row) => row.state === "reading").length;
    const missing = overview.all - overview.here - waiting;
    return h("p", { class: missing > 0 ? "p-warned heat-here" : "p-note heat-here" },
      missing > 0 || waiting > 0
        ? `${format.count(overview.here)} of ${format.count(overview.all)} ranks are here`
        : `${format.count(overview.all)} ${overview.all === 1 ? "rank" : "ranks"}`,
      waiting > 0 ? `; ${format.count(waiting)} are being read` : "",
      missing > 0 ? `; of ${format.count(missing)} there is no recording` : "",
      `, ${format.count(overview.steps.length)} ${overview.steps.length === 1 ? "step" : "steps"}.`);
  }

  /** What is shown, and how. @private */
  controls() {
    const { overview, view, bar } = this;
    if (!overview || !bar) return;
    const measure = measureOf(overview, view.measure);
    const said = JSON.stringify([{ ...view, cell: null }, overview.compared, this.map.every]);
    if (bar.dataset.said === said) return;
    bar.dataset.said = said;
    const had = bar.contains(document.activeElement) ? document.activeElement?.getAttribute("aria-label") ?? document.activeElement?.textContent : null;
    const groups = groupings(overview);
    replace(bar,
      h("label", { class: "heat-label" }, "Measure ",
        select("Measure", overview.measures.map(({ name, label, compared }) => ({
          id: name, title: label[0].toUpperCase() + label.slice(1) + (compared && !overview.compared ? " (ranks are being compared)" : "") })),
        measure.name, (name) => this.choose({ measure: name }))),
      groups.length > 1
        ? h("label", { class: "heat-label" }, "Group by ",
          select("Group by", groups, view.group, (group) => this.choose({ group })))
        : null,
      choice("Order of the rows", [
        { id: "rank", title: "By rank" },
        { id: "outliers", title: "Outliers first", hint: "By the mean distance from the median of all ranks in the same step" },
      ], view.sort, (sort) => this.choose({ sort: /** @type {"rank"} */ (sort) })),
      this.map.every > 1 ? choice("What a cell shows of several steps", [
        { id: "max", title: "Greatest", hint: "The greatest of the steps of a cell" },
        { id: "median", title: "Median", hint: "The median of the steps of a cell" },
      ], view.binned, (binned) => this.choose({ binned: /** @type {"max"} */ (binned) })) : null);
    if (had) for (const one of bar.querySelectorAll("select, button"))
      if ((one.getAttribute("aria-label") ?? one.textContent) === had) /** @type {HTMLElement} */ (one).focus();
  }

  /** Gets the cells of the measure, and draws them. */
  async fill() {
    const { overview, context, map } = this;
    if (!overview?.steps.length) return;
    const mine = ++this.asked;
    const { key, view } = this;
    const measure = measureOf(overview, view.measure);
    map.element.setAttribute("aria-busy", String(this.drawn !== "" && this.drawn !== key));
    try {
      const cells = await this.api.rankCells(measure.name, { steps: chosenSteps(context) || null, columns: map.columns, binned: view.binned });
      if (mine !== this.asked) return;
      this.drawn = key;
      map.show(overview, cells, measure, written(measure));
      map.arrange(this.view);
      this.tell(overview, measure);
      this.controls();
    } catch (error) {
      if (mine !== this.asked || /** @type {any} */ (error)?.status === 410) return;
      replace(this.note, `${TITLE}: ${/** @type {any} */ (error)?.message ?? error}`);
    }
    map.element.setAttribute("aria-busy", "false");
  }

  /** What the picture is. @private @param {import("../heat.js").Overview} overview @param {import("../../types/analysis.js").StepMeasure} measure */
  tell(overview, measure) {
    const { every, place: { left_out } } = this.map;
    const waits = measure.compared && !overview.compared;
    replace(this.note,
      ofSteps(this.context),
      `${measure.label[0].toUpperCase()}${measure.label.slice(1)}: ${measure.definition}. `,
      waits ? "It is there when all ranks have been read and compared. " : "",
      every > 1 ? `A cell is ${format.count(every)} steps: ${this.view.binned === "max" ? "the greatest" : "the median"} of them. ` : "A cell is one step. ",
      left_out > 0 ? `${format.count(left_out)} ranks have no room in the picture: sort by outliers. ` : "",
      "Arrow keys move, Enter opens the rank's timeline at that step.");
  }

  /** @private @param {number} row @param {number} step place of the step */
  open(row, step) {
    const { overview, context } = this;
    const of = overview?.rows[row];
    if (!overview || !of) return;
    if (of.state === "missing" || of.state === "reading") return context.announce?.(stateWords(of));
    void context.openRank?.({ rank: of.rank, device: of.device_index }, overview.steps[step] ?? null);
  }

  destroy() {
    this.asked++;
    this.map.destroy();
    this.container.textContent = "";
  }
}
