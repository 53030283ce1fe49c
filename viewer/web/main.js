// @ts-check
/** Starts the page: finds the recording, waits until it is loaded, mounts the parts, and keeps them and the URL in step. */

import { ApiError, RecordingApi, getJson } from "./api.js";
import * as panels from "./panels/index.js";
import { Bar } from "./bar.js";
import { ChosenSteps } from "./chosen_steps.js";
import { h, replace } from "./dom.js";
import { shellLine } from "./format.js";
import { number as stepNumber } from "./panels/step_choice.js";
import { Store, initialState } from "./state.js";
import { keys } from "./input.js";
import { Live } from "./live.js";
import { writeNames } from "./names.js";
import { mountTimeline } from "./timeline.js";
import { UrlKeeper, href, parse } from "./url.js";

/** @typedef {import("./state.js").ViewState} ViewState */
/** @typedef {import("./state.js").Ref} Ref */
/**
 * What every part of the page is given.
 * @typedef {object} Context
 * @property {Store<ViewState>} state
 * @property {RecordingApi} api          of the present generation
 * @property {any} info                  the answer of /info
 * @property {() => Promise<any>} analysis   of the chosen steps, asked for once a generation
 * @property {() => Promise<any>} wholeAnalysis   of all
 * @property {(to: {from: number, to: number, key?: string, start?: number, rank?: number, device?: number}) => Promise<void>} goTo
 * @property {(ref: Ref | null, options?: {reveal?: boolean}) => void} select
 * @property {(text: string) => void} search
 * @property {(on: {part?: import("../types/analysis.js").PathPart}) => Promise<void>} showPath   draws the critical path; goes to its longest piece of a part
 * @property {() => import("./rows.js").Row[]} rows   of the timeline
 * @property {(tab: string) => void} show
 * @property {(tab: string) => boolean} has   whether there is such a view
 * @property {(to: {rec?: string, from?: number, to?: number}) => string} link
 * @property {(of: {rank: number | null, device: number | null}, step: {number: number, repeat: number} | null) => Promise<void>} openRank
 *   the timeline of a rank, at a step
 * @property {(text: string) => void} announce
 * @property {() => void} openHelp
 * @property {() => void} openPalette
 */

/** @param {string} id */
function region(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element;
}

/** Errors that nobody caught, for tests and for reports of faults. @type {string[]} */
const errors = [];
addEventListener("error", (event) => errors.push(String(event.message)));
addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") event.preventDefault();
  else errors.push(String(event.reason?.stack ?? event.reason));
});

const state = new Store(initialState());
const POLL_MS = 250;
/** How the number of a rank of a recording that is shown by rank ends. */
const RANK_ALONE = /-rank\d+$/;

/**
 * Fills the main area with a few words; null takes them away.
 * @param {string | null} title
 * @param {...(Node | string)} rest
 */
function message(title, ...rest) {
  const element = region("message");
  element.hidden = title === null;
  replace(element, title === null ? null : h("h2", {}, title), ...rest.map((part) => (typeof part === "string" ? h("p", {}, part) : part)));
}

/** The theme: what the user chose, else what the system says. */
function keepTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    const { theme } = state.get();
    const dark = theme === "dark" || (theme === "auto" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    state.set({ dark });
  };
  try {
    const stored = localStorage.getItem("gputrace.theme");
    if (stored === "light" || stored === "dark") state.set({ theme: stored });
  } catch {
    // A browser that stores nothing still shows the page.
  }
  system.addEventListener("change", apply);
  state.subscribe(["theme"], ({ theme }) => {
    try {
      localStorage.setItem("gputrace.theme", theme);
    } catch {
      // As above.
    }
    apply();
  });
  apply();
}

