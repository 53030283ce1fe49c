// @ts-check
/**
 * Two timelines that show the same time: where one goes, the other follows in the same frame. Which moment of the
 * second lies under which of the first is an alignment (align.js); each keeps its own recording, rows and tiles.
 */

import * as align from "./align.js";
import { RecordingApi, SideApi } from "./api.js";
import { Counterparts } from "./counterpart.js";
import { Side } from "./side.js";
import { Store, initialState } from "./state.js";

/** @typedef {import("./state.js").Ref} Ref */
/** @typedef {import("./rows.js").Row} Row */
/** @typedef {import("./counterpart.js").Pairing} Pairing */
/** A step of the rank that is compared. @typedef {{begin: number, end: number, name: string, number: number, measures: any, chosen?: boolean}} Step */
/**
 * What is compared: all that a link has to say.
 * @typedef {object} Settings
 * @property {"step" | "beginning" | "mark"} align
 * @property {number} step                      place of the step, from 0
 * @property {[number | null, number | null]} marks   of the first and the second
 * @property {boolean} fit                      steps as wide as each other
 * @property {{rank: number | null, device_index: number}} place
 * @property {"gpu" | "host" | "all"} rows
 */

/** The pointer rests so long before its operation's counterpart is asked for, ms. */
const REST_MS = 60;
/** How long a recording that is read anew is left alone, ms. */
const RENEW_MS = 800;
/** In which order rows are shown: what the GPU did first. */
const ORDER = ["stream", "communicator", "nvtx", "thread", "counter"];

export class Pair {
  /**
   * @param {{announce: (text: string) => void}} context of the page
   * @param {{container: HTMLElement, overview: HTMLElement}[]} places for the first and the second
   * @param {{changed: () => void, selected: (pairing: Pairing | null, side: 0 | 1) => void, words: (pairing: Pairing | null) => string[]}} told
   */
  constructor(context, places, told) {
    this.told = told;
    /** @type {align.Alignment} */
    this.alignment = align.BEGINNINGS;
    /** @type {Settings} */
    this.settings = { align: "step", step: 0, marks: [null, null], fit: false, place: { rank: 0, device_index: 0 }, rows: "gpu" };
    /** Steps of the compared rank in both. @type {[Step[], Step[]]} */
    this.steps = [[], []];
    /** Who moves; the other follows. @type {0 | 1} */
    this.leader = 0;
    /** Whom keys are for. @type {0 | 1} */
    this.active = 0;
    this.following = false;
    /** The counterpart of what is under the pointer, else of what is selected. @type {Pairing | null} */
    this.pairing = null;
    /** @type {Pairing | null} */
    this.chosen = null;
    /** The side on which it was chosen. @type {0 | 1} */
    this.chosenBy = 0;
    this.under = "";
    this.timer = 0;
    this.loading = 0;
    this.selecting = 0;
    this.ready = false;
    /** Whether what is shown is what was asked for: not while recordings are taken. */
    this.settled = false;
    this.counterparts = new Counterparts(this);
    /** @type {any[]} */
    this.infos = [null, null];
    /** @type {[any, any]} analyses' ranks */
    this.ranks = [[], []];
    const make = (/** @type {0 | 1} */ side) => {
      const info = { id: "", begin: 0, end: 1, steps: [], bands: [], gaps: [], kinds: [] };
      /** @type {any} */
      const own = { state: new Store(initialState()), api: new RecordingApi("", 0), info, pair: this, side, announce: context.announce };
      return new Side(own, places[side].container, places[side].overview);
    };
    /** @type {[Side, Side]} */
    this.sides = /** @type {any} */ ([]);
    this.sides.push(make(0));
    this.sides.push(make(1));
    for (const { state, context: { side }, scroller, container, over } of this.sides) {
      state.subscribe(["filter", "rowHeight"], ({ filter, rowHeight }) => this.other(side).state.set({ filter, rowHeight }));
      state.subscribe(["marks"], ({ marks }) => this.marked(side, marks));
      state.subscribe(["zero"], () => this.carryZero(side));
      const activate = () => (this.active = side);
      container.addEventListener("pointerenter", activate);
      container.addEventListener("focusin", activate);
      over.setAttribute(
        "aria-label",
        `Timeline of the ${side === 0 ? "first" : "second"} recording. It moves with the other one. Press the question mark for all keys.`,
      );
      scroller.classList.add("pair-scroll");
    }
  }

  /** @param {0 | 1} side */
  other(side) {
    return this.sides[side === 0 ? 1 : 0];
  }

  // What is compared.

