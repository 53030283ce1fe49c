// @ts-check
/** Talking to the server: addresses, errors, and the binary answers as typed arrays. */

/** An answer that is no success; `status` 0 means that no answer came. */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   */
  constructor(status, message) {
    super(message);
    this.name = "ApiError";
    this.status = status;
  }
}

/**
 * @param {string} path
 * @param {Record<string, any>} [query]
 */
export function address(path, query) {
  const parts = [];
  for (const [key, value] of Object.entries(query ?? {})) {
    // Of a list each has its own.
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null) parts.push(`${encodeURIComponent(key)}=${encodeURIComponent(String(one))}`);
    }
  }
  return parts.length ? `${path}?${parts.join("&")}` : path;
}

/**
 * @param {string} url
 * @param {AbortSignal} [signal]
 * @returns {Promise<Response>}
 */
async function request(url, signal) {
  let response;
  try {
    response = await fetch(url, { signal, credentials: "same-origin" });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "the server does not answer");
  }
  if (response.ok) return response;
  // The server has read the recording anew: whoever follows it will take the new generation.
  if (response.status === 410) dispatchEvent(new Event("gputrace-stale"));
  let message = `${response.status} ${response.statusText}`;
  try {
    message = (await response.json()).error ?? message;
  } catch {
    // An answer without a reason keeps its status as the reason.
  }
  throw new ApiError(response.status, message);
}

/**
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function getJson(path, query, signal) {
  return (await request(address(path, query), signal)).json();
}

/**
 * @param {string} path
 * @param {Record<string, any>} [query]
 * @param {AbortSignal} [signal]
 */
export async function getBytes(path, query, signal) {
  return (await request(address(path, query), signal)).arrayBuffer();
}

/** Recordings that the server knows. */
export const recordings = () => getJson("/api/recordings");

/** @typedef {{signal?: AbortSignal}} Options */

/**
 * One recording in one generation; every method asks for what its name says.
 * `json` and `buffer` take paths below /api/, `rec` and `recBuffer` below this recording and generation.
 */
export class RecordingApi {
  /**
   * @param {string} id
   * @param {number} generation
   */
  constructor(id, generation) {
    this.id = id;
    this.generation = generation;
    this.base = `/api/rec/${encodeURIComponent(id)}`;
  }

  /** Path of something of this generation. */
  at(/** @type {string} */ rest) {
    return `${this.base}/${this.generation}/${rest}`;
  }

  /** @param {string} path @param {Record<string, any>} [query] @param {Options} [options] @returns {Promise<any>} */
  json(path, query, options) {
    return getJson(`/api/${path}`, query, options?.signal);
  }
  /** @param {string} path @param {Record<string, any>} [query] @param {Options} [options] */
  buffer(path, query, options) {
    return getBytes(`/api/${path}`, query, options?.signal);
  }
  /** @param {string} path @param {Record<string, any>} [query] @param {Options} [options] @returns {Promise<any>} */
  rec(path, query, options) {
    return getJson(this.at(path), query, options?.signal);
  }
  /** @param {string} path @param {Record<string, any>} [query] @param {Options} [options] */
  recBuffer(path, query, options) {
    return getBytes(this.at(path), query, options?.signal);
  }