/** The page of one recording. */
export class Page {
  /**
   * @param {string} id
   * @param {any} info
   * @param {any} panels the module of the tables and charts
   */
  constructor(id, info, panels) {
    this.id = id;
    this.info = info;
    this.api = new RecordingApi(id, info.generation);
    /** By the steps that they are of; "" are all. @type {Map<string, Promise<any>>} */
    this.analyses = new Map();
    this.modules = panels;
    this.panels = panels.panels ?? [];
    /** @type {Map<string, any>} */
    this.mounted = new Map();
    /** @type {import("./timeline.js").Timeline | null} */
    this.timeline = null;
    /** @type {any} */
    this.answer = null;
    const page = this;
    /** @type {Context} */
    this.context = {
      state,
      get api() {
        return page.api;
      },
      get info() {
        return page.info;
      },
      analysis: () => page.analysisOf(state.get().steps),
      wholeAnalysis: () => page.analysisOf(""),
      goTo: (to) => page.goTo(to),
      select: (ref, options) => page.timeline?.select(ref, options),
      search: (text) => {
        page.show("timeline");
        state.set({ query: text });
      },
      showPath: async ({ part }) => {
        page.show("timeline");
        await page.timeline?.path?.showLongest(part);
      },
      rows: () => page.timeline?.rows ?? [],
      show: (tab) => page.show(tab),
      openRank: (of, step) => this.openRank(of, step),
      has: (tab) => (tab === "timeline" && !this.info.by_rank) || this.panels.some((/** @type {any} */ { id }) => id === tab),
      link: (to) => href({ rec: to.rec ?? id, window: to.from === undefined || to.to === undefined ? undefined : [to.from, to.to] }),
      announce,
      openHelp: () => this.modules.openHelp?.(keys),
      openPalette: () => this.modules.openPalette?.(this.commands()),
    };
    state.subscribe(["names"], ({ names }) => {
      writeNames(names);
      for (const { handle } of this.mounted.values()) handle?.refresh?.();
    });
    state.subscribe(["steps"], () => this.refresh((id) => !this.isWhole(id)));
    this.live = new Live(this);
    this.bar = new Bar(this);
    this.chosenSteps = new ChosenSteps(this, region("steps"));
    this.url = new UrlKeeper(id, this.context, () => this.timeline);
    /** Where a link begins, until the steps are known. @type {{number: number, repeat: number} | null} */
    this.step = null;
  }

  /** Mounts everything that the first look needs. */
  async mount() {
    const { info } = this;
    document.title = `${info.name} – gputrace`;
    const place = parse(location.hash);
    writeNames(place.names ?? "short");
    state.set({
      names: place.names ?? "short",
      steps: place.steps ?? "",
      zero: place.zero ?? null,
      generation: info.generation,
      window: place.window ?? [info.begin, Math.max(info.begin + 1, info.end)],
      follow: Boolean(info.growing) && !place.window,
    });
    document.body.classList.remove("choosing");
    for (const id of ["answer", "overview", "views"]) region(id).hidden = false;
    // Of so many ranks no rows are here.
    document.body.classList.toggle("by-rank", Boolean(info.by_rank));
    this.step = place.window ? null : place.step ?? null;
    if (info.by_rank) state.set({ tab: "ranks" });
    this.bar.mount();
    this.chosenSteps.draw();
    this.tabs();
    state.subscribe(["tab"], () => this.tabChanged());
    this.tabChanged();
    addEventListener("keydown", (event) => this.key(event));
    this.timeline = await mountTimeline(this.context, region("timeline"), region("overview"), region("details"));
    await this.url.apply(place);
    this.toStep();
    this.url.begin();
    // After the first picture: an analysis may take as long as a hundred tiles. Its room is kept, so that nothing jumps.
    const answer = region("answer");
    answer.classList.add("waiting");
    this.answer = this.modules.mountAnswer?.(answer, this.context);
    void this.context.analysis().catch(() => {}).then(() => answer.classList.remove("waiting"));
    this.live.start();
  }

  /**
   * The views in the order of their tabs, with the key of each: a letter of its own, or else the next digit.
   * @returns {{id: string, title: string, keys: string}[]}
   */
  views() {
    let digits = 0;
    const first = this.info.by_rank ? [] : [{ id: "timeline", title: "Timeline" }];
    if (this.info.by_rank) digits = 1;
    const all = [...first, ...this.panels];
    return all.map(({ id, title, key }) => ({ id, title, keys: key ?? (digits < 9 ? String((digits += 1)) : "") }));
  }

  /** Whether a view shows the whole run whatever steps are chosen. @param {string} tab */
  isWhole(tab) {
    return tab === "timeline" || Boolean(this.panels.find((/** @type {any} */ { id }) => id === tab)?.whole);
  }