  /**
   * Shows two recordings.
   * @param {any[]} infos
   * @param {any[][]} ranks of their analyses
   * @param {Settings} settings
   * @param {[number, number] | null} window in the first's time; null: what is aligned
   */
  async load(infos, ranks, settings, window) {
    const mine = ++this.loading;
    this.settled = false;
    const same = [0, 1].map((side) => this.infos[side]?.id === infos[side].id);
    const samePlace = same[0] && same[1] && this.ready;
    // What was selected stays so when a recording is read anew.
    const again = samePlace ? this.selection() : null;
    this.infos = infos;
    this.ranks = /** @type {[any, any]} */ (ranks);
    this.settings = settings;
    this.ready = true;
    this.counterparts.clear();
    this.chosen = null;
    this.forget();
    this.takeSteps();
    await Promise.all(this.sides.map(async (side, at) => {
      const has = JSON.stringify([infos[at].id, infos[at].generation]);
      side.context.info = this.infoOf(side.context.side);
      if (side.has === has) return side.arrange();
      await side.take(this.apiOf(side.context.side), same[at]);
      side.has = has;
    }));
    if (mine !== this.loading) return;
    this.realign(samePlace && !window ? "stay" : window ?? "aligned", false);
    if (again) await this.selectAt(again);
    else this.told.selected(null, 0);
    if (mine === this.loading) this.settled = true;
  }

  /** What is under the pointer, or was, no longer stands. @private */
  forget() {
    this.pairing = null;
    this.under = "";
  }

  /** Times of both count from the same moment. @private @param {0 | 1} side */
  carryZero(side) {
    const { zero } = this.sides[side].state.get();
    const { state } = this.other(side);
    const there = state.get().zero;
    const wanted = typeof zero === "number" ? Math.round(this.across(side, zero)) : zero;
    // What comes back from there is the same but for rounding.
    if (typeof wanted === "number" && typeof there === "number" && Math.abs(wanted - there) <= 2) return;
    state.set({ zero: wanted });
  }

  /** @private @param {0 | 1} side */
  apiOf(side) {
    const { id, generation, bands } = this.infos[side];
    let waiting = false;
    return new SideApi(id, generation, (at) => this.isPlace(side, (bands ?? [])[at]), () => {
      if (waiting) return;
      waiting = true;
      setTimeout(() => dispatchEvent(new Event("gputrace-pair-stale")), RENEW_MS);
    });
  }

  /** What is compared of a side: the chosen rank, or where that is not in it, its first one. @param {0 | 1} side */
  placeOf(side) {
    const ranks = this.ranks[side];
    const found =
      ranks.find(
        (/** @type {any} */ one) =>
          (one.rank ?? null) === this.settings.place.rank && one.device_index === this.settings.place.device_index,
      ) ?? ranks[0];
    return found
      ? { rank: found.rank ?? null, device_index: found.device_index, steps: found.steps }
      : { ...this.settings.place, steps: [] };
  }

  /** A recording without ranks may number its only process. @private @param {0 | 1} side @param {any} band */
  isPlace(side, band) {
    const place = this.placeOf(side);
    return Boolean(band) && (place.rank === null || (band.rank ?? null) === place.rank) && band.device_index === place.device_index;
  }

  /** The steps of the compared rank. @private */
  takeSteps() {
    this.steps = /** @type {any} */ (
      [0, 1].map((side) => {
        const { steps } = this.placeOf(/** @type {0 | 1} */ (side));
        return (steps ?? []).map((/** @type {any} */ step, /** @type {number} */ at) => ({
          begin: step.start_ns,
          end: step.end_ns,
          host_begin: step.host_start_ns,
          host_end: step.host_start_ns === null ? null : step.host_start_ns + step.host_duration_ns,
          name: step.name,
          // A device has only the steps in which something was launched on it.
          number: Number(/(\d+)(?: \(detected\))?$/.exec(step.name)?.[1] ?? at),
          measures: step,
        }));
      })
    );
  }

  /** A recording as its timeline is to see it: the compared rank alone, the aligned step marked. @private @param {0 | 1} side */
  infoOf(side) {
    const { align: how, step } = this.settings;
    const info = this.infos[side];
    return {
      ...info,
      steps: this.steps[side].map((one, at) => ({ ...one, chosen: how === "step" && at === step })),
      bands: (info.bands ?? []).filter((/** @type {any} */ band) => this.isPlace(side, band)),
    };
  }

  /** Rows of the compared rank. @param {0 | 1} side @param {Row[]} rows */
  kept(side, rows) {
    const place = this.placeOf(side);
    return rows.filter(
      (row) =>
        (place.rank === null || (row.rank ?? null) === place.rank) &&
        (row.device === null || row.device === undefined || row.device === place.device_index) &&
        row.what !== "summary",
    );
  }

