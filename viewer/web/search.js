// @ts-check
/** Search over names: the box in the bar, the hits one after another, ticks on the overview. */

import { exactly } from "./counterpart.js";
import { h, replace } from "./dom.js";
import { count } from "./format.js";
import { icon, iconButton } from "./icons.js";

const WAIT_MS = 180;
/** Hits that are asked for at once. */
const PAGE = 1000;
/** Marks of hits in view at most. */
const MARKS = 400;

/** What a search goes by, before its text: "module: Linear_3". */
const BY = /^(module|class|function):\s*(.+)$/s;

/** The search for what a module, the modules of a class or a function launched. @param {"module" | "class" | "function"} by @param {string} name */
export const launchedBy = (by, name) => `${by}: "${name}"`;

/**
 * What the server is asked for. What stands between quotes behind "module:" or "function:" is a whole name, and so is a class.
 * @param {string} query
 * @param {{regex: boolean, case: boolean}} mode
 * @returns {{q: string, by: string, regex: boolean, case: boolean}}
 */
export function askedFor(query, mode) {
  const [, by, text] = query.match(BY) ?? [];
  if (!by) return { ...mode, q: query, by: "name" };
  const whole = text.match(/^"(.+)"$/s)?.[1];
  if (by === "class") return { q: exactly(whole ?? text).replace(/\$$/, "(_\\d+)?$"), by: "module", regex: true, case: mode.case || whole !== undefined };
  return whole === undefined ? { ...mode, q: text, by } : { q: exactly(whole), by, regex: true, case: true };
}

export class Search {
  /** @param {import("./timeline.js").Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.state = timeline.state;
    /** @type {import("./state.js").Ref[]} */
    this.hits = [];
    this.offset = 0;
    this.total = 0;
    /** Which hit was gone to last, counted from 0; -1: none. */
    this.at = -1;
    this.error = "";
    /** Rows with hits, for the filter. @type {Set<number> | null} */
    this.rows = null;
    /** How many hits begin in each 512th of the recording: says which page of them a window needs. @type {number[]} */
    this.ticks = [];
    this.asked = "";
    this.same = "";
    this.timer = 0;
    this.viewTimer = 0;
    /** @type {AbortController | null} */
    this.controller = null;

