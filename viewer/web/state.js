// @ts-check
/** What the page shows: one store, whose listeners are told of the members that they name. */

/**
 * One slice of a row.
 * @typedef {{row: number, index: number, start: number, duration: number, name: string, kind: number}} Ref
 *
 * A mark at a time, or over a range of it.
 * @typedef {{from: number, to: number, kept: boolean, label: string}} Mark
 *
 * A rectangle of the timeline whose statistics are asked for; `rows` are row numbers.
 * @typedef {{from: number, to: number, rows: number[]}} Area
 *
 * Another recording under this one: its id, what a link said of how they are aligned, the time shown, of this one, what
 * is selected in which of the two, and the stretch of time that is measured, of this one.
 * @typedef {{other: string, settings: Partial<import("./pair.js").Settings>, window: [number, number] | null, selection?: {side: 0 | 1, key: string,
 *   start: number} | null, area?: [number, number] | null}} Comparison
 *
 * Who launched what: by what, of which rank's device ("all", "0.1"), what is sorted by, and which places of a tree are open;
 * null: as it is at first. `flame`: trees are flame graphs, and the place `zoom` fills the width of one.
 * @typedef {{by: "operators" | "shapes" | "products" | "modules" | "classes" | "stacks" | "memory", rank: string,
 *   sort: {key: string, descending: boolean} | null, open: number[] | null, flame?: boolean, zoom?: number,
 *   find?: string[]}} OperatorsView
 *
 * @typedef {object} ViewState
 * @property {[number, number]} window      the time shown, ns since the recording's origin
 * @property {Ref | null} selection
 * @property {Area | null} area
 * @property {boolean} flame                an area is shown as a flame graph, not as a table
 * @property {string[]} pins                keys of rows and paths of groups, in order
 * @property {string[]} collapsed           paths of groups that differ from how they start
 * @property {{text: string, hideEmpty: boolean, onlyMatches: boolean}} filter
 * @property {"compact" | "normal" | "tall"} rowHeight
 * @property {Record<string, string[]>} order  of groups, where the user changed it
 * @property {Mark[]} marks
 * @property {import("./times.js").Zero} zero   what times are counted from
 * @property {import("./names.js").Style} names how names are written
 * @property {string} query                 what is searched for
 * @property {{regex: boolean, case: boolean}} searchMode
 * @property {string} tab                   "timeline", or the id of a panel
 * @property {"auto" | "light" | "dark"} theme
 * @property {boolean} dark                 what `theme` comes to
 * @property {boolean} follow               the window keeps to the end of a growing recording
 * @property {boolean} path                 the critical path is drawn through the rows
 * @property {string[]} changes             that are tried together, as for `--set`
 * @property {Comparison | null} compare     what is shown beside this recording, and how the two are aligned
 * @property {OperatorsView | null} operators
 * @property {import("./heat.js").HeatView | null} heat   ranks by steps; null: as it is at first
 * @property {string} steps                 that all numbers are of, as the server takes them: "5-20"; "" is the whole run
 * @property {number} generation            of the loaded state of the recording
 */

/** @returns {ViewState} */
export function initialState() {
  return {
    window: [0, 1],
    selection: null,
    area: null,
    flame: false,
    pins: [],
    collapsed: [],
    filter: { text: "", hideEmpty: true, onlyMatches: false },
    rowHeight: "normal",
    order: {},
    marks: [],
    zero: null,
    names: "short",
    query: "",
    searchMode: { regex: false, case: false },
    tab: "timeline",
    theme: "auto",
    dark: false,
    follow: false,
    path: false,
    changes: [],
    compare: null,
    operators: null,
    heat: null,
    steps: "",
    generation: 0,
  };
}

/**
 * @template {object} T
 */
export class Store {
  /** @param {T} initial */
  constructor(initial) {
    /** @private */
    this.current = initial;
    /** @private @type {{keys: (keyof T)[] | null, listener: (state: T, changed: Set<keyof T>) => void}[]} */
    this.listeners = [];
    /** @private @type {Set<keyof T>} */
    this.changed = new Set();
    /** @private */
    this.scheduled = false;
  }

  /** @returns {Readonly<T>} */
  get() {
    return this.current;
  }

  /**
   * Changes members. Listeners run once, after the present task, however many calls there were.
   *
   * @param {Partial<T>} patch
   */
  set(patch) {
    for (const key of /** @type {(keyof T)[]} */ (Object.keys(patch))) {
      if (Object.is(this.current[key], patch[key])) continue;
      this.changed.add(key);
    }
    this.current = { ...this.current, ...patch };
    if (this.changed.size > 0 && !this.scheduled) {
      this.scheduled = true;
      queueMicrotask(() => this.tell());
    }
  }

  /**
   * Listens for changes of the named members (null: of any). Returns what ends it.
   *
   * @param {(keyof T)[] | null} keys
   * @param {(state: T, changed: Set<keyof T>) => void} listener
   */
  subscribe(keys, listener) {
    const entry = { keys, listener };
    this.listeners.push(entry);
    return () => {
      this.listeners = this.listeners.filter((other) => other !== entry);
    };
  }

  /** @private */
  tell() {
    this.scheduled = false;
    const changed = this.changed;
    this.changed = new Set();
    for (const { keys, listener } of [...this.listeners]) {
      if (!keys || keys.some((key) => changed.has(key))) listener(this.current, changed);
    }
  }
}