  info(/** @type {AbortSignal} */ signal) {
    return getJson(`${this.base}/info`, {}, signal);
  }
  live(/** @type {AbortSignal} */ signal) {
    return getJson(`${this.base}/live`, {}, signal);
  }
  rows() {
    return this.rec("rows");
  }
  /** @returns {Promise<import("../types/analysis.js").RankOverview>} */
  ranks() {
    return this.rec("ranks");
  }
  /**
   * One measure of each rank in each step.
   * @param {string} measure
   * @param {{steps: string | null, columns: number, binned: string}} of
   * @returns {Promise<import("../types/analysis.js").RankCells>}
   */
  rankCells(measure, of) {
    return this.rec(`ranks/${encodeURIComponent(measure)}`, of);
  }
  analysis(/** @type {string} */ steps) {
    return this.rec("analysis", { steps });
  }
  /**
   * @param {number} row
   * @param {number} index
   * @param {AbortSignal} [signal]
   */
  slice(row, index, signal) {
    return this.rec("slice", { row, index }, { signal });
  }
  /** @param {string} key @param {number} start */
  sliceAt(key, start) {
    return this.rec("slice_at", { key, start });
  }
  /** @param {number} row @param {number} at @param {number} tolerance @param {AbortSignal} [signal] */
  hit(row, at, tolerance, signal) {
    return this.rec("hit", { row, at: Math.round(at), tolerance: Math.max(0, Math.round(tolerance)) }, { signal });
  }
  /** @param {number} row @param {number} index @param {"next" | "previous"} direction @param {boolean} sameName */
  neighbour(row, index, direction, sameName) {
    return this.rec("neighbour", { row, index, direction, same_name: sameName ? 1 : 0 });
  }
  /** @param {number} from @param {number} to @param {number[]} rows @param {AbortSignal} [signal] */
  area(from, to, rows, signal) {
    return this.rec("area", { from: Math.floor(from), to: Math.ceil(to), rows: ranges(rows) }, { signal });
  }
  /** What threads were in, merged. @param {{of: string, from: number, to: number, rows: number[], mergeNumbers: boolean}} what @param {AbortSignal} [signal] */
  tree({ of, from, to, rows, mergeNumbers }, signal) {
    return this.rec("tree", { of, from: Math.floor(from), to: Math.ceil(to), rows: ranges(rows), merge_numbers: mergeNumbers ? 1 : 0 }, { signal });
  }
  /** @param {string} q @param {{by?: string, regex?: boolean, case?: boolean, limit?: number, offset?: number}} options @param {AbortSignal} [signal] */
  search(q, options, signal) {
    return this.rec(
      "search",
      { q, by: options.by ?? "name", regex: options.regex ? 1 : 0, case: options.case ? 1 : 0, limit: options.limit ?? 200, offset: options.offset ?? 0 },
      { signal },
    );
  }
  /**
   * What a step would take with these changes, of some steps ("" are all).
   * @param {string[]} changes
   * @param {string} steps
   * @param {AbortSignal} [signal]
   * @returns {Promise<import("../types/analysis.js").WhatIf>}
   */
  whatIf(changes, steps, signal) {
    return this.rec("whatif", { set: changes, steps: steps || null }, { signal });
  }
  /** What the critical path of some steps is made of. @param {string} steps @returns {Promise<import("../types/analysis.js").CriticalPath>} */
  criticalPath(steps) {
    return this.rec("critical_path", { steps: steps || null });
  }
  /** Where it goes: as many pieces as a page draws. @param {string} steps */
  async pathPieces(steps) {
    /** @type {PathColumns[]} */
    const pages = [];
    for (let have = 0; have < MOST_PIECES; ) {
      const page = decodePath(await getBytes(this.at("critical_path/pieces"), { offset: have, steps: steps || null }));
      pages.push(page);
      have += page.n;
      if (page.n === 0 || have >= page.total) break;
    }
    return joinPath(pages);
  }
  /** Address of a download. @param {string} format @param {Record<string, any>} [query] */
  exportAddress(format, query) {
    return address(this.at("export"), { format, ...query });
  }
  /** @param {number[]} ids @param {boolean} [full] @returns {Promise<{names: Record<string, string>, colors?: Record<string, string>}>} */
  names(ids, full = false) {
    return this.rec("names", { ids: ids.join(","), full: full ? 1 : 0 });
  }
  /** @param {number} level @param {number} index @param {number[]} rows @param {AbortSignal} [signal] */
  async tiles(level, index, rows, signal) {
    return decodeTiles(await getBytes(this.at(`tiles/${level}/${index}`), { rows: ranges(rows) }, signal));
  }
  /** @param {number} level @param {number} index @param {number[]} rows @param {AbortSignal} [signal] */
  async counters(level, index, rows, signal) {
    return decodeCounters(await getBytes(this.at(`counters/${level}/${index}`), { rows: ranges(rows) }, signal));
  }
  /** @param {number} from @param {number} to @param {number} bins @param {AbortSignal} [signal] */
  async overview(from, to, bins, signal) {
    return decodeOverview(await getBytes(this.at("overview"), { from, to, bins }, signal));
  }
}

