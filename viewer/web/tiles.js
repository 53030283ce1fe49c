// @ts-check
/**
 * Tiles of slices and of counters: which to ask for, which to keep, and what to draw until the right one comes.
 * A tile is 1024 bins of 2^level ns and holds the rows that were asked for so far.
 */

import { packed, rgb } from "./theme.js";

export const BINS = 1024;
const TILES_KEPT = 200;
const BYTES_KEPT = 160e6;
const ROWS_A_REQUEST = 64;
const AT_ONCE = 4;
const TOP_LEVEL = 50;
const RETRY_MS = 1500;

/** @typedef {"slices" | "counters"} Sort */
/**
 * @typedef {object} Tile
 * @property {Sort} sort
 * @property {number} level
 * @property {number} index
 * @property {Map<number, any>} rows      columns by row
 * @property {number} used                when it was last drawn
 * @property {number} bytes
 * @property {boolean} stale              of an earlier generation: good until its successor comes
 * @property {boolean} kept               never thrown away (the view of everything)
 * @property {Names | null} names         texts of the names in it, whose numbers hold for one generation
 */
/** @typedef {{sort: Sort, level: number, index: number, rows: number[], kept?: boolean}} Want */
/** @typedef {{want: Want, controller: AbortController}} Flight */

/** Level whose bins are at most one pixel wide. @param {number} nsPerPixel */
export function levelFor(nsPerPixel) {
  return Math.max(0, Math.min(TOP_LEVEL, Math.floor(Math.log2(nsPerPixel))));
}

/**
 * Level while the window zooms, where bins are one to two pixels wide: nobody sees the difference in motion, and both what
 * is fetched and what is drawn of it is half as much.
 * @param {number} nsPerPixel
 */
export function levelInMotion(nsPerPixel) {
  return Math.min(TOP_LEVEL, levelFor(nsPerPixel) + 1);
}

/** Duration of a tile, ns. @param {number} level */
export function tileSpan(level) {
  return BINS * 2 ** level;
}

/** @param {Sort} sort @param {number} level @param {number} index */
const key = (sort, level, index) => `${sort}/${level}/${index}`;

export class TileCache {
  /**
   * @param {(want: Want, signal: AbortSignal) => Promise<Map<number, any>>} fetchTile
   * @param {() => void} arrived
   */
  constructor(fetchTile, arrived) {
    this.fetchTile = fetchTile;
    this.arrived = arrived;
    /** @type {Map<string, Tile>} */
    this.tiles = new Map();
    /** @type {Flight[]} */
    this.flights = [];
    /** @type {Want[]} */
    this.queue = [];
    this.atOnce = AT_ONCE;
    this.clock = 0;
    this.bytes = 0;
    this.fetched = 0;
    this.aborted = 0;
    this.failed = 0;
    /** @type {Map<string, number>} */
    this.retryAfter = new Map();
    this.epoch = 0;
    /** Counts the changes of what is there: the same window is drawn alike until the next. */
    this.revision = 0;
    /** @type {Names | null} */
    this.names = null;
  }

  /** Whether something that was wanted is still under way. */
  get busy() {
    return this.flights.length > 0 || this.queue.length > 0;
  }

  /**
   * Says what is wanted now, most urgent first; what is no longer wanted is aborted.
   * @param {Want[]} wants
   * @param {boolean} [gently]   one after the other: on one machine the server would take all cores from the frames of a zoom
   */
  want(wants, gently = false) {
    this.atOnce = gently ? 1 : AT_ONCE;
    const now = performance.now();
    /** @type {Want[]} */
    const queue = [];
    const wanted = new Map();
    for (const want of wants) {
      const name = key(want.sort, want.level, want.index);
      wanted.set(name, want);
      if ((this.retryAfter.get(name) ?? 0) > now) continue;
      const tile = this.tiles.get(name);
      const coming = new Set(
        this.flights
          .filter((flight) => key(flight.want.sort, flight.want.level, flight.want.index) === name)
          .flatMap((flight) => flight.want.rows),
      );
      const missing = want.rows.filter((row) => !coming.has(row) && (!tile || tile.stale || !tile.rows.has(row)));
      for (let i = 0; i < missing.length; i += ROWS_A_REQUEST) queue.push({ ...want, rows: missing.slice(i, i + ROWS_A_REQUEST) });
    }
    for (const flight of this.flights) {
      if (!wanted.has(key(flight.want.sort, flight.want.level, flight.want.index))) flight.controller.abort();
    }
    this.queue = queue;
    this.pump();
  }

  /** @private */
  pump() {
    while (this.queue.length > 0 && this.flights.length < this.atOnce) {
      const want = /** @type {Want} */ (this.queue.shift());
      const flight = { want, controller: new AbortController() };
      this.flights.push(flight);
      void this.fly(flight, this.epoch);
    }
  }

  /**
   * @private
   * @param {Flight} flight
   * @param {number} epoch
   */
  async fly(flight, epoch) {
    const { want, controller } = flight;
    const name = key(want.sort, want.level, want.index);
    try {
      const rows = await this.fetchTile(want, controller.signal);
      if (epoch === this.epoch) this.put(want, rows);
    } catch {
      if (controller.signal.aborted) this.aborted += 1;
      else {
        this.failed += 1;
        this.retryAfter.set(name, performance.now() + RETRY_MS);
        setTimeout(this.arrived, RETRY_MS + 10);
      }
    } finally {
      this.flights = this.flights.filter((other) => other !== flight);
      this.pump();
      this.arrived();
    }
  }

