// @ts-check
/** The same step of two recordings, one above the other on one scale: what ran on the GPU's streams in each. */

import { RecordingApi } from "../api.js";
import { hideTip, linearTicks, showTip, tipLines } from "../charts.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { FLAG_DENSITY, colourIndex, lift, rasterRow, recordAt } from "../raster.js";
import { readTheme } from "../theme.js";

/** Bins of a tile. */
const BINS = 1024;
/** Lanes of one side at most; the others are named. */
const LANES = 12;
const ROW = 20;
const GAP = 4;
const HEAD = 24;
const MARGIN = { left: 104, right: 14, bottom: 24 };
/** Names stand in slices at least so wide. */
const NAMED = 56;

/**
 * @typedef {{id: string, generation: number, name: string, step: string, from: number, to: number}} Side
 * @typedef {{columns: import("../api.js").SliceColumns, index: number, row: any, side: number, top: number}} Lane
 */

/**
 * Which tiles show a stretch of time at `pixels`: their level, and indices from first to last.
 * @param {number} from
 * @param {number} to
 * @param {number} span ns across the picture
 * @param {number} pixels
 */
export function tilesFor(from, to, span, pixels) {
  const level = Math.max(0, Math.floor(Math.log2(Math.max(1, span / Math.max(1, pixels)))));
  const tile = BINS * 2 ** level;
  const first = Math.max(0, Math.floor(from / tile));
  return { level, tile, indices: Array.from({ length: Math.max(1, Math.floor(Math.max(from, to - 1) / tile) - first + 1) }, (_, at) => first + at) };
}