  /** Those that are drawn, under paths that say no more than is needed. @param {0 | 1} side @param {Row[]} rows */
  shownRows(side, rows) {
    const { rows: which } = this.settings;
    const kept = this.kept(side, rows);
    const projected = kept.some((row) => row.what === "nvtx" && row.device !== null);
    const wanted = kept.filter((row) => {
      if (row.type === "counter") return which === "all";
      if (row.what === "thread") return which !== "gpu";
      return row.what !== "nvtx" || row.device !== null || which !== "gpu" || !projected;
    });
    const order = (/** @type {Row} */ row) =>
      (row.type === "counter" ? ORDER.length : ORDER.indexOf(row.what)) + (row.what === "nvtx" && row.device === null ? 0.5 : 0);
    const threads = (/** @type {Row} */ row) =>
      new Set(wanted.filter((one) => one.what === row.what && one.device === row.device).map((one) => one.path[one.path.length - 1])).size;
    return wanted
      .map((row, at) => ({ row, at }))
      .sort((a, b) => order(a.row) - order(b.row) || a.at - b.at)
      .map(({ row }) => {
        const last = row.path[row.path.length - 1];
        if (row.type === "counter") return { ...row, path: ["counters", last] };
        if (row.what === "communicator") return { ...row, path: [row.path[row.path.length - 2] ?? last] };
        if (row.what === "nvtx")
          return { ...row, path: [`${row.device === null ? "NVTX" : "NVTX on the GPU"}${threads(row) > 1 ? ` · ${last}` : ""}`] };
        return { ...row, path: [last] };
      });
  }

  /** @param {Partial<Settings>} patch @param {"stay" | "aligned" | [number, number]} where */
  set(patch, where) {
    const before = this.settings;
    this.settings = { ...before, ...patch };
    const moved = before.place.rank !== this.settings.place.rank || before.place.device_index !== this.settings.place.device_index;
    if (moved || before.rows !== this.settings.rows) {
      if (moved) this.takeSteps();
      this.counterparts.clear();
      this.select(null);
      for (const side of this.sides) {
        side.context.info = this.infoOf(side.context.side);
        side.arrange();
      }
    }
    this.realign(where, true);
  }

  /** As a link says. @param {Settings} settings @param {Partial<import("./state.js").Comparison>} linked */
  async restore(settings, { window, selection, area }) {
    this.set(settings, window ?? "aligned");
    await this.choose(selection ?? null, area ?? null);
  }

  /** Selects and measures what a link says. @param {{side: 0 | 1, key: string, start: number} | null} selection @param {[number, number] | null} area */
  async choose(selection, area) {
    await this.selectAt(selection);
    if (area && !selection) this.measured(0, area[0], area[1]);
  }

  /** Brings what is to be aligned under each other. @private @param {"stay" | "aligned" | [number, number]} where @param {boolean} glide */
  realign(where, glide) {
    const { settings, steps } = this;
    const [a, b] = [steps[0][settings.step], steps[1][settings.step]];
    if (settings.align === "step" && !(a && b)) this.settings = { ...settings, align: "beginning" };
    if (settings.align === "mark" && (settings.marks[0] === null || settings.marks[1] === null))
      this.settings = { ...settings, align: a && b ? "step" : "beginning" };
    const how = this.settings.align;
    const ratio = settings.fit && a && b ? align.ofSteps(a, b, true).ratio : 1;
    if (how === "step") this.alignment = align.ofSteps(a, b, settings.fit);
    else if (how === "mark") this.alignment = { first: /** @type {number} */ (settings.marks[0]), second: /** @type {number} */ (settings.marks[1]), ratio };
    else this.alignment = { first: this.infos[0].begin, second: this.infos[1].begin, ratio };
    for (const side of this.sides) {
      this.showMark(side);
      side.context.info = this.infoOf(side.context.side);
      side.overview.redraw();
      void side.overview.load();
      side.invalidate();
    }
    this.carryZero(0);
    this.leader = 0;
    const [first] = this.sides;
    if (Array.isArray(where)) first.moveTo(where[0], where[1], { glide });
    else if (where === "aligned") {
      const window = how === "step" ? align.around(this.alignment, a, b) : align.union(this.alignment, this.infos[0], this.infos[1]);
      // From one step to the next nothing glides: what stays where it is is what did not change.
      first.moveTo(window[0], window[1], { glide: glide && how !== "step" });
    } else first.moveTo(first.target[0], first.target[1], { glide: false });
    this.told.changed();
  }

