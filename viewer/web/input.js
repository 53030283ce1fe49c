// @ts-check
/** Keys, wheel, pointer and touch on the timeline. Everything that the pointer does has a key. */

import { openMenu } from "./menu.js";
import { hasClock, zeroHere, zeroName } from "./times.js";

/**
 * What is shown on `?`: keys, and what they do.
 * @type {{group: string, rows: [string[], string][]}[]}
 */
export const keys = [
  { group: "Move", rows: [
    [["W", "S"], "zoom in, out at the pointer"],
    [["A", "D", "←", "→"], "move earlier, later; with Shift faster"],
    [["↑", "↓"], "row above, below"],
    [["0", "Home"], "show everything"],
    [["F"], "zoom to the selection or area; twice: fill the view"],
    [["Ctrl + wheel"], "zoom at the pointer"],
    [["Shift + wheel", "Shift + drag"], "move in time"],
    [["drag on the ruler"], "move; up and down: zoom"],
    [["right click on the ruler"], "what times are counted from"],
  ] },
  { group: "Select", rows: [
    [["click"], "select an operation"],
    [["drag"], "select an area: counts, sums, percentiles"],
    [["R"], "statistics of all that is in view"],
    [["I"], "flame graph of the area, or of all that is in view"],
    [[".", ","], "next, previous operation on the row"],
    [["Shift + .", "Shift + ,"], "next, previous of the same name"],
    [["]", "["], "along the arrows: launch, kernel, other ranks"],
    [["O"], "draw the critical path, or not"],
    [["B", "Shift + B"], "next, previous piece of the critical path"],
    [["Enter"], "select the operation nearest to the pointer or the middle"],
    [["Esc"], "select nothing"],
  ] },
  { group: "Find and mark", rows: [
    [["/"], "search names"],
    [["Enter", "Shift + Enter"], "next, previous hit, in the search box"],
    [["N", "Shift + N"], "next, previous hit, anywhere"],
    [["M"], "mark the selection, the area or the pointer; again: take it away"],
    [["Shift + M"], "take all marks away"],
    [["Z"], "count times from the selection, area, mark or step; again: from the beginning"],
    [["Shift + Z"], "the time of day, or not"],
    [["V"], "names short or whole"],
    [["C"], "copy the name of the selection"],
  ] },
  { group: "Rows", rows: [
    [["Space"], "fold or open the group"],
    [["E", "Shift + E"], "open, fold all groups"],
    [["P"], "pin the row to the top, or let it go"],
    [["Alt + ↑", "Alt + ↓"], "move the group up, down"],
    [["H"], "row height"],
    [["G"], "filter rows by name"],
    [["X"], "hide empty rows, or show them"],
  ] },
  { group: "Compare", rows: [
    [["J", "K"], "next, previous step of both recordings"],
    [["M"], "in both: the marks that can be aligned"],
    [["W", "S", "A", "D", "…"], "the timeline's keys, on the one that was pointed at last; the other follows"],
  ] },
  { group: "Page", rows: [
    [["Ctrl + K", "Ctrl + Shift + P"], "all commands"],
    [["T"], "light or dark"],
    [["L"], "follow a recording that is being written"],
    [["1 – 9"], "the views: timeline, steps, …"],
    [["Y"], "why: causes, critical path, what if"],
    [["U"], "operators: who launched what"],
    [["?"], "these keys"],
  ] },
];

/** Zoom of one press, and a second of holding. */
const PRESS_ZOOM = 0.72;
const HELD_ZOOM = 0.16;
/** Movement of one press, and of a second of holding, in windows. */
const PRESS_PAN = 0.12;
const HELD_PAN = 1.4;
/** Holding counts after this long: a tap is a step of its own. */
const HOLD_MS = 140;
const DRAG_PX = 4;

/** Keys by their place on the keyboard, so that they are where they are on any layout. */
const HOLDABLE = /** @type {Record<string, "in" | "out" | "left" | "right">} */ ({
  KeyW: "in",
  KeyS: "out",
  KeyA: "left",
  KeyD: "right",
  ArrowLeft: "left",
  ArrowRight: "right",
});