  /** The analysis of some steps; "" are all. @param {string} steps @returns {Promise<any>} */
  analysisOf(steps) {
    const { analyses } = this;
    const known = analyses.get(steps);
    if (known) return known;
    // Of what was tried before only the whole is kept.
    for (const other of analyses.keys()) if (other !== "" && other !== state.get().steps) analyses.delete(other);
    const asked = this.api.analysis(steps).catch((error) => {
      analyses.delete(steps);
      throw error;
    });
    analyses.set(steps, asked);
    return asked;
  }

  /** Draws the strip and the mounted views anew, or some of these. @param {(id: string) => boolean} [isWanted] */
  refresh(isWanted = () => true) {
    this.answer?.refresh?.();
    for (const [id, { handle }] of this.mounted) if (isWanted(id)) handle?.refresh?.();
  }

  /** Everything that can be done, for the palette. */
  commands() {
    // Of two timelines, the one that was pointed at last.
    const pair = state.get().tab === "compare" ? this.mounted.get("compare")?.handle.pair : null;
    const timeline = pair?.ready ? pair.sides[pair.active] : this.timeline;
    return [
      ...(timeline?.input.commands() ?? []),
      ...(pair?.ready ? pair.commands() : []),
      ...this.views().map(({ id, title, keys }) => ({ title: `Show ${title}`, group: "Views", keys, run: () => this.show(id) })),
      ...this.chosenSteps.commands(),
      ...this.bar.commands(),
      { title: "Keys", group: "Page", keys: "?", run: () => this.context.openHelp() },
      { title: "Follow the end", group: "Page", keys: "L", run: () => this.live.toggle() },
    ];
  }

  /** Keys of the whole page; those of the timeline are in input.js. @private @param {KeyboardEvent} event */
  key(event) {
    const { target } = event;
    if (document.querySelector("dialog[open]")) return;
    if ((event.ctrlKey || event.metaKey) && (event.code === "KeyK" || (event.shiftKey && event.code === "KeyP"))) {
      event.preventDefault();
      this.context.openPalette();
      return;
    }
    if (
      event.ctrlKey ||
      event.metaKey ||
      event.altKey ||
      target instanceof HTMLInputElement ||
      target instanceof HTMLTextAreaElement ||
      target instanceof HTMLSelectElement
    )
      return;
    const view = event.shiftKey
      ? undefined
      : this.views().find(({ keys }) => keys !== "" && (event.code === `Digit${keys}` || event.code === `Key${keys}`));
    if (event.key === "?") this.context.openHelp();
    else if (event.code === "KeyT" && !event.shiftKey) this.bar.switchTheme();
    else if (event.code === "KeyL" && !event.shiftKey && this.info.growing) this.live.toggle();
    else if (view) {
      const { id } = view;
      this.show(id);
      // Once it shows: what is hidden takes no focus.
      if (this.context.has(id)) queueMicrotask(() => this.focusView(id));
    } else return;
    event.preventDefault();
  }

  tabs() {
    const buttons = this.views().map(({ id, title, keys }) =>
      h(
        "button",
        {
          id: `tab-${id}`,
          role: "tab",
          type: "button",
          title: keys ? `${title} (${keys})` : null,
          "aria-controls": id === "timeline" ? "timeline" : "panel",
          onclick: () => this.show(id),
        },
        title,
      ),
    );
    const tabs = region("tabs");
    replace(tabs, buttons);
    tabs.addEventListener("keydown", (event) => {
      const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      const at = buttons.findIndex((button) => button.id === `tab-${state.get().tab}`);
      const next = buttons[(at + step + buttons.length) % buttons.length];
      next.focus();
      next.click();
    });
  }