  /** Draws the mark that a link, or the other side, has set. @private @param {Side} side */
  showMark(side) {
    const at = this.settings.marks[side.context.side];
    const { marks } = side.state.get();
    if ((marks[0]?.from ?? null) !== at) side.state.set({ marks: at === null ? [] : [{ from: at, to: at, kept: true, label: "" }] });
  }

  /** What the palette offers beside the timelines' own. */
  commands() {
    const one = (/** @type {string} */ title, /** @type {string} */ keys, /** @type {() => void} */ run) => ({ group: "Compare", title, keys, run });
    return [
      one("Next step of both recordings", "J", () => this.turn(1)),
      one("Previous step of both recordings", "K", () => this.turn(-1)),
      one(this.settings.fit ? "Same scale for both" : "Steps of both as wide as each other", "", () => this.set({ fit: !this.settings.fit }, "aligned")),
    ];
  }

  /** To the step before or behind. @param {1 | -1} by */
  turn(by) {
    const last = Math.min(this.steps[0].length, this.steps[1].length) - 1;
    if (last < 0) return;
    const middle = (this.sides[0].target[0] + this.sides[0].target[1]) / 2;
    const from = this.settings.align === "step" ? this.settings.step : Math.max(0, align.stepAt(this.steps[0], middle));
    this.select(null);
    this.set({ align: "step", step: Math.max(0, Math.min(last, from + by)) }, "aligned");
  }

  // Time.

  /** @param {0 | 1} side @param {number} at of that side @returns {number} of the other side */
  across(side, at) {
    return side === 0 ? align.toSecond(this.alignment, at) : align.toFirst(this.alignment, at);
  }

  /** @param {0 | 1} side @returns {[number, number]} */
  extentOf(side) {
    const [a, b] = this.infos ?? [];
    if (!a || !b) return [0, 1];
    const [from, to] = align.union(this.alignment, a, b);
    return side === 0 ? [from, to] : [align.toSecond(this.alignment, from), align.toSecond(this.alignment, to)];
  }

  /** @param {0 | 1} side */
  zeroOf(side) {
    return this.alignment ? (side === 0 ? this.alignment.first : this.alignment.second) : 0;
  }

  /** Takes the other side where this one is, in the same frame. @param {0 | 1} side @param {number} now */
  follow(side, now) {
    if (this.following || !this.ready) return;
    const [own, other] = [this.sides[side], this.other(side)];
    if (!other) return;
    if (this.leader === side) {
      const [from, to] = own.shown.map((at) => this.across(side, at));
      if (from !== other.shown[0] || to !== other.shown[1]) {
        other.shown = [from, to];
        other.dirty = true;
        other.state.set({ window: other.shown });
      }
      const [a, b] = own.target.map((at) => this.across(side, at));
      other.target = [a, b];
      if (own.shown[0] === own.target[0] && own.shown[1] === own.target[1]) this.told.changed();
    }
    this.following = true;
    other.dirtyOverlay = true;
    other.frame(now);
    this.following = false;
  }

  // Operations.

  /** The pointer is over something, or over nothing. @param {0 | 1} side @param {import("./stage.js").Hit | null} hit */
  pointed(side, hit) {
    if (!this.sides[side]?.pointer && this.other(side)?.pointer) return;
    const under = hit && hit.index >= 0 ? `${side} ${hit.row} ${hit.index}` : "";
    if (under === this.under) return;
    this.under = under;
    clearTimeout(this.timer);
    this.show(this.chosen);
    if (!hit || hit.index < 0) return;
    const ref = { row: hit.row, index: hit.index, start: hit.start, duration: hit.duration, name: hit.name ?? "", kind: hit.kind };
    this.timer = setTimeout(async () => {
      const pairing = await this.counterparts.of(side, ref).catch(() => null);
      if (pairing && this.under === under) this.show(pairing);
    }, REST_MS);
  }

  /** @private @param {Pairing | null} pairing */
  show(pairing) {
    if (this.pairing === pairing) return;
    this.pairing = pairing;
    for (const side of this.sides) side.invalidateOverlay();
  }

  /** @param {Pairing | null} pairing */
  words(pairing) {
    return this.told.words(pairing);
  }

