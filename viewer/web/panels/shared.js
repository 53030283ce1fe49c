// @ts-check
/** What the panels share: loading, headings, the parts of a span of time, who a row is about. */

import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { stepWords } from "../step_range.js";

/**
 * What every panel is given.
 * @typedef {object} Context
 * @property {any} state
 * @property {any} api
 * @property {any} info
 * @property {() => Promise<import("../../types/analysis.js").Analysis>} analysis   of the chosen steps
 * @property {() => Promise<import("../../types/analysis.js").Analysis>} wholeAnalysis   of all
 * @property {(place: {from: number, to: number, key?: string, start?: number, rank?: number, device?: number}) => Promise<void> | void} goTo
 * @property {(ref: any, options?: {reveal?: boolean}) => void} [select]
 * @property {(text: string) => void} [search]
 * @property {(panel: string) => void} [show]
 * @property {(on: {part?: import("../../types/analysis.js").PathPart}) => Promise<void>} [showPath]
 * @property {() => import("../rows.js").Row[]} [rows]
 * @property {(place: {rec?: string, from?: number, to?: number}) => string} [link]
 * @property {(of: {rank: number | null, device: number | null}, step: {number: number, repeat: number} | null) => Promise<void>} [openRank]
 * @property {(text: string) => void} [announce]
 */

/** @typedef {{refresh: () => void, destroy: () => void, [more: string]: any}} Mounted */

/**
 * A panel that draws itself from the analysis, again when there is a newer one or other steps are chosen. `keep` lives as long
 * as the panel and holds what the user chose in it.
 * @param {string} id
 * @param {string} title
 * @param {(analysis: import("../../types/analysis.js").Analysis, context: Context, keep: Record<string, any>,
 *   redraw: () => void) => import("../dom.js").Child} draw
 * @param {{whole?: boolean, partly?: string}} [of]   whether it is of the whole run whatever steps are chosen, or what of it is
 */
export function panel(id, title, draw, { whole = false, partly } = {}) {
  return {
    id,
    title,
    whole,
    /** @param {HTMLElement} container @param {Context} context @returns {Mounted} */
    mount(container, context) {
      if (whole) return mounted(container, context, draw, title, context.wholeAnalysis);
      return mounted(container, context, (analysis, ...rest) => [ofSteps(context, partly), draw(analysis, ...rest)], title);
    },
  };
}

/** The chosen steps, as the server takes them; "" are all. @param {Context} context @returns {string} */
export const chosenSteps = (context) => context.state?.get().steps ?? "";

/**
 * Says that what follows is of the chosen steps alone, or what of it is of the whole run all the same.
 * @param {Context} context
 * @param {string} [whole] what of it
 */
export function ofSteps(context, whole) {
  const steps = chosenSteps(context);
  if (!steps) return null;
  return h("p", { class: "p-ofsteps" }, `Only ${stepWords(steps)}.`, whole ? ` ${whole} of the whole run.` : "");
}

/**
 * @param {HTMLElement} container
 * @param {Context} context
 * @param {(analysis: import("../../types/analysis.js").Analysis, context: Context, keep: Record<string, any>,
 *   redraw: () => void) => import("../dom.js").Child} draw
 * @param {string} title
 * @param {() => Promise<import("../../types/analysis.js").Analysis>} [ask]
 * @returns {Mounted}
 */