/**
 * Numbers as the server takes them: "0-5,9".
 * @param {number[]} rows
 */
export function ranges(rows) {
  const sorted = [...rows].sort((a, b) => a - b);
  /** @type {string[]} */
  const parts = [];
  for (let i = 0; i < sorted.length; ) {
    let j = i;
    while (j + 1 < sorted.length && sorted[j + 1] <= sorted[j] + 1) j += 1;
    parts.push(sorted[i] === sorted[j] ? `${sorted[i]}` : `${sorted[i]}-${sorted[j]}`);
    i = j + 1;
  }
  return parts.join(",");
}

/**
 * The numbers that `ranges` wrote, `most` of them; null where it wrote nothing of the sort.
 * @param {string | null} text
 * @param {number} most
 */
export function numbersOf(text, most) {
  if (text === "") return [];
  if (text === null || !/^\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*$/.test(text)) return null;
  /** @type {number[]} */
  const numbers = [];
  for (const part of text.split(",")) {
    const [from, to = from] = part.split("-").map(Number);
    for (let one = from; one <= to && numbers.length < most; one += 1) numbers.push(one);
  }
  return numbers;
}

/**
 * Slices of one row in one tile; x in bins since the tile's begin.
 * @typedef {{n: number, x0: Float32Array, x1: Float32Array, name: Uint32Array, meta: Uint32Array, id: Uint32Array}} SliceColumns
 *
 * Values of one counter in one tile.
 * @typedef {{n: number, x0: Float32Array, x1: Float32Array, min: Float32Array, max: Float32Array, last: Float32Array}} CounterColumns
 */

/**
 * The heads that slices and counters share.
 * @param {ArrayBuffer} buffer
 * @param {number} magic
 * @param {string} what
 */
function decodeHead(buffer, magic, what) {
  const head = new Uint32Array(buffer, 0, Math.min(4, buffer.byteLength >> 2));
  if (head[0] !== magic || head[1] !== 1) throw new ApiError(0, `the server's ${what} are of another version; reload the page`);
  const n = head[3];
  return { n, rows: new Uint32Array(buffer, 16, n), counts: new Uint32Array(buffer, 16 + 4 * n, n), offset: 16 + 8 * n };
}

/**
 * @param {ArrayBuffer} buffer
 * @returns {Map<number, SliceColumns>}
 */
export function decodeTiles(buffer) {
  const { n, rows, counts, offset } = decodeHead(buffer, 0x454c4954, "tiles");
  const found = new Map();
  let at = offset;
  for (let i = 0; i < n; i += 1) {
    const count = counts[i];
    const step = 4 * count;
    found.set(rows[i], {
      n: count,
      x0: new Float32Array(buffer, at, count),
      x1: new Float32Array(buffer, at + step, count),
      name: new Uint32Array(buffer, at + 2 * step, count),
      meta: new Uint32Array(buffer, at + 3 * step, count),
      id: new Uint32Array(buffer, at + 4 * step, count),
    });
    at += 5 * step;
  }
  return found;
}

/**
 * @param {ArrayBuffer} buffer
 * @returns {Map<number, CounterColumns>}
 */