  tabChanged() {
    const { tab } = state.get();
    for (const button of region("tabs").querySelectorAll("button")) {
      const chosen = button.id === `tab-${tab}`;
      button.setAttribute("aria-selected", String(chosen));
      button.tabIndex = chosen ? 0 : -1;
    }
    const panel = region("panel");
    // What has the focus is about to be hidden: it would be lost, and with it the place of who uses the keyboard.
    const isLost = (tab === "timeline" ? [panel] : [region("timeline"), region("details")]).some((part) => part.contains(document.activeElement));
    region("timeline").hidden = tab !== "timeline";
    panel.hidden = tab === "timeline";
    panel.setAttribute("aria-labelledby", `tab-${tab}`);
    for (const [id, { container }] of this.mounted) container.hidden = id !== tab;
    const wanted = this.panels.find((/** @type {any} */ { id }) => id === tab);
    if (wanted && !this.mounted.has(tab)) {
      const container = h("div", { class: `panel panel-${tab}` });
      panel.append(container);
      this.mounted.set(tab, { container, handle: wanted.mount(container, this.context) });
    }
    if (isLost) this.focusView(tab);
  }

  /** Puts the focus where keys are for a view: on the timeline, or on the tab before it. @private @param {string} tab */
  focusView(tab) {
    const element = tab === "timeline" ? this.timeline?.over : document.getElementById(`tab-${tab}`);
    element?.focus({ preventScroll: true });
  }

  /** @param {string} tab */
  show(tab) {
    if (this.context.has(tab)) state.set({ tab });
  }

  /** Shows the step that a link begins at, as soon as steps are known. @private */
  toStep() {
    const { step, info } = this;
    if (!step || !info.steps?.length) return;
    this.step = null;
    const same = info.steps.filter((/** @type {any} */ one) => one.number === step.number);
    const one = same[step.repeat] ?? same[0];
    if (!one) return announce(`This rank has no step ${step.number}.`);
    const margin = Math.max(1, 0.08 * (one.end - one.begin));
    this.url.arriving = true;
    this.timeline?.moveTo(one.begin - margin, one.end + margin);
  }

  /** @type {Context["openRank"]} */
  async openRank({ rank, device }, step) {
    if (this.info.by_rank) {
      if (rank === null) return announce("The recording does not say which rank this is.");
      // So that Back leads here again.
      this.url.write();
      location.assign(href({ rec: `${this.id}-rank${rank}`, step: step ?? undefined }));
      return;
    }
    const analysis = await this.context.wholeAnalysis();
    const of = analysis.ranks.find((/** @type {any} */ one) => one.rank === rank && one.device_index === device);
    const same = of?.steps.filter((/** @type {any} */ one, /** @type {number} */ at) => Number(stepNumber(one, at)) === step?.number) ?? [];
    const one = same[step?.repeat ?? 0];
    await this.goTo({ from: one?.start_ns ?? this.info.begin, to: one?.end_ns ?? this.info.end, rank: rank ?? undefined, device: device ?? undefined });
  }

  /** @type {Context["goTo"]} */
  async goTo({ from, to, key, start, rank, device }) {
    if (this.info.by_rank) {
      if (rank === undefined || rank === null) return announce("Its rows are not read here: open a rank's timeline.");
      return this.openRank({ rank, device: device ?? null }, null);
    }
    const margin = Math.max(1, 0.08 * (to - from));
    state.set({ tab: "timeline", window: [from - margin, to + margin], follow: false });
    if (key !== undefined && start !== undefined) {
      const ref = await this.api.sliceAt(key, start);
      if (ref) this.timeline?.select(ref, { reveal: true });
    } else if (rank !== undefined && rank !== null) this.timeline?.revealRank(rank, device);
  }

  /** A generation that the server has read anew. @param {any} info */
  async renew(info) {
    const before = this.info;
    if (info.by_rank !== before.by_rank) return location.reload();
    const { window: shown, follow } = state.get();
    const whole = !follow && !info.growing && shown[0] <= before.begin && shown[1] >= before.end;
    // Files that were read since may begin earlier: times count from the first of all.
    const later = Number(BigInt(before.origin_ns) - BigInt(info.origin_ns));
    if (typeof before.reading === "number" && !whole) state.set({ window: [shown[0] + later, shown[1] + later] });
    this.info = info;
    this.api = new RecordingApi(this.id, info.generation);
    this.analyses = new Map();
    await this.timeline?.load();
    // Who looked at all of it looks at all of it.
    if (whole) this.timeline?.moveTo(info.begin, Math.max(info.begin + 1, info.end), { glide: false });
    state.set({ generation: info.generation });
    this.toStep();
    this.bar.mount();
    this.chosenSteps.refresh();
    this.refresh();
  }
}