export function mounted(container, context, draw, title, ask = context.analysis) {
  /** @type {Record<string, any>} */
  const keep = {};
  let asked = 0;
  /** Of which steps it is. @type {string | null} */
  let drawn = null;
  const load = async () => {
    const mine = ++asked;
    const steps = chosenSteps(context);
    container.setAttribute("aria-busy", String(drawn !== null && drawn !== steps));
    const doing = typeof context.info.reading === "number" ? "Reading" : "Analysing";
    if (!container.hasChildNodes() || container.querySelector(":scope > .p-loading"))
      replace(container, h("div", { class: "p-loading", role: "status" }, `${doing} the recording …`));
    try {
      const analysis = await ask();
      if (mine !== asked) return;
      replace(container, draw(analysis, context, keep, load));
      drawn = steps;
    } catch (error) {
      // What was read meanwhile is another generation, which the page is about to take.
      if (mine !== asked || /** @type {any} */ (error)?.status === 410) return;
      drawn = steps;
      const none = steps && /** @type {any} */ (error)?.status === 404;
      replace(container, none ? noneOfThese(error, context) : failed(error, load, title));
    }
    container.setAttribute("aria-busy", "false");
  };
  load();
  return {
    refresh: afterTyping(container, load),
    destroy() {
      asked++;
      container.textContent = "";
    },
  };
}

/**
 * Who types into a filter keeps it: what draws the container anew is run when they are done.
 * @param {HTMLElement} container
 * @param {() => void} run
 */
export function afterTyping(container, run) {
  /** @type {Element | null} */
  let waiting = null;
  const when = () => {
    const active = document.activeElement;
    if (!active || !container.contains(active) || !active.matches("input, select")) return run();
    if (waiting === active) return;
    waiting = active;
    active.addEventListener("blur", () => {
      waiting = null;
      when();
    }, { once: true });
  };
  return when;
}

/** Leads from steps that there are none of to all. @param {any} error @param {Context} context */
function noneOfThese(error, context) {
  return h("div", { class: "p-failed", role: "alert" },
    h("p", null, `Only ${stepWords(chosenSteps(context))}: ${error.message}`),
    h("button", { type: "button", class: "p-button", onclick: () => context.state.set({ steps: "" }) }, "All steps"));
}

/**
 * @param {any} error
 * @param {() => void} again
 * @param {string} what
 */
export function failed(error, again, what) {
  return h("div", { class: "p-failed", role: "alert" },
    h("p", null, `${what}: ${error?.message ?? error}`),
    h("button", { type: "button", class: "p-button", onclick: again }, "Try again"));
}

/**
 * A part of a panel: heading, a line of what it means, and what it holds.
 * @param {string} title
 * @param {string | Node | null} note
 * @param {...import("../dom.js").Child} children
 */
export function section(title, note, ...children) {
  return h(
    "section",
    { class: "p-section" },
    h("header", { class: "p-head" }, h("h2", null, title), note ? h("p", { class: "p-note" }, note) : null),
    children,
  );
}

/**
 * What is said where there is nothing to show, and why.
 * @param {string} text
 * @param {string} [more]
 */
export function nothing(text, more) {
  return h("div", { class: "p-nothing" }, h("p", null, text), more ? h("p", { class: "p-faint" }, more) : null);
}

/**
 * Buttons of which one is chosen.
 * @param {string} label
 * @param {{id: string, title: string, hint?: string}[]} choices
 * @param {string} chosen
 * @param {(id: string) => void} choose
 */
export function choice(label, choices, chosen, choose) {
  const buttons = choices.map((one) => h("button", { type: "button", "aria-pressed": String(one.id === chosen), title: one.hint, onclick: () => {
    buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(choices[index].id === one.id)));
    choose(one.id);
  } }, one.title));
  return h("div", { class: "p-choice", role: "group", "aria-label": label }, buttons);
}

/**
 * A list to choose one of.
 * @param {string} label
 * @param {{id: string, title: string}[]} choices
 * @param {string} chosen
 * @param {(id: string) => void} choose
 */
export function select(label, choices, chosen, choose) {
  const element = h(
    "select",
    { class: "p-select", "aria-label": label },
    choices.map((one) => h("option", { value: one.id, selected: one.id === chosen }, one.title)),
  );
  element.addEventListener("change", () => choose(element.value));
  element.addEventListener("keydown", (event) => event.stopPropagation());
  return element;
}

/** @typedef {{key: keyof import("../../types/analysis.js").Parts, title: string, hint: string, colour: string, hatched?: boolean}} Part */