  /**
   * @private
   * @param {Want} want
   * @param {Map<number, any>} rows
   */
  put(want, rows) {
    const name = key(want.sort, want.level, want.index);
    this.revision += 1;
    this.retryAfter.delete(name);
    let tile = this.tiles.get(name);
    if (!tile || tile.stale) {
      if (tile) this.bytes -= tile.bytes;
      tile = {
        sort: want.sort,
        level: want.level,
        index: want.index,
        rows: new Map(),
        used: this.clock,
        bytes: 0,
        stale: false,
        kept: Boolean(want.kept),
        names: this.names,
      };
      this.tiles.set(name, tile);
    }
    for (const row of want.rows) {
      const columns = rows.get(row);
      if (!columns) continue;
      tile.rows.set(row, columns);
      tile.bytes += 20 * columns.n + 200;
      this.bytes += 20 * columns.n + 200;
    }
    this.fetched += 1;
    this.trim();
  }

  /** Forgets everything: another recording is shown. */
  clear() {
    this.renew(new Map());
    this.tiles.clear();
    this.retryAfter.clear();
    this.bytes = 0;
  }

  /** @private */
  trim() {
    if (this.tiles.size <= TILES_KEPT && this.bytes <= BYTES_KEPT) return;
    const oldest = [...this.tiles].filter(([, tile]) => !tile.kept).sort((a, b) => a[1].used - b[1].used);
    for (const [name, tile] of oldest) {
      if (this.tiles.size <= TILES_KEPT && this.bytes <= BYTES_KEPT) break;
      this.tiles.delete(name);
      this.bytes -= tile.bytes;
    }
  }

  /**
   * Whether all of a stretch of time is there at one level.
   * @param {Sort} sort
   * @param {number} level
   * @param {number} from
   * @param {number} to
   */
  covers(sort, level, from, to) {
    const span = tileSpan(level);
    const last = Math.floor(to / span);
    for (let index = Math.max(0, Math.floor(from / span)); index <= last; index += 1) {
      const tile = this.tiles.get(key(sort, level, index));
      if (!tile || tile.stale) return false;
    }
    return true;
  }

  /**
   * What is there for one tile: itself first, then ever coarser ones that cover it.
   * @param {Sort} sort
   * @param {number} level
   * @param {number} index
   * @returns {Tile[]}
   */
  chain(sort, level, index) {
    const found = [];
    let at = index;
    for (let coarse = level; coarse <= TOP_LEVEL; coarse += 1) {
      const tile = this.tiles.get(key(sort, coarse, at));
      if (tile) {
        tile.used = this.clock;
        found.push(tile);
      }
      at = Math.floor(at / 2);
    }
    return found;
  }

  /**
   * A new generation: what is there is kept as a stand-in under the rows' new numbers.
   * @param {Map<number, number>} renumbered old row to new row
   */
  renew(renumbered) {
    this.epoch += 1;
    this.revision += 1;
    for (const flight of this.flights) flight.controller.abort();
    this.queue = [];
    for (const tile of this.tiles.values()) {
      tile.stale = true;
      tile.kept = false;
      const rows = new Map();
      for (const [row, columns] of tile.rows) {
        const now = renumbered.get(row);
        if (now !== undefined) rows.set(now, columns);
      }
      tile.rows = rows;
    }
  }
}

/** Texts of names, asked for in batches when they are first needed. */
export class Names {
  /**
   * @param {(ids: number[]) => Promise<{names: Record<string, string>, colors?: Record<string, string>}>} fetchNames
   * @param {() => void} arrived
   */
  constructor(fetchNames, arrived) {
    this.fetchNames = fetchNames;
    this.arrived = arrived;
    /** @type {Map<number, string>} */
    this.texts = new Map();
    /** Colours 0xBBGGRR that the program chose for its ranges. @type {Map<number, number>} */
    this.colours = new Map();
    /** @type {Set<number>} */
    this.wanted = new Set();
    /** @type {Set<number>} */
    this.asked = new Set();
    this.timer = 0;
    /** Counts how often names are to be written otherwise. */
    this.spelling = 0;
    /** Whether its generation is gone: what is known stays, nothing more is asked. */
    this.closed = false;
  }

  /** Asks for all texts anew: they are written otherwise now. */
  respell() {
    if (this.closed) return;
    this.spelling += 1;
    this.texts.clear();
    this.asked.clear();
    this.wanted.clear();
    this.arrived();
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
  }

  /**
   * The text, or null until it is there.
   * @param {number} id
   */
  get(id) {
    const text = this.texts.get(id);
    if (text !== undefined) return text;
    if (!this.closed && !this.asked.has(id)) {
      this.wanted.add(id);
      if (!this.timer) this.timer = setTimeout(() => void this.ask(), 30);
    }
    return null;
  }

  /** @private */
  async ask() {
    this.timer = 0;
    const ids = [...this.wanted].slice(0, 500);
    for (const id of ids) {
      this.wanted.delete(id);
      this.asked.add(id);
    }
    if (this.wanted.size > 0) this.timer = setTimeout(() => void this.ask(), 30);
    try {
      const spelling = this.spelling;
      const { names, colors } = await this.fetchNames(ids);
      if (spelling !== this.spelling) return;
      for (const id of ids) this.texts.set(id, names[id] ?? "");
      for (const [id, colour] of Object.entries(colors ?? {})) this.colours.set(Number(id), packed(rgb(colour)));
    } catch {
      setTimeout(() => ids.forEach((id) => this.asked.delete(id)), RETRY_MS);
    }
    this.arrived();
  }
}
