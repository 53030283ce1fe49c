// @ts-check
/** Sampled counters over the whole run, from the same tiles as the timeline's. */

import { legend, lines, seriesColour } from "../charts.js";
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
    [/_percent$/, "", unitFormat("%")],
    [/_bytes_per_second$/, "", unitFormat("B/s")],
    [/_bytes$/, "", format.bytes],
    [/_watts$/, "", unitFormat("W")],
    [/_celsius$/, "", unitFormat("°C")],
    [/_mhz$/, "", unitFormat("MHz")],
    [/_per_second$/, "", format.rate],
    [/_ratio$/, "", format.percent],
    [/_ns$/, "", format.time],
  ];
  const [ending, , write] = endings.find(([pattern]) => pattern.test(name)) ?? [/$^/, "", unitFormat(null)];
  const words = name
    .replace(ending, "")
    .replaceAll("_", " ")
    .replace(/\bgpu\b/, "GPU")
    .replace(/\bsm\b/, "SM")
    .replace(/\bcpu\b/, "CPU")
    .replace(/\bpcie\b/, "PCIe")
    .replace(/\bnvlink\b/, "NVLink")
    .replace(/\becc\b/, "ECC");
  return { title: words[0].toUpperCase() + words.slice(1), write };
}

/** So many lines stand in one chart. */
const TOGETHER = 8;

/**
 * Draws the chosen counters over the whole run: a chart for each quantity, a line for each device. What never changed
 * is left out, for its mean says it all.
 * @param {HTMLElement} box
 * @param {import("../../types/analysis.js").Analysis} analysis
 * @param {import("./shared.js").Context} context
 * @param {(row: any) => boolean} wanted
 */
export async function drawCounters(box, analysis, context, wanted) {
  try {
    const { rows } = await context.api.rec("rows");
    const chosen = rows.filter((/** @type {any} */ row) => row.type === "counter" && row.max > row.min && wanted(row)).slice(0, 512);
    if (!chosen.length) return replace(box);
    const { begin, end } = context.info;
    const level = Math.max(0, Math.ceil(Math.log2(Math.max(1, end) / BINS)));
    const { decodeCounters, ranges } = await import("../api.js");
    const columns = decodeCounters(await context.api.recBuffer(`counters/${level}/0`, { rows: ranges(chosen.map((/** @type {any} */ row) => row.row)) }));
    const fine = resolution(analysis);
    /** @type {Map<string, any[]>} */
    const alike = new Map();
    for (const row of chosen) {
      // A chart that is full is followed by another of the same quantity.
      let part = 0;
      while ((alike.get(`${row.label} ${part}`) ?? []).length >= TOGETHER) part++;
      const key = `${row.label} ${part}`;
      alike.set(key, [...(alike.get(key) ?? []), row]);
    }
    const charts = [...alike.values()].map((list) => {
      const [one] = list;
      const title = one.label[0].toUpperCase() + one.label.slice(1);
      const write = unitFormat(one.unit);
      const series = list.map((row) => {
        const found = columns.get(row.row);
        /** @type {[number, number][]} */ const points = [];
        /** @type {[number, number, number][]} */ const band = [];
        for (let at = 0; at < (found?.n ?? 0); at++) {
          const time = Math.min(end, Math.max(begin, /** @type {any} */ (found).x0[at] * 2 ** level));
          points.push([time, /** @type {any} */ (found).last[at]]);
          band.push([time, /** @type {any} */ (found).min[at], /** @type {any} */ (found).max[at]]);
        }
        const name = (row.path ?? []).filter((/** @type {string} */ part) => part !== row.label).join(", ");
        return { name: name || title, points, band: list.length === 1 && band.some(([, low, high]) => high > low) ? band : undefined };
      }).filter((line) => line.points.length);
      if (!series.length) return null;
      return h("figure", { class: "p-small" }, h("figcaption", null, title, series.length === 1 ? h("span", { class: "p-faint" }, ` ${series[0].name}`) : null),
        series.length > 1 ? legend(series.map((line, at) => ({ title: line.name, colour: seriesColour(at) }))) : null,
        lines({
          series,
          span: [begin, end],
          label: `${title} over time, of ${series.map((line) => line.name).join("; ")}`,
          format: write,
          time: (ns) => format.moment(ns, fine),
          height: 104,
          area: series.length === 1,
          binary: write === format.bytes,
          open: (at) => context.goTo({ from: Math.max(begin, at - (end - begin) / 20), to: Math.min(end, at + (end - begin) / 20) }),
        }).element,
      );
    });
    replace(box, charts);
  } catch (error) {
    replace(box, h("p", { class: "p-faint" }, `Samples over time: ${/** @type {Error} */ (error).message}`));
  }
}