  /** An operation was chosen on one side: what stands for it on the other is chosen too. @param {0 | 1} side @param {Ref | null} ref */
  async selected(side, ref) {
    const mine = ++this.selecting;
    const [own, other] = [this.sides[side], this.other(side)];
    other.state.set({ selection: null });
    own.detail = null;
    other.detail = null;
    this.chosen = null;
    if (!ref) {
      for (const one of this.sides) one.state.set({ area: null, selection: null });
      this.under = "";
      this.show(null);
      this.told.selected(null, side);
      this.told.changed();
      return;
    }
    try {
      const pairing = await this.counterparts.of(side, ref);
      const twin = pairing.refs[1 - side];
      const [detail, there] = await Promise.all([this.counterparts.slice(side, ref), twin && this.counterparts.slice(/** @type {0 | 1} */ (1 - side), twin)]);
      if (mine !== this.selecting) return;
      this.chosen = pairing;
      this.chosenBy = side;
      own.detail = detail;
      other.detail = there;
      own.state.set({ selection: pairing.refs[side] });
      other.state.set({ selection: twin });
      if (twin) other.reveal(twin.row);
      this.show(pairing);
      this.told.selected(pairing, side);
      this.told.changed();
    } catch (error) {
      if (mine === this.selecting) this.told.selected(null, side);
    }
    for (const one of this.sides) one.invalidateOverlay();
  }

  /** What is selected, as a link says it. @returns {{side: 0 | 1, key: string, start: number} | null} */
  selection() {
    const side = this.chosenBy;
    const ref = this.chosen?.refs[side];
    const row = ref && this.sides[side].rows[ref.row];
    return row ? { side, key: row.key, start: ref.start } : null;
  }

  /** Selects what a link says; nothing where there is no such operation. @param {{side: 0 | 1, key: string, start: number} | null} wanted */
  async selectAt(wanted) {
    const now = this.selection();
    if (now?.side === wanted?.side && now?.key === wanted?.key && now?.start === wanted?.start && wanted) return;
    const ref = wanted ? await this.sides[wanted.side].context.api.sliceAt(wanted.key, wanted.start).catch(() => null) : null;
    await this.selected(wanted?.side ?? 0, ref);
    if (wanted && ref) this.sides[wanted.side].reveal(ref.row);
  }

  /** @param {Ref | null} ref @param {0 | 1} [side] @param {{reveal?: boolean}} [options] */
  select(ref, side = 0, options = {}) {
    this.sides[side].select(ref, options);
  }

  /**
   * Goes to the first operation of a name, in the step that is looked at if it is there.
   * @param {string} name
   * @returns {Promise<boolean>} whether there is any
   */
  async find(name) {
    let found = await this.counterparts.firstOf(name, this.settings.step);
    if (!found) {
      found = await this.counterparts.anywhere(name);
      if (!found) return false;
      const step = align.stepAt(this.steps[found.side], found.ref.start);
      if (step >= 0 && step < Math.min(this.steps[0].length, this.steps[1].length)) this.set({ align: "step", step }, "aligned");
    }
    this.select(found.ref, found.side, { reveal: true });
    return true;
  }

  /** A stretch of time was drawn on one side: it is the same on both. @param {0 | 1} side @param {number} from @param {number} to */
  measured(side, from, to) {
    this.sides[side].state.set({ area: { from, to, rows: [] } });
    this.other(side).state.set({ area: { from: this.across(side, from), to: this.across(side, to), rows: [] } });
    this.told.changed();
  }

  /** The newest mark of a side is the one that counts. @private @param {0 | 1} side @param {import("./state.js").Mark[]} marks */
  marked(side, marks) {
    if (marks.length > 1) {
      this.sides[side].state.set({ marks: marks.slice(-1) });
      return;
    }
    const at = marks[0]?.from ?? null;
    if (at === this.settings.marks[side]) return;
    const pair = /** @type {[number | null, number | null]} */ ([...this.settings.marks]);
    pair[side] = at;
    // What marks an operation marks what stands for it too: the two can be aligned at once.
    const { refs } = this.chosen ?? { refs: [null, null] };
    const other = side === 0 ? 1 : 0;
    if (refs[0] && refs[1] && (at === null || at === refs[side]?.start)) pair[other] = at === null ? null : (refs[other]?.start ?? null);
    this.set({ marks: pair }, "stay");
  }

  /**
   * Everything that changes with the page: its theme, whether it shows.
   * @param {boolean} visible
   * @param {boolean} dark
   * @param {"auto" | "light" | "dark"} theme
   */
  appear(visible, dark, theme) {
    for (const side of this.sides) {
      side.container.hidden = !visible;
      side.state.set({ dark, theme });
      if (!visible) side.pointer = null;
      if (!visible) side.tooltip.show(null, null);
      side.invalidate();
    }
  }

  /** What tests ask for. */
  summary() {
    return {
      ...this.settings, alignment: this.alignment, window: this.sides[0].shown,
      sides: this.sides.map((side) => ({ ...side.summary(), selection: side.state.get().selection, colours: undefined })),
    };
  }
}