/** @param {string} text */
function announce(text) {
  region("announce").textContent = text;
}

/**
 * Waits until the server has read the recording.
 * @param {string} id
 */
async function loaded(id) {
  for (;;) {
    try {
      return await getJson(`/api/rec/${encodeURIComponent(id)}/info`);
    } catch (error) {
      if (!(error instanceof ApiError) || error.status !== 503) throw error;
    }
    const { recordings } = await getJson("/api/recordings");
    const entry = recordings.find((/** @type {any} */ other) => other.id === id);
    // A rank alone is in no list.
    const of = entry ? entry.name : RANK_ALONE.test(id) ? "the rank" : null;
    if (of === null) throw new ApiError(404, "there is no such recording any more");
    if (entry?.state === "failed") throw new ApiError(0, entry.error ?? "it could not be read");
    message(`Reading ${of}`, h("progress", { max: 1, value: typeof entry?.progress === "number" ? entry.progress : null }));
    await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  }
}

/** The focus ring of the timeline is for those who came to it by keys. */
function watchKeys() {
  addEventListener("keydown", (event) => event.key === "Tab" && document.body.classList.add("by-keys"), true);
  addEventListener("pointerdown", () => document.body.classList.remove("by-keys"), true);
}

/** A file that is dropped here would replace the page: the server reads what it was started with, and nothing is uploaded. */
function watchDrops() {
  addEventListener("dragover", (event) => event.preventDefault());
  addEventListener("drop", (event) => {
    event.preventDefault();
    const files = [...(event.dataTransfer?.files ?? [])].map((file) => file.name);
    const [what, lies] = files.length === 1 ? ["it", "it lies"] : ["them", "they lie"];
    const text =
      "Nothing was uploaded: this page shows what its server was started with. " +
      `To look at what you dropped, start gputrace on ${what}, in the folder where ${lies}:`;
    if (files.length > 0) panels.openNotice("Another recording", text, shellLine("gputrace view", files));
  });
}

async function start() {
  watchDrops();
  keepTheme();
  watchKeys();
  const wanted = parse(location.hash);
  let id = wanted.rec;
  if (!id && wanted.job) {
    message(null);
    region("library").hidden = false;
    addEventListener("hashchange", () => location.reload());
    const leave = () => location.assign(location.pathname);
    region("home").addEventListener("click", leave);
    panels.mountJob(region("library"), { api: new RecordingApi("", 0), id: wanted.job, leave });
    return;
  }
  if (!id) {
    const list = await getJson("/api/recordings");
    if (list.recordings.length === 1 && !list.jobs) id = list.recordings[0].id;
    else {
      message(null);
      region("library").hidden = false;
      panels.mountLibrary(region("library"), {
        api: new RecordingApi("", 0),
        open: (/** @type {string} */ rec) => location.assign(href({ rec })),
        compare: (/** @type {string} */ rec, /** @type {string} */ other) =>
          location.assign(href({ rec, tab: "compare", compare: { other, settings: {}, window: null } })),
        openJob: (/** @type {string} */ job) => location.assign(href({ job })),
      });
      addEventListener("hashchange", () => location.reload());
      return;
    }
  }
  message("Reading the recording", h("progress", {}));
  const info = await loaded(/** @type {string} */ (id));
  message(null);
  page = new Page(/** @type {string} */ (id), info, panels);
  await page.mount();
}

/** @type {Page | null} */
let page = null;
/** For tests and the curious. */
/** @type {any} */ (window).viewer = {
  state: () => ({
    ...state.get(),
    ...page?.timeline?.summary(),
    arrows: page?.timeline?.overlay.arrows ?? 0,
    bands: page?.timeline?.overlay.bands ?? 0,
    errors,
    loaded: page !== null,
    generation: page?.info.generation ?? null,
    live: page?.live.last ?? null,
  }),
  get page() {
    return page;
  },
};
start().catch((error) => {
  errors.push(String(error.message));
  message("The recording can't be shown", error.message, h("span", { class: "buttons" },
    h("button", { class: "button", onclick: () => location.reload() }, "Try again"),
    parse(location.hash).rec ? h("button", { class: "button", onclick: () => location.assign(location.pathname) }, "All recordings") : null));
});
