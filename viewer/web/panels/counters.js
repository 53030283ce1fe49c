// @ts-check
/** Sampled counters over the whole run, from the same tiles as the timeline's. */

import { lines } from "../charts.js";
import { h, replace } from "../dom.js";
import * as format from "../format.js";
import { resolution } from "./shared.js";

const BINS = 1024;

/** How values of a unit are written. @param {string | null | undefined} unit @returns {(value: number) => string} */
export function unitFormat(unit) {
  switch (unit) {
    case "bytes": case "B": return format.bytes;
    case "percent": case "%": return (value) => format.digits(value) + "\u202f%";
    case "ratio": return format.percent;
    case "ns": return format.time;
    case "bytes/s": case "B/s": case "bytes_per_second": return (value) => format.bandwidth(value / 1e9);
    case undefined: case null: case "": case "count": return (value) => format.digits(value);
    default: return (value) => format.digits(value) + "\u202f" + unit;
  }
}

/** Name and unit of a counter as the recording calls it: "sm_clock_mhz" is "SM clock" in MHz. @param {string} name */
export function counterTitle(name) {
  /** @type {[RegExp, string, (value: number) => string][]} */
  const endings = [
    [/_percent$/, "", unitFormat("%")], [/_bytes_per_second$/, "", unitFormat("B/s")], [/_bytes$/, "", format.bytes], [/_watts$/, "", unitFormat("W")], [/_celsius$/, "", unitFormat("°C")],
    [/_mhz$/, "", unitFormat("MHz")], [/_per_second$/, "", format.rate], [/_ratio$/, "", format.percent], [/_ns$/, "", format.time],
  ];
  const [ending, , write] = endings.find(([pattern]) => pattern.test(name)) ?? [/$^/, "", unitFormat(null)];
  const words = name.replace(ending, "").replaceAll("_", " ").replace(/\bgpu\b/, "GPU").replace(/\bsm\b/, "SM").replace(/\bcpu\b/, "CPU").replace(/\bpcie\b/, "PCIe").replace(/\bnvlink\b/, "NVLink").replace(/\becc\b/, "ECC");
  return { title: words[0].toUpperCase() + words.slice(1), write };
}

/**
 * Draws the chosen counter rows, one small chart each; calm while nothing comes.
 * @param {HTMLElement} box
 * @param {any} analysis
 * @param {import("./shared.js").Context} context
 * @param {(row: any) => boolean} wanted
 */
export async function drawCounters(box, analysis, context, wanted) {
  try {
    const { rows } = await context.api.rec("rows");
    const chosen = rows.filter((/** @type {any} */ row) => row.type === "counter" && wanted(row)).slice(0, 64);
    if (!chosen.length) return replace(box);
    const { begin, end } = context.info;
    const level = Math.max(0, Math.ceil(Math.log2(Math.max(1, end) / BINS)));
    const { decodeCounters } = await import("../api.js");
    const columns = decodeCounters(await context.api.recBuffer(`counters/${level}/0`, { rows: chosen.map((/** @type {any} */ row) => row.row).join(",") }));
    const fine = resolution(analysis);
    const charts = chosen.map((/** @type {any} */ row) => {
      const found = columns.get(row.row);
      if (!found?.n) return null;
      const bin = 2 ** level;
      /** @type {[number, number][]} */ const points = [];
      /** @type {[number, number, number][]} */ const band = [];
      for (let at = 0; at < found.n; at++) {
        const time = Math.min(end, Math.max(begin, found.x0[at] * bin));
        points.push([time, found.last[at]]);
        band.push([time, found.min[at], found.max[at]]);
      }
      const { title, write } = row.unit ? { title: counterTitle(row.label).title, write: unitFormat(row.unit) } : counterTitle(row.label);
      const where = (row.path ?? []).filter((/** @type {string} */ part) => part !== row.label).join(", ");
      return h("figure", { class: "p-small" }, h("figcaption", null, title, where ? h("span", { class: "p-faint" }, ` ${where}`) : null),
        lines({ series: [{ name: title, points, band: band.some(([, low, high]) => high > low) ? band : undefined }], span: [begin, end], label: `${title} of ${where} over time`, format: write, time: (ns) => format.moment(ns, fine), height: 92, area: true, binary: write === format.bytes,
          open: (at) => context.goTo({ from: Math.max(begin, at - (end - begin) / 20), to: Math.min(end, at + (end - begin) / 20) }) }).element);
    });
    replace(box, charts);
  } catch (error) {
    replace(box, h("p", { class: "p-faint" }, `Samples over time: ${/** @type {Error} */ (error).message}`));
  }
}
