// @ts-check
/** Beside the tabs: which steps every number on the page is of, and where to choose them. */

import { h, replace } from "./dom.js";
import { isAmong, stepRange, stepWords } from "./step_range.js";

/** @param {string} text */
const capital = (text) => text[0].toUpperCase() + text.slice(1);

export class ChosenSteps {
  /** @param {import("./main.js").Page} page @param {HTMLElement} element */
  constructor(page, element) {
    this.page = page;
    this.context = page.context;
    this.element = element;
    /** Whether the field shows. */
    this.writing = false;
    this.context.state.subscribe(["steps", "tab"], (_, changed) => {
      if (changed.has("steps")) this.writing = false;
      if (!this.writing) this.draw();
    });
  }

  /** @returns {string} */
  get steps() {
    return this.context.state.get().steps;
  }

  /** The recording's steps that have numbers. @private @returns {any[]} */
  known() {
    return (this.context.info.steps ?? []).filter((/** @type {any} */ step) => typeof step.number === "number");
  }

  /** Who writes keeps the field while a recording grows. */
  refresh() {
    if (!this.writing) this.draw();
  }

  draw() {
    const { steps, context } = this;
    const { tab } = context.state.get();
    // One step is all there is.
    if (this.known().length < 2 && !steps) return replace(this.element);
    const had = this.element.contains(document.activeElement);
    if (this.writing) replace(this.element, this.field());
    else if (!steps)
      replace(
        this.element,
        h("button", { class: "p-button", type: "button", title: "Limit all numbers of the page to some steps", onclick: () => this.edit() }, "All steps"),
      );
    else
      replace(
        this.element,
        h("span", { class: "steps-chosen" },
          h("button", { type: "button", title: "All numbers are of these steps alone. Choose others", onclick: () => this.edit() }, capital(stepWords(steps))),
          h("button", { type: "button", "aria-label": "All steps", title: "All steps", onclick: () => this.choose("") }, "×")),
        this.page.isWhole(tab) ? h("span", { class: "faint", role: "note" }, "This view is of the whole run.") : null,
        tab === "timeline"
          ? h("button", { class: "p-link", type: "button", title: `Show ${stepWords(steps)} on the timeline`, onclick: () => this.go() }, "Show them")
          : null,
      );
    if (had && !this.writing) /** @type {HTMLElement | null} */ (this.element.querySelector(".steps-chosen button, .p-button"))?.focus();
  }

  /** Asks which. */
  edit() {
    this.writing = true;
    this.draw();
    const input = this.element.querySelector("input");
    input?.focus();
    input?.select();
  }

  /** @private */
  field() {
    const numbers = this.known().map(({ number }) => number);
    const all = numbers.length ? `${Math.min(...numbers)}-${Math.max(...numbers)}` : "5-20";
    const wrong = h("span", { class: "bad", role: "alert" });
    const input = h("input", {
      type: "text", value: this.steps, placeholder: all, spellcheck: "false", autocomplete: "off", "aria-label": `Only these steps, like ${all}`,
    });
    const say = (/** @type {string} */ line) => {
      replace(wrong, line);
      input.setAttribute("aria-invalid", String(line !== ""));
    };
    const close = () => {
      this.writing = false;
      this.draw();
    };
    const take = async () => {
      const line = await this.take(input.value);
      if (line === null) close();
      else say(line);
    };
    input.addEventListener("input", () => say(""));
    input.addEventListener("keydown", (event) => {
      event.stopPropagation();
      if (event.key === "Escape") close();
      if (event.key === "Enter") void take();
    });
    // Nothing was written: nothing is meant.
    input.addEventListener("blur", (event) => {
      const isIn = event.relatedTarget instanceof Node && this.element.contains(event.relatedTarget);
      if (!isIn && this.writing && input.value === this.steps) close();
    });
    return [
      h("label", {}, "Steps ", input), wrong,
      h("button", { class: "p-button", type: "button", onclick: () => void take() }, "Only these"),
      h("button", { class: "p-button", type: "button", onclick: () => (this.steps ? this.choose("") : close()) }, "All"),
    ];
  }

  /** Takes what was written, or says in a line why not. @param {string} text @returns {Promise<string | null>} */
  async take(text) {
    const steps = text.trim() === "" ? "" : stepRange(text);
    if (steps === null) return "Steps are written like 3-7";
    try {
      // Before the page becomes one of these steps: there may be none of them.
      if (steps) await this.page.analysisOf(steps);
    } catch (error) {
      return capital(/** @type {Error} */ (error).message);
    }
    this.choose(steps);
    return null;
  }

  /** @param {string} steps */
  choose(steps) {
    this.context.state.set({ steps });
    this.context.announce(steps ? `All numbers are of ${stepWords(steps)} alone` : "All numbers are of the whole run");
  }

  /** Shows them on the timeline. @private */
  go() {
    const chosen = this.known().filter(({ number }) => isAmong(this.steps, number));
    if (chosen.length) void this.context.goTo({ from: Math.min(...chosen.map(({ begin }) => begin)), to: Math.max(...chosen.map(({ end }) => end)) });
  }

  /** @returns {{title: string, group: string, run: () => void}[]} */
  commands() {
    if (this.known().length < 2 && !this.steps) return [];
    return [
      { title: "Only some steps …", group: "Page", run: () => this.edit() },
      ...(this.steps ? [{ title: "All steps", group: "Page", run: () => this.choose("") }] : []),
    ];
  }
}