/** What a span of time of a device is made of, as the analyzer's `PARTS` say; the parts sum to the span. @type {Part[]} */
export const PARTS = [
  { key: "compute", title: "compute", hint: "kernels compute, and nothing is communicated", colour: "var(--kind-compute)" },
  { key: "hidden", title: "hidden communication", hint: "communication while kernels compute: it costs no time of its own", colour: "var(--kind-hidden)" },
  { key: "exposed", title: "exposed communication", hint: "communication while nothing computes", colour: "var(--kind-exposed)", hatched: true },
  { key: "copies", title: "copies", hint: "copies and memsets while nothing else runs", colour: "var(--kind-copy)" },
  { key: "idle", title: "idle", hint: "the device runs nothing", colour: "var(--p-idle)" },
];

/** The mean of parts, or with `over` 1 their sum. @param {import("../../types/analysis.js").Parts[]} list @param {number} [over] */
export function meanParts(list, over = list.length) {
  const sum = { compute: 0, hidden: 0, exposed: 0, copies: 0, idle: 0 };
  for (const parts of list) for (const { key } of PARTS) sum[key] += parts[key] / over;
  return sum;
}

/** @param {import("../../types/analysis.js").Parts} parts */
export function shareParts(parts) {
  return PARTS.map((part) => ({ title: part.title, colour: part.colour, hatched: part.hatched, value: parts[part.key] }));
}

/** Why a device idled, in the order of the measures. */
export const CAUSES = [
  { key: "host_late", title: "host late", hint: "the host had not called the launch yet" },
  { key: "launch_latency", title: "launch latency", hint: "launched, and not begun yet; waiting for a copy engine is in it" },
  { key: "event_wait", title: "event wait", hint: "the stream was told to wait for an event of another one" },
  { key: "peer_wait", title: "peer wait", hint: "the launching thread waited for other ranks (Gloo, MPI, a barrier)" },
  { key: "queue_full", title: "queue full", hint: "the launch waited for room in a stream's queue" },
  { key: "nothing_submitted", title: "nothing submitted", hint: "no thread did anything that is recorded, for 1 ms or more" },
  { key: "unknown", title: "unknown", hint: "the launching call is not recorded" },
].map((cause, index) => ({ ...cause, colour: `var(--cause-${index + 1})`, hatched: ["launch_latency", "peer_wait", "unknown"].includes(cause.key) }));

/** @param {string} key */
export const causeTitle = (key) => CAUSES.find((cause) => cause.key === key)?.title ?? key.replaceAll("_", " ");

/**
 * A column of spans of time.
 * @template Row
 * @param {string} key
 * @param {string} title
 * @param {(row: Row) => number | null | undefined} value
 * @param {Partial<import("../table.js").Column<Row>>} [more]
 * @returns {import("../table.js").Column<Row>}
 */
export function timeColumn(key, title, value, more) {
  return { key, title, number: true, value, text: (row) => format.time(value(row)), ...more };
}

/** How finely moments of this analysis are written. @param {import("../../types/analysis.js").Analysis} analysis */
export function resolution(analysis) {
  const span = Math.max(1, ...analysis.ranks.map((rank) => rank.span_ns));
  return 10 ** Math.max(0, Math.floor(Math.log10(span)) - 4);
}

/**
 * A mark of a kind of operation before its name.
 * @param {string} kind
 */
export function kindMark(kind) {
  return h("span", { class: "p-kind" }, h("span", { class: "p-dot", "aria-hidden": "true", style: { "--c": `var(--kind-${kind}, var(--text-3))` } }), kind);
}

/**
 * A name cut in its middle by the room that it has, whole in its title.
 * @param {string} name
 * @param {boolean} [short]
 */
export function nameCell(name, short = false) {
  if (!short) return h("span", { class: "p-name" }, format.middle(name, 400));
  return h(
    "span",
    { class: "p-name" },
    format.middle(format.shortName(name), 240),
    h("span", { class: "p-faint" }, format.middle(format.templateArguments(name), 200)),
  );
}