/** @param {import("./shared.js").Context} context @param {{open: (side: number, from: number, to: number) => void}} actions */
export function sideBySide(context, { open }) {
  const canvas = h("canvas", { class: "p-picture", role: "img" });
  const note = h("p", { class: "p-faint" });
  const element = h("div", null, canvas, note);
  /** @type {Side[]} */ let sides = [];
  /** @type {Lane[]} */ let lanes = [];
  let where = { rank: /** @type {number | null} */ (null), device: 0 };
  /** @type {Map<string, Promise<any>>} */
  const rowsOnce = new Map();
  /** @type {Record<string, string>[]} */
  let names = [{}, {}];
  let asked = 0;
  let width = 0;

  const api = (/** @type {Side} */ side) => new RecordingApi(side.id, side.generation);
  const span = () => Math.max(1, ...sides.map((side) => side.to - side.from));
  const plot = () => Math.max(60, width - MARGIN.left - MARGIN.right);

  new ResizeObserver((entries) => {
    const next = Math.floor(entries[0].contentRect.width);
    if (next === width || next < 40) return;
    width = next;
    if (sides.length) requestAnimationFrame(load);
  }).observe(element);
  context.state?.subscribe?.(["dark"], () => canvas.isConnected && draw());

  /** @param {Side[]} chosen @param {number | null} rank @param {number} device */
  function show(chosen, rank, device) {
    sides = chosen;
    where = { rank, device };
    if (width) load();
  }

  async function load() {
    const mine = ++asked;
    try {
      /** @type {Lane[]} */
      const found = [];
      const missing = [];
      for (const [at, side] of sides.entries()) {
        const key = `${side.id}/${side.generation}`;
        if (!rowsOnce.has(key)) rowsOnce.set(key, api(side).rows());
        const { rows } = await rowsOnce.get(key);
        const streams = rows.filter((/** @type {any} */ row) => row.type === "slices" && row.what === "stream" && row.rank === where.rank && row.device === where.device && row.begin < side.to && row.end > side.from);
        if (streams.length > LANES) missing.push(`${streams.length - LANES} more lanes of ${side.name} are not drawn.`);
        const shown = streams.slice(0, LANES);
        if (!shown.length) continue;
        const { level, indices } = tilesFor(side.from, side.to, span(), plot() * devicePixelRatio);
        const tiles = await Promise.all(indices.map((index) => api(side).tiles(level, index, shown.map((/** @type {any} */ row) => row.row))));
        for (const row of shown) {
          indices.forEach((index, tile) => {
            const columns = tiles[tile].get(row.row);
            if (columns) found.push({ columns, index: index * BINS * 2 ** level, row: { ...row, bin: 2 ** level }, side: at, top: 0 });
          });
        }
      }
      if (mine !== asked) return;
      lanes = found;
      note.textContent = missing.join(" ");
      draw();
      await nameThem(mine);
    } catch (error) {
      if (mine === asked) note.textContent = `The picture of the step: ${/** @type {Error} */ (error).message}`;
    }
  }

  /** Asks for the names of what is wide enough to bear one. @param {number} mine */
  async function nameThem(mine) {
    const scale = plot() / span();
    for (const [at, side] of sides.entries()) {
      const wanted = new Set();
      for (const { columns, row } of lanes.filter((lane) => lane.side === at)) {
        for (let i = 0; i < columns.n && wanted.size < 400; i++) {
          if ((columns.x1[i] - columns.x0[i]) * row.bin * scale >= NAMED && !names[at][columns.name[i]]) wanted.add(columns.name[i]);
        }
      }
      if (wanted.size) names[at] = { ...names[at], ...(await api(side).names([...wanted])).names };
      if (mine !== asked) return;
    }
    draw();
  }

  function draw() {
    const ratio = devicePixelRatio || 1;
    const rows = sides.map((_, at) => [...new Map(lanes.filter((lane) => lane.side === at).map((lane) => [lane.row.row, lane.row])).values()]);
    const height = rows.reduce((sum, list) => sum + HEAD + Math.max(1, list.length) * (ROW + GAP) + 6, 0) + MARGIN.bottom;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
    const paint = canvas.getContext("2d");
    if (!paint) return;
    const theme = readTheme();
    const family = getComputedStyle(canvas).fontFamily;
    const pixels = Math.round(plot() * ratio);
    const scale = pixels / span();
    paint.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint.clearRect(0, 0, width, height);
    const bottom = height - MARGIN.bottom;
    for (const tick of linearTicks(0, span(), Math.max(2, Math.floor(width / 130)))) {
      const x = Math.round(MARGIN.left + (tick * scale) / ratio) + 0.5;
      paint.fillStyle = theme.colour.line;
      paint.fillRect(x - 0.5, 0, 1, bottom);
      paint.fillStyle = theme.colour["text-3"];
      paint.font = `11px ${family}`;
      paint.textAlign = "center";
      paint.fillText(format.trimmed(format.time(tick)), Math.min(x, width - 22), bottom + 16);
    }
    paint.textAlign = "left";
    let top = 0;
    sides.forEach((side, at) => {
      paint.fillStyle = theme.colour.text;
      paint.font = `600 12px ${family}`;
      const title = `${at ? "second" : "first"}: ${format.middle(side.name, 60)}, ${side.step}, ${format.time(side.to - side.from)}`;
      const wide = paint.measureText(title).width;
      paint.fillStyle = theme.colour.background;
      paint.fillRect(0, top + 2, wide + 8, HEAD - 5);
      paint.fillStyle = theme.colour.text;
      paint.fillText(title, 0, top + 16);
      top += HEAD;
      if (!rows[at].length) {
        paint.fillStyle = theme.colour["text-3"];
        paint.font = `12px ${family}`;
        paint.fillText("nothing ran on this rank in this step", MARGIN.left, top + 14);
      }
      const line = new Uint32Array(pixels);
      for (const row of rows[at]) {
        line.fill(0);
        const end = Math.min(pixels, Math.max(1, Math.ceil((side.to - side.from) * scale)));
        paint.fillStyle = theme.colour.idle;
        paint.fillRect(MARGIN.left, top, end / ratio, ROW);
        const mine = lanes.filter((lane) => lane.side === at && lane.row.row === row.row);
        for (const lane of mine) {
          lane.top = top;
          rasterRow(line, 0, lane.columns, row.bin * scale, (lane.index - side.from) * scale, 0, end, theme.palette);
        }
        lift(line, 0, pixels);
        const one = new OffscreenCanvas(pixels, 1);
        one.getContext("2d")?.putImageData(new ImageData(new Uint8ClampedArray(line.buffer.slice(0)), pixels, 1), 0, 0);
        paint.imageSmoothingEnabled = false;
        paint.drawImage(one, 0, 0, pixels, 1, MARGIN.left, top, pixels / ratio, ROW);
        label(paint, theme, family, mine, side, scale / ratio, end / ratio, names[at]);
        paint.fillStyle = theme.colour["text-2"];
        paint.font = `12px ${family}`;
        paint.fillText(format.middle(row.lanes > 1 ? `${row.label} (${row.lane + 1})` : row.label, 15), 0, top + 14);
        top += ROW + GAP;
      }
      if (!rows[at].length) top += ROW + GAP;
      top += 6;
    });
    canvas.setAttribute("aria-label", `${sides.map((side) => `${side.step} of ${side.name}, ${format.time(side.to - side.from)}`).join(" above ")}: operations by stream on one scale`);
  }

  /**
   * Names in slices that have room; a slice that lies in two tiles gets one.
   * @param {CanvasRenderingContext2D} paint @param {import("../theme.js").Theme} theme @param {string} family
   * @param {Lane[]} mine @param {Side} side @param {number} scale pixels of the page a ns @param {number} end @param {Record<string, string>} known
   */
  function label(paint, theme, family, mine, side, scale, end, known) {
    paint.font = `11px ${family}`;
    const seen = new Set();
    for (const { columns, index, row, top } of mine) {
      for (let i = 0; i < columns.n; i++) {
        const from = Math.max(0, (index + columns.x0[i] * row.bin - side.from) * scale);
        const to = Math.min(end, (index + columns.x1[i] * row.bin - side.from) * scale);
        const text = known[columns.name[i]];
        if (to - from < NAMED || !text || (columns.meta[i] >>> 16) & FLAG_DENSITY || seen.has(columns.id[i])) continue;
        seen.add(columns.id[i]);
        const short = format.shortName(text);
        const letters = Math.floor((short.length * (to - from - 8)) / Math.max(1, paint.measureText(short).width));
        if (letters < 4) continue;
        paint.fillStyle = theme.inks[colourIndex(columns.meta[i])];
        paint.fillText(letters < short.length ? short.slice(0, letters - 1) + "…" : short, MARGIN.left + from + 4, top + 14);
      }
    }
  }

  /** What lies under a place of the picture. @param {PointerEvent | MouseEvent} event */
  function under(event) {
    const bounds = canvas.getBoundingClientRect();
    const x = event.clientX - bounds.left - MARGIN.left;
    const y = event.clientY - bounds.top;
    const scale = plot() / span();
    for (const lane of lanes) {
      if (y < lane.top || y >= lane.top + ROW) continue;
      const side = sides[lane.side];
      const at = recordAt(lane.columns, lane.row.bin * scale, (lane.index - side.from) * scale, x, 2);
      if (at >= 0 && x >= -2 && x <= (side.to - side.from) * scale + 2) return { lane, at, side };
    }
    return null;
  }

  canvas.addEventListener("pointermove", async (event) => {
    const hit = under(event);
    canvas.classList.toggle("p-pointing", Boolean(hit));
    if (!hit) return hideTip();
    const { lane, at, side } = hit;
    const { columns, row } = lane;
    const many = (columns.meta[at] >>> 16) & FLAG_DENSITY;
    const id = columns.name[at];
    const duration = (columns.x1[at] - columns.x0[at]) * row.bin;
    const lines = many ? [{ name: "operations", value: format.count(columns.id[at]) }, { name: "busy", value: format.percent(((columns.meta[at] >>> 8) & 255) / 255) }] : [{ name: "duration", value: format.time(duration) }];
    lines.push({ name: "into the step", value: format.time(Math.max(0, lane.index + columns.x0[at] * row.bin - side.from)) });
    showTip(event.clientX, event.clientY, tipLines(format.middle(names[lane.side][id] ?? "…", 160), lines, many ? "the longest one's name" : undefined));
    if (!names[lane.side][id]) {
      const known = await api(side).names([id]).catch(() => null);
      if (known) names[lane.side] = { ...names[lane.side], ...known.names };
    }
  });
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("click", (event) => {
    const hit = under(event);
    if (!hit) return;
    hideTip();
    const begin = hit.lane.index + hit.lane.columns.x0[hit.at] * hit.lane.row.bin;
    open(hit.lane.side, begin, begin + Math.max(1, (hit.lane.columns.x1[hit.at] - hit.lane.columns.x0[hit.at]) * hit.lane.row.bin));
  });

  return {
    element,
    show,
    clear() {
      asked++;
      sides = [];
      lanes = [];
      names = [{}, {}];
      replace(note);
    },
  };
}