    const container = /** @type {HTMLElement} */ (document.getElementById("search"));
    this.input = h("input", {
      type: "text",
      id: "query",
      placeholder: "Search names",
      "aria-label": "Search the names of operations",
      spellcheck: "false",
      autocomplete: "off",
      title: "Search (/); module: NAME, class: NAME and function: NAME find what these launched",
      oninput: () => this.state.set({ query: this.input.value }),
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event),
    });
    this.words = h("span", { class: "hits", role: "status" });
    this.regex = h(
      "button",
      {
        class: "toggle",
        type: "button",
        title: "Regular expression",
        "aria-label": "Regular expression",
        onclick: () => this.mode({ regex: !this.state.get().searchMode.regex }),
      },
      ".*",
    );
    this.case = h(
      "button",
      {
        class: "toggle",
        type: "button",
        title: "Upper and lower case differ",
        "aria-label": "Upper and lower case differ",
        onclick: () => this.mode({ case: !this.state.get().searchMode.case }),
      },
      "Aa",
    );
    this.previous = iconButton("up", "Previous hit (Shift+Enter)", () => void this.step(-1));
    this.next = iconButton("down", "Next hit (Enter)", () => void this.step(1));
    this.clear = iconButton("close", "Clear the search (Escape)", () => this.state.set({ query: "" }));
    replace(container, icon("search"), this.input, this.words, this.case, this.regex, this.previous, this.next, this.clear);
    this.state.subscribe(["query", "searchMode", "generation"], () => this.changed());
    this.show();
    if (this.state.get().query) this.changed();
  }

  /** @private @param {{regex?: boolean, case?: boolean}} patch */
  mode(patch) {
    this.state.set({ searchMode: { ...this.state.get().searchMode, ...patch } });
    this.input.focus();
  }

  /** @private @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Enter") {
      event.preventDefault();
      void this.step(event.shiftKey ? -1 : 1);
    } else if (event.key === "Escape") {
      if (this.input.value) this.state.set({ query: "" });
      this.timeline.over.focus();
    }
  }

  /** @private */
  changed() {
    const { query, searchMode, generation } = this.state.get();
    if (this.input.value !== query) this.input.value = query;
    const asked = JSON.stringify([query, searchMode, generation]);
    if (asked === this.asked) return this.show();
    this.asked = asked;
    clearTimeout(this.timer);
    this.controller?.abort();
    // The same search in a new generation goes on where it was.
    const same = JSON.stringify([query, searchMode]);
    if (same !== this.same) this.at = -1;
    this.same = same;
    if (query === "") {
      this.take({ hits: [], total: 0, ticks: [] }, 0);
      return;
    }
    this.waiting = new Promise((resolve) => {
      this.timer = setTimeout(async () => {
        await this.ask(0);
        resolve(undefined);
      }, WAIT_MS);
    });
    this.show();
  }

  /** @private @param {number} offset */
  async ask(offset) {
    const { query, searchMode } = this.state.get();
    this.controller = new AbortController();
    const { signal } = this.controller;
    try {
      const { q, ...how } = askedFor(query, searchMode);
      const answer = await this.timeline.context.api.search(q, { ...how, limit: PAGE, offset }, signal);
      this.error = "";
      this.take(answer, offset);
    } catch (error) {
      if (signal.aborted) return;
      this.take({ hits: [], total: 0, ticks: [] }, 0);
      this.error = /** @type {Error} */ (error).message;
      this.show();
    }
  }

  /** @private @param {any} answer @param {number} offset */
  take(answer, offset) {
    this.hits = answer.hits;
    this.total = answer.total;
    this.offset = offset;
    this.error = "";
    if (offset === 0) {
      this.rows = answer.hits.length ? new Set(answer.hits.map((/** @type {any} */ hit) => hit.row)) : null;
      this.ticks = answer.ticks ?? [];
      this.timeline.overview.setTicks(this.ticks);
      if (this.state.get().filter.onlyMatches) this.timeline.relayout();
    }
    this.timeline.invalidateOverlay();
    this.show();
  }

  /** @private */
  show() {
    const { query, searchMode } = this.state.get();
    this.regex.setAttribute("aria-pressed", String(searchMode.regex));
    this.case.setAttribute("aria-pressed", String(searchMode.case));
    for (const element of [this.regex, this.case, this.previous, this.next, this.clear]) element.hidden = query === "";
    const none = query !== "" && (this.error !== "" || (this.total === 0 && !this.controller?.signal.aborted));
    this.words.classList.toggle("none", none && this.error !== "");
    this.words.title = this.error;
    this.words.textContent =
      query === ""
        ? ""
        : this.error
          ? "not understood"
          : this.total === 0
            ? "no hits"
            : this.at < 0
              ? count(this.total)
              : `${count(this.at + 1)} of ${count(this.total)}`;
  }

  /** How many hits certainly begin before a time. @private @param {number} at */
  before(at) {
    const { begin, end } = this.timeline.context.info;
    const last = Math.min(this.ticks.length, Math.floor(((at - begin) / Math.max(1, end - begin)) * this.ticks.length));
    let sum = 0;
    for (let k = 0; k < last; k += 1) sum += this.ticks[k];
    return Math.max(0, Math.min(this.total - 1, sum));
  }

  /** Whether the hits of a window are here, as far as a page holds them. @private @param {number} from @param {number} to */
  holds(from, to) {
    if (this.total <= this.hits.length) return true;
    const first = this.before(from);
    const last = Math.min(this.before(to), first + MARKS);
    return first >= this.offset && last <= this.offset + this.hits.length;
  }

  /** Goes to the next or previous hit; the first time, to the first one that begins in view or later. @param {1 | -1} step */
  async step(step) {
    await this.waiting;
    if (this.total === 0) return;
    if (this.at < 0) {
      const [from, to] = this.timeline.target;
      if (!this.holds(from, to)) await this.ask(this.before(from));
      const ahead = this.hits.findIndex((hit) => hit.start >= from);
      const first = ahead < 0 ? this.offset + this.hits.length : ahead + this.offset;
      this.at = (step > 0 ? first : first - 1 + this.total) % this.total;
    } else this.at = (this.at + step + this.total) % this.total;
    if (this.at < this.offset || this.at >= this.offset + this.hits.length) await this.ask(Math.max(0, this.at - (step > 0 ? 10 : PAGE - 10)));
    const hit = this.hits[this.at - this.offset];
    this.show();
    if (!hit) return;
    this.state.set({ tab: "timeline" });
    this.timeline.select(hit, { reveal: true, legible: true });
  }

  /** Hits in view, to be marked. */
  inView() {
    if (this.total === 0) return [];
    const [from, to] = this.timeline.shown;
    if (!this.holds(from, to) && !this.viewTimer) {
      this.viewTimer = setTimeout(() => {
        this.viewTimer = 0;
        const [begin, end] = this.timeline.target;
        if (this.total > 0 && !this.holds(begin, end)) void this.ask(Math.max(0, this.before(begin) - 10));
      }, WAIT_MS);
    }
    const seen = [];
    for (const hit of this.hits) {
      if (hit.start + hit.duration < from || hit.start > to) continue;
      seen.push(hit);
      if (seen.length >= MARKS) break;
    }
    return seen;
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  summary() {
    return { total: this.total, at: this.at, error: this.error, hits: this.hits.length };
  }
}