export class Input {
  /** @param {import("./timeline.js").Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    /** @type {Map<string, {what: string, since: number, fast: boolean}>} */
    this.pressed = new Map();
    /** An area that is being drawn, CSS pixels. @type {{from: number, to: number, top: number, bottom: number} | null} */
    this.area = null;
    this.dragging = false;
    /** @type {Map<number, PointerEvent>} */
    this.touches = new Map();
    /** How far two fingers were apart last; 0 without a second one. */
    this.apart = 0;
    const { over, rulerCanvas, scroller } = timeline;
    addEventListener("keydown", (event) => this.keyDown(event));
    addEventListener("keyup", (event) => {
      this.pressed.delete(event.code);
      if (event.key === "Shift") for (const held of this.pressed.values()) held.fast = false;
    });
    addEventListener("blur", () => this.pressed.clear());
    scroller.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    rulerCanvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    over.addEventListener("pointerdown", (event) => this.press(event));
    over.addEventListener("pointermove", (event) => this.point(event));
    over.addEventListener("pointerleave", () => this.leave());
    over.addEventListener("dblclick", () => timeline.focus());
    rulerCanvas.addEventListener("pointerdown", (event) => this.pressRuler(event));
    rulerCanvas.addEventListener("pointermove", (event) => this.point(event, true));
    rulerCanvas.addEventListener("pointerleave", () => this.leave());
    rulerCanvas.addEventListener("dblclick", () => timeline.home());
    rulerCanvas.addEventListener("contextmenu", (event) => this.rulerMenu(event));
  }

  /** What can be done, by name; the palette and the keys share it. @returns {{id: string, title: string, group: string, keys: string, run: () => void}[]} */
  commands() {
    const { timeline } = this;
    const { state } = timeline;
    const one = (
      /** @type {string} */ id,
      /** @type {string} */ group,
      /** @type {string} */ title,
      /** @type {string} */ keys,
      /** @type {() => void} */ run,
    ) => ({ id, title, group, keys, run });
    return [
      one("home", "Move", "Show everything", "0", () => timeline.home()),
      one("focus", "Move", "Zoom to the selection", "F", () => timeline.focus()),
      one("next", "Select", "Next operation on the row", ".", () => void timeline.neighbour("next", false)),
      one("previous", "Select", "Previous operation on the row", ",", () => void timeline.neighbour("previous", false)),
      one("next-same", "Select", "Next operation of the same name", "Shift + .", () => void timeline.neighbour("next", true)),
      one("previous-same", "Select", "Previous operation of the same name", "Shift + ,", () => void timeline.neighbour("previous", true)),
      one("follow-link", "Select", "Follow the arrow", "]", () => timeline.walkLink(1)),
      one("back-link", "Select", "Follow the arrow back", "[", () => timeline.walkLink(-1)),
      one("path", "Select", "Critical path: draw it, or not", "O", () => timeline.path?.toggle()),
      one("next-piece", "Select", "Next piece of the critical path", "B", () => void timeline.path?.step(1)),
      one("previous-piece", "Select", "Previous piece of the critical path", "Shift + B", () => void timeline.path?.step(-1)),
      one("area", "Select", "Statistics of all that is in view", "R", () => timeline.area.takeView()),
      one("flame", "Select", "Flame graph of the area, or of all that is in view", "I", () => timeline.area.showFlame?.()),
      one("none", "Select", "Select nothing", "Esc", () => this.escape()),
      one("search", "Find", "Search names", "/", () => timeline.search.focus()),
      one("next-hit", "Find", "Next hit of the search", "N", () => void timeline.search.step(1)),
      one("previous-hit", "Find", "Previous hit of the search", "Shift + N", () => void timeline.search.step(-1)),
      one("mark", "Find", "Mark", "M", () => this.mark()),
      one("no-marks", "Find", "Take all marks away", "Shift + M", () => state.set({ marks: [] })),
      one("zero", "Times", "Count times from here: selection, area, mark or step", "Z", () => this.zero()),
      one("beginning", "Times", "Count times from the beginning", "", () => state.set({ zero: null })),
      one("clock", "Times", "Time of day (UTC)", "Shift + Z", () =>
        state.set({ zero: state.get().zero === "clock" || !hasClock(timeline.context.info.origin_ns) ? null : "clock" }),
      ),
      one("names", "Names", "Names short or whole", "V", () => state.set({ names: state.get().names === "full" ? "short" : "full" })),
      one("copy-name", "Names", "Copy the name of the selection", "C", () => void timeline.details.copyName?.()),
      one("open-all", "Rows", "Open all groups", "E", () => timeline.foldAll(false)),
      one("fold-all", "Rows", "Fold all groups", "Shift + E", () => timeline.foldAll(true)),
      one("pin", "Rows", "Pin the row, or let it go", "P", () => {
        const key = this.currentKey();
        if (key) timeline.pin(key);
      }),
      one("fold", "Rows", "Fold or open the group", "Space", () => {
        const item = timeline.layout.items.find((other) => other.key === this.currentKey());
        if (item?.foldable) timeline.toggle(item.node.path);
      }),
      one("up", "Rows", "Move the group up", "Alt + ↑", () => timeline.reorder(-1)),
      one("down", "Rows", "Move the group down", "Alt + ↓", () => timeline.reorder(1)),
      one("height", "Rows", "Row height", "H", () => timeline.labels.height.click()),
      one("filter", "Rows", "Filter rows", "G", () => timeline.labels.input.focus()),
      one("empty", "Rows", "Hide empty rows, or show them", "X", () =>
        state.set({ filter: { ...state.get().filter, hideEmpty: !state.get().filter.hideEmpty } }),
      ),
    ];
  }

  /** @param {string} id */
  run(id) {
    this.commands().find((command) => command.id === id)?.run();
  }

  /** The row that keys act on: of the selection, under the pointer, or the last one used. @private */
  currentKey() {
    const { timeline } = this;
    const { selection } = timeline.state.get();
    if (timeline.pointer) {
      const under = timeline.itemAt(timeline.pointer.y);
      if (under) return under.key;
    }
    if (selection) return timeline.layout.items.find((item) => item.row?.row === selection.row)?.key ?? timeline.current;
    return timeline.current;
  }

  /** @private */
  escape() {
    const { timeline } = this;
    if (this.area) {
      this.area = null;
      timeline.invalidateOverlay();
      return;
    }
    timeline.state.set({ area: null });
    timeline.select(null);
  }

  /** Marks the area, the selection, or the pointer's time; what is marked already is let go. @private */
  mark() {
    const { timeline } = this;
    const { area, selection, marks } = timeline.state.get();
    const at = timeline.pointer ? timeline.timeAt(timeline.pointer.x) : (timeline.target[0] + timeline.target[1]) / 2;
    const range = area
      ? { from: Math.round(area.from), to: Math.round(area.to) }
      : selection
        ? { from: selection.start, to: selection.start + selection.duration }
        : { from: Math.round(at), to: Math.round(at) };
    const same = marks.find((mark) => mark.from === range.from && mark.to === range.to);
    timeline.state.set({ marks: same ? marks.filter((mark) => mark !== same) : [...marks, { ...range, kept: true, label: "" }] });
  }

  /** Counts times from what is chosen, or from the beginning again. @private */
  zero() {
    const { timeline } = this;
    const state = timeline.state.get();
    const at = timeline.pointer ? timeline.timeAt(timeline.pointer.x) : (timeline.target[0] + timeline.target[1]) / 2;
    const here = zeroHere(state, timeline.context.info, at);
    timeline.state.set({ zero: here === state.zero ? null : here });
    timeline.context.announce(`Times count from ${zeroName(timeline.state.get().zero, timeline.context.info, state.marks)}`);
  }

  /** What times are counted from, to choose. @private @param {MouseEvent} event */
  rulerMenu(event) {
    event.preventDefault();
    const { timeline } = this;
    const { zero, marks, selection, area } = timeline.state.get();
    const { info } = timeline.context;
    const at = timeline.timeAt(this.place(event).x);
    const set = (/** @type {import("./times.js").Zero} */ to) => () => timeline.state.set({ zero: to });
    const step = (info.steps ?? []).findLast((/** @type {any} */ one) => one.begin <= at);
    const mark = marks.reduce((/** @type {any} */ near, one) => (!near || Math.abs(one.from - at) < Math.abs(near.from - at) ? one : near), null);
    const here = (/** @type {string} */ title, /** @type {number} */ from) => ({ title, chosen: zero === Math.round(from), run: set(Math.round(from)) });
    openMenu(event.clientX, event.clientY, "What times are counted from", [
      { title: "Times from the beginning", chosen: zero === null, run: set(null) },
      ...(step ? [here(`from step ${step.number}`, step.begin)] : []),
      ...(mark ? [here("from the mark", mark.from)] : []),
      ...(selection ? [here("from the selection", selection.start)] : area ? [here("from the area", area.from)] : []),
      here("from here", at),
      { title: "Time of day (UTC)", keys: "Shift + Z", chosen: zero === "clock", off: !hasClock(info.origin_ns), run: set("clock") },
    ]);
  }

  /** @private @param {KeyboardEvent} event */
  keyDown(event) {
    const { timeline } = this;
    const target = event.target;
    if (event.defaultPrevented || document.querySelector("dialog[open]")) return;
    if (target instanceof HTMLInputElement || target instanceof HTMLTextAreaElement || target instanceof HTMLSelectElement) return;
    if (event.key === "Escape" && timeline.listening) return this.escape();
    if (event.altKey && (event.key === "ArrowUp" || event.key === "ArrowDown") && timeline.listening) {
      event.preventDefault();
      timeline.reorder(event.key === "ArrowUp" ? -1 : 1);
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (!timeline.listening) {
      if (event.key === "/") {
        event.preventDefault();
        timeline.search.focus();
      }
      return;
    }
    const onButton = target instanceof HTMLButtonElement || target instanceof HTMLAnchorElement;
    const onSlider = target instanceof HTMLElement && target.getAttribute("role") === "slider";
    const hold = HOLDABLE[event.code];
    // Tabs take arrows, and no letters.
    if (hold && !(target instanceof HTMLElement && target.closest(event.code.startsWith("Arrow") ? "[role=tablist],.menu" : ".menu"))) {
      event.preventDefault();
      if (!event.repeat) this.hold(event.code, hold, event.shiftKey);
      return;
    }
    if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      if (target instanceof HTMLElement && target.closest(".details-body,#panel") && !timeline.scroller.contains(target)) return;
      event.preventDefault();
      timeline.moveCurrent(event.key === "ArrowUp" ? -1 : 1);
      return;
    }
    if (event.code === "Space" || event.key === "Enter") {
      if (onButton) return;
      event.preventDefault();
      if (event.code === "Space") this.run("fold");
      else if (!timeline.state.get().selection) void timeline.neighbour("next", false);
      return;
    }
    if (onSlider && (event.key === "Home" || event.key === "End")) return;
    const shift = event.shiftKey;
    const byKey = /** @type {Record<string, string>} */ ({
      0: "home",
      Home: "home",
      "/": "search",
      ".": "next",
      ",": "previous",
      ">": "next-same",
      "<": "previous-same",
      ":": "next-same",
      ";": "previous-same",
      "]": "follow-link",
      "[": "back-link",
    });
    const byPlace = /** @type {Record<string, string>} */ ({
      KeyF: "focus",
      KeyR: "area",
      KeyZ: shift ? "clock" : "zero",
      KeyV: "names",
      KeyC: "copy-name",
      KeyI: "flame",
      KeyM: shift ? "no-marks" : "mark",
      KeyE: shift ? "fold-all" : "open-all",
      KeyP: "pin",
      KeyH: "height",
      KeyG: "filter",
      KeyX: "empty",
      KeyN: shift ? "previous-hit" : "next-hit",
      KeyO: "path",
      KeyB: shift ? "previous-piece" : "next-piece",
      BracketRight: "follow-link",
      BracketLeft: "back-link",
      Digit0: "home",
      Numpad0: "home",
      Period: shift ? "next-same" : "next",
      Comma: shift ? "previous-same" : "previous",
    });
    // Keys that are letters or digits go by their place; signs by what they say, wherever they are.
    const id = byKey[event.key] ?? byPlace[event.code];
    if (!id) return;
    event.preventDefault();
    this.run(id);
  }

  /** @private @param {string} code @param {"in" | "out" | "left" | "right"} what @param {boolean} fast */
  hold(code, what, fast) {
    const { timeline } = this;
    this.pressed.set(code, { what, since: performance.now(), fast });
    const times = fast ? 2.5 : 1;
    if (what === "in") timeline.zoom(PRESS_ZOOM ** times);
    else if (what === "out") timeline.zoom(PRESS_ZOOM ** -times);
    else timeline.pan((what === "left" ? -1 : 1) * PRESS_PAN * times);
  }

  /** What keys that are held do in one frame. @param {number} ms @returns {boolean} whether any is held */
  held(ms) {
    if (this.pressed.size === 0) return false;
    const { timeline } = this;
    const now = performance.now();
    for (const { what, since, fast } of this.pressed.values()) {
      if (now - since < HOLD_MS) continue;
      const seconds = (ms / 1000) * (fast ? 2.5 : 1);
      if (what === "in") timeline.zoom(HELD_ZOOM ** seconds);
      else if (what === "out") timeline.zoom(HELD_ZOOM ** -seconds);
      else timeline.pan((what === "left" ? -1 : 1) * HELD_PAN * seconds);
    }
    return true;
  }

  /** @private @param {WheelEvent} event */
  wheel(event) {
    const { timeline } = this;
    const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? 400 : 1;
    const x = event.clientX - timeline.over.getBoundingClientRect().left;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      const delta = Math.max(-120, Math.min(120, event.deltaY * unit));
      // A pinch comes as small steps of the same event.
      timeline.zoom(Math.exp(delta * (Math.abs(delta) < 20 ? 0.012 : 0.0035)), x, Math.abs(delta) >= 20);
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      const delta = (event.shiftKey && event.deltaX === 0 ? event.deltaY : event.deltaX) * unit;
      timeline.pan(delta / timeline.plotWidth, Math.abs(delta) >= 50);
    } else if (event.target === timeline.rulerCanvas) {
      event.preventDefault();
      timeline.zoom(Math.exp(Math.max(-120, Math.min(120, event.deltaY * unit)) * 0.0035), x);
    }
  }

  /** @private @param {MouseEvent} event @returns {{x: number, y: number}} */
  place(event) {
    const box = this.timeline.over.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  }

  /** @private @param {PointerEvent} event @param {boolean} [onRuler] */
  point(event, onRuler = false) {
    const at = this.place(event);
    this.timeline.pointer = { x: at.x, y: onRuler ? -1 : at.y };
    this.timeline.invalidateOverlay();
  }

  /** @private */
  leave() {
    if (this.dragging) return;
    this.timeline.pointer = null;
    this.timeline.invalidateOverlay();
  }

  /** @private @param {PointerEvent} event */
  press(event) {
    const { timeline } = this;
    const { over } = timeline;
    over.focus({ preventScroll: true });
    if (event.pointerType === "touch") return this.touch(event);
    if (event.button > 1) return;
    event.preventDefault();
    const start = this.place(event);
    const panning = event.button === 1 || event.shiftKey;
    const [a, b] = timeline.target;
    const top = timeline.scroller.scrollTop;
    over.setPointerCapture(event.pointerId);
    let moved = false;
    const move = (/** @type {PointerEvent} */ next) => {
      const at = this.place(next);
      if (!moved && Math.hypot(at.x - start.x, at.y - start.y) < DRAG_PX) return;
      moved = true;
      this.dragging = true;
      if (panning) {
        const shift = ((start.x - at.x) / timeline.plotWidth) * (b - a);
        timeline.moveTo(a + shift, b + shift, { glide: false, user: true });
        timeline.scroller.scrollTop = top + start.y - at.y;
      } else {
        this.area = { from: start.x, to: Math.max(0, Math.min(timeline.plotWidth, at.x)), top: Math.min(start.y, at.y), bottom: Math.max(start.y, at.y) };
        this.snap();
        timeline.invalidateOverlay();
      }
    };
    const up = () => {
      over.removeEventListener("pointermove", move);
      over.removeEventListener("pointerup", up);
      over.removeEventListener("pointercancel", up);
      this.dragging = false;
      const { area } = this;
      this.area = null;
      if (!moved && !panning) void timeline.selectAt(start.x, start.y);
      else if (area) timeline.area.take(area);
      timeline.invalidateOverlay();
    };
    over.addEventListener("pointermove", move);
    over.addEventListener("pointerup", up);
    over.addEventListener("pointercancel", up);
  }

  /** An area covers whole rows. @private */
  snap() {
    const { timeline, area } = this;
    if (!area) return;
    const first = timeline.itemAt(area.top);
    const last = timeline.itemAt(area.bottom);
    const y = (/** @type {import("./rows.js").Item} */ item) => (item.pinned ? item.y : item.y - timeline.scrollTop + timeline.layout.pinnedHeight);
    if (first) area.top = y(first);
    if (last) area.bottom = y(last) + last.height;
  }

  /** How far the first two fingers are apart, and the middle between them, CSS pixels. @private */
  spread() {
    const [one, two] = [...this.touches.values()].map((touch) => this.place(touch));
    return { apart: Math.max(20, Math.abs(one.x - two.x)), middle: (one.x + two.x) / 2 };
  }

  /** One finger moves, two pinch, a tap selects. @private @param {PointerEvent} event */
  touch(event) {
    const { timeline } = this;
    const { over } = timeline;
    this.touches.set(event.pointerId, event);
    if (this.touches.size > 1) {
      this.apart = this.spread().apart;
      return;
    }
    const begin = { at: this.place(event), window: timeline.target, top: timeline.scroller.scrollTop };
    let moved = false;
    this.apart = 0;
    const move = (/** @type {PointerEvent} */ next) => {
      if (!this.touches.has(next.pointerId)) return;
      this.touches.set(next.pointerId, next);
      if (this.touches.size > 1) {
        const { apart, middle } = this.spread();
        timeline.zoom(this.apart / apart, middle, false);
        this.apart = apart;
        moved = true;
        return;
      }
      if (this.apart > 0) return;
      const at = this.place(next);
      if (!moved && Math.hypot(at.x - begin.at.x, at.y - begin.at.y) < 8) return;
      moved = true;
      const [a, b] = begin.window;
      const shift = ((begin.at.x - at.x) / timeline.plotWidth) * (b - a);
      timeline.moveTo(a + shift, b + shift, { glide: false, user: true });
      timeline.scroller.scrollTop = begin.top + begin.at.y - at.y;
    };
    const up = (/** @type {PointerEvent} */ last) => {
      this.touches.delete(last.pointerId);
      if (this.touches.size > 0) return;
      over.removeEventListener("pointermove", move);
      over.removeEventListener("pointerup", up);
      over.removeEventListener("pointercancel", up);
      if (!moved && last.type === "pointerup") void timeline.selectAt(begin.at.x, begin.at.y);
    };
    over.addEventListener("pointermove", move);
    over.addEventListener("pointerup", up);
    over.addEventListener("pointercancel", up);
  }

  /** Dragging the ruler moves; up and down zooms. @private @param {PointerEvent} event */
  pressRuler(event) {
    if (event.button > 0) return;
    const { timeline } = this;
    const { rulerCanvas } = timeline;
    const start = this.place(event);
    const [a, b] = timeline.target;
    const at = timeline.timeAt(start.x);
    rulerCanvas.setPointerCapture(event.pointerId);
    rulerCanvas.classList.add("dragged");
    const move = (/** @type {PointerEvent} */ next) => {
      const now = this.place(next);
      const high = now.y - start.y;
      const span = (b - a) * Math.exp((Math.abs(high) < 24 ? 0 : high - Math.sign(high) * 24) * 0.012);
      const from = at - (now.x / timeline.plotWidth) * span;
      timeline.moveTo(from, from + span, { glide: false, user: true });
    };
    const up = () => {
      rulerCanvas.removeEventListener("pointermove", move);
      rulerCanvas.classList.remove("dragged");
    };
    rulerCanvas.addEventListener("pointermove", move);
    rulerCanvas.addEventListener("pointerup", up, { once: true });
    rulerCanvas.addEventListener("pointercancel", up, { once: true });
  }
}