export function decodeCounters(buffer) {
  const { n, rows, counts, offset } = decodeHead(buffer, 0x52544e43, "counters");
  const found = new Map();
  let at = offset;
  for (let i = 0; i < n; i += 1) {
    const count = counts[i];
    const column = (/** @type {number} */ k) => new Float32Array(buffer, at + 4 * k * count, count);
    found.set(rows[i], { n: count, x0: column(0), x1: column(1), min: column(2), max: column(3), last: column(4) });
    at += 20 * count;
  }
  return found;
}

/**
 * Shares of time by band: compute alone, compute and communication at once, communication alone, copies alone.
 *
 * @param {ArrayBuffer} buffer
 */
export function decodeOverview(buffer) {
  const head = new Uint32Array(buffer, 0, 4);
  if (head[0] !== 0x5245564f || head[1] !== 1) throw new ApiError(0, "the server's overview is of another version; reload the page");
  const [, , bands, bins] = head;
  const shares = [];
  for (let band = 0; band < bands; band += 1) {
    const column = (/** @type {number} */ k) => new Float32Array(buffer, 16 + 4 * bins * (4 * band + k), bins);
    shares.push({ compute: column(0), both: column(1), communication: column(2), copy: column(3) });
  }
  return { bins, bands: shares };
}

/** Pieces of the critical path that are drawn at most. */
const MOST_PIECES = 1 << 20;
/** In a piece: it lies on no row, or on no slice of it. */
export const NOWHERE = 0xffffffff;

/**
 * Pieces of the critical path, by time; times in ns since the recording's origin.
 * @typedef {{n: number, total: number, start: Float64Array, end: Float64Array, part: Uint32Array, row: Uint32Array, index: Uint32Array}} PathColumns
 */

/**
 * @param {ArrayBuffer} buffer
 * @returns {PathColumns}
 */
export function decodePath(buffer) {
  const [magic, version, total, n] = new Uint32Array(buffer, 0, Math.min(4, buffer.byteLength >> 2));
  if (magic !== 0x48544150 || version !== 1) throw new ApiError(0, "the server's critical path is of another version; reload the page");
  const words = (/** @type {number} */ k) => new Uint32Array(buffer, 16 + 16 * n + 4 * n * k, n);
  return { n, total, start: new Float64Array(buffer, 16, n), end: new Float64Array(buffer, 16 + 8 * n, n), part: words(0), row: words(1), index: words(2) };
}

/** @param {PathColumns[]} pages @returns {PathColumns} */
function joinPath(pages) {
  if (pages.length === 1) return pages[0];
  const n = pages.reduce((sum, page) => sum + page.n, 0);
  /** @type {PathColumns} */
  const all = {
    n,
    total: pages[0].total,
    start: new Float64Array(n),
    end: new Float64Array(n),
    part: new Uint32Array(n),
    row: new Uint32Array(n),
    index: new Uint32Array(n),
  };
  let at = 0;
  for (const page of pages) {
    for (const column of /** @type {const} */ (["start", "end", "part", "row", "index"])) all[column].set(page[column], at);
    at += page.n;
  }
  return all;
}

/** A recording's answers, with the bands of one place alone. */
export class SideApi extends RecordingApi {
  /** @param {string} id @param {number} generation @param {(band: number) => boolean} isKept @param {() => void} onStale */
  constructor(id, generation, isKept, onStale) {
    super(id, generation);
    this.isKept = isKept;
    this.onStale = onStale;
  }

  /** @param {number} from @param {number} to @param {number} bins @param {AbortSignal} [signal] */
  async overview(from, to, bins, signal) {
    const answer = await super.overview(from, to, bins, signal);
    return { ...answer, bands: answer.bands.filter((_, at) => this.isKept(at)) };
  }

  /** @param {number} level @param {number} index @param {number[]} rows @param {AbortSignal} [signal] */
  async tiles(level, index, rows, signal) {
    try {
      return await super.tiles(level, index, rows, signal);
    } catch (error) {
      if (/** @type {any} */ (error).status === 410) this.onStale();
      throw error;
    }
  }
}
