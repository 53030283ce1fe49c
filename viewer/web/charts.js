// @ts-check
/**
 * Charts in SVG: axes that read well, one tooltip, arrow keys, shapes and hatching beside colour. Colours are CSS
 * variables, so that a change of theme needs no drawing.
 */

import { h, replace, svg } from "./dom.js";
import { trimmed } from "./format.js";
import { binaryTicks, linear, logarithmic } from "./scales.js";

/** @typedef {import("./scales.js").Scale} Scale */

/** @type {HTMLElement | null} */
let bubble = null;

/**
 * Shows the tooltip beside a place of the window.
 * @param {number} x
 * @param {number} y
 * @param {...import("./dom.js").Child} content
 */
export function showTip(x, y, ...content) {
  if (!bubble || !bubble.isConnected) {
    bubble = h("div", { class: "p-tip", role: "status" });
    document.body.append(bubble);
  }
  replace(bubble, content);
  bubble.hidden = false;
  const { width, height } = bubble.getBoundingClientRect();
  const left = x + 14 + width > innerWidth - 6 ? x - 14 - width : x + 14;
  const top = Math.min(Math.max(6, y - height / 2), innerHeight - height - 6);
  bubble.style.transform = `translate(${Math.round(Math.max(6, left))}px, ${Math.round(top)}px)`;
}

export function hideTip() {
  if (bubble) bubble.hidden = true;
}

/**
 * Lines of a tooltip: a head, then names and values; with `colour` a mark before the name.
 * @param {import("./dom.js").Child} head
 * @param {{name: string, value: string, colour?: string, hatched?: boolean, strong?: boolean}[]} lines
 * @param {string} [foot]
 */
export function tipLines(head, lines, foot) {
  return [
    h("div", { class: "p-tiphead" }, head),
    lines.length ? h("dl", null, lines.map((line) => [
      h("dt", { class: line.strong ? "strong" : null }, line.colour ? swatch(line.colour, line.hatched) : null, line.name),
      h("dd", { class: line.strong ? "strong" : null }, line.value),
    ])) : null,
    foot ? h("div", { class: "p-tipfoot" }, foot) : null,
  ];
}

/**
 * A small mark of a colour.
 * @param {string} colour
 * @param {boolean} [hatched]
 */
export function swatch(colour, hatched = false) {
  return h("span", { class: hatched ? "p-swatch p-hatched" : "p-swatch", "aria-hidden": "true", style: { "--c": colour } });
}

/**
 * @param {{title: string, colour: string, hatched?: boolean, hint?: string, shape?: number}[]} items
 */
export function legend(items) {
  return h("ul", { class: "p-legend" }, items.map((item) =>
    h("li", { title: item.hint }, item.shape === undefined ? swatch(item.colour, item.hatched)
      : svg("svg", { class: "p-shape", viewBox: "-7 -7 14 14", "aria-hidden": "true" },
        svg("path", { d: shape(item.shape, 5), style: { fill: item.colour } })), item.title)));
}

/**
 * A share bar: parts side by side, as wide as their values.
 * @param {{value: number, title: string, colour: string, hatched?: boolean}[]} parts
 * @param {{total?: number, format?: (value: number) => string, label?: string, label_parts?: boolean}} [options] total: what the whole width stands for
 */
export function shareBar(parts, options = {}) {
  const sum = parts.reduce((all, part) => all + Math.max(0, part.value), 0);
  const total = Math.max(options.total ?? sum, sum);
  const format = options.format ?? String;
  const said = parts
    .filter((part) => part.value > 0)
    .map((part) => `${part.title} ${format(part.value)}`)
    .join(", ");
  return h(
    "div",
    { class: "p-share", role: "img", "aria-label": `${options.label ? options.label + ": " : ""}${said || "nothing"}` },
    parts
      .filter((part) => part.value > 0 && total > 0)
      .map((part) =>
        h("span", {
          class: part.hatched ? "p-part p-hatched" : "p-part",
          title: `${part.title}: ${format(part.value)}`,
          style: { "--c": part.colour, "flex-grow": (part.value / total).toFixed(6) },
        }),
      ),
    total > sum ? h("span", { class: "p-part p-rest", style: { "flex-grow": ((total - sum) / total).toFixed(6) } }) : null,
  );
}

/**
 * The path of a mark, so that series differ by more than colour.
 * @param {number} index
 * @param {number} r
 * @param {number} [x]
 * @param {number} [y]
 */
export function shape(index, r, x = 0, y = 0) {
  const at = (/** @type {number} */ dx, /** @type {number} */ dy) => `${(x + dx * r).toFixed(1)},${(y + dy * r).toFixed(1)}`;
  const through = (/** @type {number[][]} */ ...points) => "M" + points.map(([dx, dy]) => at(dx, dy)).join("L") + "z";
  switch (index % 6) {
    case 0: return `M${at(-1, 0)}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`;
    case 1: return through([-0.86, -0.86], [0.86, -0.86], [0.86, 0.86], [-0.86, 0.86]);
    case 2: return through([0, -1.15], [1.05, 0.75], [-1.05, 0.75]);
    case 3: return through([0, -1.2], [1.2, 0], [0, 1.2], [-1.2, 0]);
    case 4: return through([0, 1.15], [1.05, -0.75], [-1.05, -0.75]);
    default: return through([-0.4, -1.1], [0.4, -1.1], [0.4, -0.4], [1.1, -0.4],
      [1.1, 0.4], [0.4, 0.4], [0.4, 1.1], [-0.4, 1.1], [-0.4, 0.4], [-1.1, 0.4], [-1.1, -0.4], [-0.4, -0.4]);
  }
}

/** A colour of the eight that series have. @param {number} index */
export const seriesColour = (index) => `var(--series-${(index % 8) + 1})`;

/**
 * The frame of a chart: draws itself again when its width changes.
 * @param {{height: number | ((width: number) => number), label: string, draw: (width: number, height: number, root: SVGElement) => void,
 *   keys?: (event: KeyboardEvent) => void, class?: string}} options
 */
export function frame(options) {
  const root = svg("svg", {
    class: "p-chart" + (options.class ? " " + options.class : ""),
    role: "img",
    "aria-label": options.label,
    tabindex: options.keys ? 0 : null,
  });
  if (typeof options.height === "number") root.setAttribute("height", String(options.height));
  const box = h("div", { class: "p-chartbox" }, root);
  let width = 0;
  const draw = () => {
    const height = typeof options.height === "function" ? options.height(width) : options.height;
    root.setAttribute("width", String(width));
    root.setAttribute("height", String(height));
    root.setAttribute("viewBox", `0 0 ${width} ${height}`);
    root.textContent = "";
    options.draw(width, height, root);
  };
  new ResizeObserver((entries) => {
    const next = Math.floor(entries[0].contentRect.width);
    if (next === width || next < 40) return;
    width = next;
    // Not within the observation: drawing changes heights, which would be observed again.
    requestAnimationFrame(draw);
  }).observe(box);
  root.addEventListener("pointerleave", hideTip);
  root.addEventListener("blur", hideTip);
  const keys = options.keys;
  if (keys) root.addEventListener("keydown", keys);
  return { element: box, root, redraw: () => width && draw() };
}

/** @param {number} value */
const crisp = (value) => Math.round(value) + 0.5;

/**
 * An axis at the left: lines across the chart, numbers before it.
 * @param {SVGElement} root
 * @param {Scale} scale
 * @param {{left: number, right: number, format: (value: number) => string, title?: string, top?: number}} options
 */
export function axisLeft(root, scale, options) {
  for (const tick of scale.ticks) {
    const y = crisp(scale.toPixel(tick));
    root.append(
      svg("line", { class: "p-grid", x1: options.left, x2: options.right, y1: y, y2: y }),
      svg("text", { class: "p-tick", x: options.left - 8, y: y + 3.5, "text-anchor": "end" }, trimmed(options.format(tick))),
    );
  }
  if (options.title) root.append(svg("text", { class: "p-axistitle", x: 0, y: options.top ?? 11 }, options.title));
}

/**
 * An axis below: short marks and numbers, as many as have room.
 * @param {SVGElement} root
 * @param {Scale} scale
 * @param {{y: number, left: number, right: number, format: (value: number) => string, title?: string, grid?: number}} options grid: top of lines up the chart
 */
export function axisBelow(root, scale, options) {
  root.append(svg("line", { class: "p-axis", x1: options.left, x2: options.right, y1: crisp(options.y), y2: crisp(options.y) }));
  let end = -Infinity;
  for (const tick of scale.ticks) {
    const x = scale.toPixel(tick);
    if (x < options.left - 1 || x > options.right + 1) continue;
    if (options.grid !== undefined) root.append(svg("line", { class: "p-grid", x1: crisp(x), x2: crisp(x), y1: options.grid, y2: options.y }));
    const text = trimmed(options.format(tick));
    if (!text) continue;
    const half = text.length * 3.2;
    if (x - half < end + 8) continue;
    end = x + half;
    root.append(svg("line", { class: "p-axis", x1: crisp(x), x2: crisp(x), y1: options.y, y2: options.y + 4 }));
    root.append(svg("text", { class: "p-tick", x: Math.min(x, options.right + 12 - half), y: options.y + 16, "text-anchor": "middle" }, text));
  }
  if (options.title) root.append(svg("text", { class: "p-axistitle", x: options.right, y: options.y + 31, "text-anchor": "end" }, options.title));
}

/**
 * The path of a filled box.
 * @param {number} x
 * @param {number} y
 * @param {number} width
 * @param {number} height
 */
export function box(x, y, width, height) {
  return `M${x.toFixed(2)},${y.toFixed(2)}h${width.toFixed(2)}v${height.toFixed(2)}h${(-width).toFixed(2)}z`;
}

let patterns = 0;

/**
 * Hatching in the colour of what lies below it: told from plain areas without seeing colours.
 * @param {SVGElement} root
 * @returns {string} what to fill with
 */
export function hatching(root) {
  const id = `p-hatch-${++patterns}`;
  root.append(
    svg(
      "defs",
      null,
      svg(
        "pattern",
        { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { class: "p-hatchline", width: 1.2, height: 5 }),
      ),
    ),
  );
  return `url(#${id})`;
}

/**
 * @typedef {object} Point
 * @property {number} x
 * @property {number} y
 * @property {number} series
 * @property {number} [size] radius, 4 without
 * @property {any} [data]
 */

/**
 * Points of two numbers each.
 * @param {object} options
 * @param {Point[]} options.points
 * @param {string[]} options.series their names
 * @param {string} options.label what the chart shows, in words
 * @param {{log?: number, title: string, format: (value: number) => string, zero?: boolean, domain?: [number, number]}} options.x
 * @param {{log?: number, title: string, format: (value: number) => string, zero?: boolean, domain?: [number, number]}} options.y
 * @param {{points: [number, number][], title: string, label?: string}[]} [options.lines] label: written over the end
 * @param {(point: Point) => import("./dom.js").Child} options.tip
 * @param {(point: Point) => void} [options.open]
 * @param {number} [options.height]
 */
export function scatter(options) {
  const { points } = options;
  const margin = { left: 64, right: 12, top: 22, bottom: 40 };
  /** @type {{x: number, y: number, point: Point}[]} */
  let placed = [];
  let at = -1;
  const marked = svg("path", { class: "p-marked" });
  const extent = (/** @type {(point: Point) => number} */ of, /** @type {typeof options.x} */ axis) => {
    if (axis.domain) return axis.domain;
    let low = Infinity;
    let high = -Infinity;
    for (const point of points) {
      const value = of(point);
      if (axis.log && !(value > 0)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
    if (!(low <= high)) return /** @type {[number, number]} */ (axis.log ? [1, 1] : [0, 1]);
    if (axis.log) return /** @type {[number, number]} */ ([low, high]);
    const room = (high - low) * 0.04;
    return /** @type {[number, number]} */ ([axis.zero ? Math.min(0, low) : low - room, high + room]);
  };
  const chart = frame({
    height: options.height ?? 300,
    label: options.label,
    draw(width, height, root) {
      const right = width - margin.right;
      const bottom = height - margin.bottom;
      const make = (
        /** @type {typeof options.x} */ axis,
        /** @type {[number, number]} */ domain,
        /** @type {[number, number]} */ range,
        /** @type {number} */ wanted,
      ) => (axis.log ? logarithmic(domain, range, axis.log, wanted) : linear(domain, range, wanted));
      const x = make(
        options.x,
        extent((point) => point.x, options.x),
        [margin.left, right],
        Math.max(3, Math.floor(width / 90)),
      );
      const y = make(
        options.y,
        extent((point) => point.y, options.y),
        [bottom, margin.top],
        Math.max(3, Math.floor(height / 55)),
      );
      axisLeft(root, y, { left: margin.left, right, format: options.y.format, title: options.y.title });
      axisBelow(root, x, { y: bottom, left: margin.left, right, format: options.x.format, title: options.x.title, grid: margin.top });
      placed = [];
      const paths = options.series.map(() => /** @type {string[]} */ ([]));
      for (const point of points) {
        if ((options.x.log && !(point.x > 0)) || (options.y.log && !(point.y > 0))) continue;
        const place = { x: x.toPixel(point.x), y: y.toPixel(point.y), point };
        placed.push(place);
        paths[point.series].push(shape(point.series, point.size ?? 4, place.x, place.y));
      }
      for (const line of options.lines ?? []) {
        const path = line.points.map(([px, py], index) => `${index ? "L" : "M"}${x.toPixel(px).toFixed(1)},${y.toPixel(py).toFixed(1)}`).join("");
        root.append(svg("path", { class: line.label ? "p-line p-limit" : "p-line p-guide", d: path }, svg("title", null, line.title)));
        const [ex, ey] = line.points[line.points.length - 1] ?? [0, 0];
        if (line.label) root.append(svg("text", { class: "p-tick", x: x.toPixel(ex) - 2, y: y.toPixel(ey) - 5, "text-anchor": "end" }, line.label));
      }
      paths.forEach((path, series) => {
        if (path.length)
          root.append(svg("path", { class: path.length > 400 ? "p-points p-many" : "p-points", d: path.join(""), style: { fill: seriesColour(series) } }));
      });
      placed.sort((a, b) => a.x - b.x);
      marked.setAttribute("d", "");
      root.append(marked);
    },
    keys(event) {
      const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (step && placed.length) {
        mark(Math.max(0, Math.min(placed.length - 1, at + step)));
        event.preventDefault();
        event.stopPropagation();
      } else if (event.key === "Enter" && placed[at] && options.open) {
        hideTip();
        options.open(placed[at].point);
        // Where that moves the focus, the same key is not for what has it then.
        event.preventDefault();
        event.stopPropagation();
      }
    },
  });
  /** @param {number} index */
  function mark(index) {
    at = index;
    const place = placed[index];
    if (!place) return;
    const r = Math.max(7, (place.point.size ?? 4) + 3);
    marked.setAttribute("d", `M${place.x - r},${place.y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0z`);
    const bounds = chart.root.getBoundingClientRect();
    showTip(bounds.left + place.x, bounds.top + place.y, options.tip(place.point));
  }
  chart.root.addEventListener("pointermove", (event) => {
    const bounds = chart.root.getBoundingClientRect();
    const px = /** @type {PointerEvent} */ (event).clientX - bounds.left;
    const py = /** @type {PointerEvent} */ (event).clientY - bounds.top;
    let best = -1;
    let least = 18 * 18;
    placed.forEach((place, index) => {
      const far = (place.x - px) ** 2 + (place.y - py) ** 2;
      if (far < least) {
        least = far;
        best = index;
      }
    });
    chart.root.classList.toggle("p-pointing", best >= 0 && Boolean(options.open));
    if (best >= 0) mark(best);
    else {
      at = -1;
      marked.setAttribute("d", "");
      hideTip();
    }
  });
  chart.root.addEventListener("click", () => {
    if (placed[at] && options.open) {
      hideTip();
      options.open(placed[at].point);
    }
  });
  return chart;
}

/**
 * @typedef {object} LinesOptions
 * @property {{name: string, points: [number, number][], band?: [number, number, number][], colour?: string,
 *   until?: number}[]} series points: time and value; band: time, least and greatest; until: where it ends
 * @property {string} label
 * @property {[number, number]} span from and to, in ns
 * @property {(value: number) => string} format of values
 * @property {(value: number) => string} time of moments
 * @property {(value: number) => string} [axis] of the axis below, where that is not `time`
 * @property {(span: [number, number], wanted: number) => number[]} [ticks] of the axis below, where they are not round numbers
 * @property {string} [title]
 * @property {number} [height]
 * @property {number} [top] greatest value of the axis at least
 * @property {boolean} [binary] whether values are sizes
 * @property {boolean} [area] fills below the line
 * @property {{at: number, title: string, change: boolean, open?: () => void}[]} [marks] moments at which something was found, or changed
 * @property {(time: number) => string | undefined} [note] what more is said of a moment
 * @property {(time: number) => void} [open]
 */

/** So near to a mark, in pixels, it is meant. */
const MARK_NEAR = 6;

/**
 * Lines over time that hold their value until the next point. What is drawn follows the options when it is drawn again.
 * @param {LinesOptions} options
 */
export function lines(options) {
  const margin = { left: 64, right: 12, top: options.title ? 22 : 8, bottom: 26 };
  let at = NaN;
  /** @type {Scale | null} */ let across = null;
  let bottomOf = 0;
  const cursor = svg("line", { class: "p-cursor" });
  const chart = frame({
    height: options.height ?? 120,
    label: options.label,
    draw(width, height, root) {
      let greatest = options.top ?? 0;
      for (const one of options.series) {
        for (const [, value] of one.points) greatest = Math.max(greatest, value);
        for (const [, , value] of one.band ?? []) greatest = Math.max(greatest, value);
      }
      const right = width - margin.right;
      const bottom = (bottomOf = height - margin.bottom);
      const plain = linear(options.span, [margin.left, right], Math.max(2, Math.floor(width / 110)));
      // What lies outside (a sample after the last operation) is drawn at the border.
      const x = (across = { ...plain, toPixel: (value) => Math.min(right, Math.max(margin.left, plain.toPixel(value))) });
      const y = linear([0, greatest || 1], [bottom, margin.top], height < 110 ? 2 : 4);
      if (options.ticks) x.ticks = options.ticks(options.span, Math.max(2, Math.floor(width / 110)));
      if (options.binary) y.ticks = binaryTicks(greatest, height < 110 ? 2 : 4);
      axisLeft(root, y, { left: margin.left, right, format: options.format, title: options.title });
      axisBelow(root, x, { y: bottom, left: margin.left, right, format: options.axis ?? options.time });
      options.series.forEach((one, index) => {
        const colour = one.colour ?? seriesColour(index);
        if (one.band?.length) {
          const up = one.band.map(([time, , high], i) => `${i ? "L" : "M"}${x.toPixel(time).toFixed(1)},${y.toPixel(high).toFixed(1)}`);
          const down = [...one.band].reverse().map(([time, low]) => `L${x.toPixel(time).toFixed(1)},${y.toPixel(low).toFixed(1)}`);
          root.append(svg("path", { class: "p-band", d: up.join("") + down.join("") + "z", style: { fill: colour } }));
        }
        if (!one.points.length) return;
        const parts = [`M${x.toPixel(one.points[0][0]).toFixed(1)},${y.toPixel(one.points[0][1]).toFixed(1)}`];
        for (const [time, value] of one.points.slice(1)) parts.push(`H${x.toPixel(time).toFixed(1)}V${y.toPixel(value).toFixed(1)}`);
        parts.push(`H${x.toPixel(one.until ?? options.span[1]).toFixed(1)}`);
        const path = parts.join("");
        if (options.area)
          root.append(svg("path", { class: "p-band", d: `${path}V${bottom}H${x.toPixel(one.points[0][0]).toFixed(1)}z`, style: { fill: colour } }));
        root.append(
          svg("path", { class: "p-line", d: path, style: { stroke: colour }, "stroke-dasharray": options.series.length > 1 && index % 2 ? "5 3" : null }),
        );
      });
      for (const mark of options.marks ?? []) {
        const at = x.toPixel(mark.at);
        root.append(
          svg("line", { class: mark.change ? "p-mark p-changed" : "p-mark", x1: crisp(at), x2: crisp(at), y1: margin.top, y2: bottom }),
          svg("path", { class: mark.change ? "p-mark p-changed" : "p-mark", d: shape(mark.change ? 3 : 4, 4, Math.round(at) + 0.5, margin.top) }),
        );
      }
      cursor.setAttribute("x1", "-9");
      cursor.setAttribute("x2", "-9");
      cursor.setAttribute("y1", String(margin.top));
      cursor.setAttribute("y2", String(bottom));
      root.append(cursor);
    },
    keys(event) {
      const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
      if (step) {
        const length = options.span[1] - options.span[0];
        show(Math.max(options.span[0], Math.min(options.span[1], (Number.isNaN(at) ? options.span[0] : at) + (step * length) / 100)));
        event.preventDefault();
        event.stopPropagation();
      } else if (event.key === "Enter" && !Number.isNaN(at) && (options.open || markAt(at)?.open)) {
        act();
        event.stopPropagation();
      }
    },
  });
  function act() {
    const open = markAt(at)?.open;
    if (open) open();
    else options.open?.(at);
  }
  /** The mark that a moment is next to. @param {number} time */
  function markAt(time) {
    const near = (/** @type {{at: number}} */ mark) => (across ? Math.abs(across.toPixel(mark.at) - across.toPixel(time)) : Infinity);
    const marks = (options.marks ?? []).filter((mark) => near(mark) <= MARK_NEAR);
    return marks.sort((a, b) => near(a) - near(b)).at(0);
  }
  /** @param {[number, number][]} points @param {number} time */
  function valueAt(points, time) {
    let low = 0;
    let high = points.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if (points[mid][0] <= time) low = mid + 1;
      else high = mid;
    }
    return low ? points[low - 1][1] : null;
  }
  /** @param {number} time */
  function show(time) {
    if (!across) return;
    at = time;
    const x = across.toPixel(time);
    cursor.setAttribute("x1", String(x));
    cursor.setAttribute("x2", String(x));
    const bounds = chart.root.getBoundingClientRect();
    showTip(bounds.left + x, bounds.top + bottomOf / 2, tipLines(options.time(time), options.series.map((one, index) => {
      const value = one.until !== undefined && time >= one.until ? null : valueAt(one.points, time);
      return { name: one.name, value: value === null ? "–" : options.format(value), colour: one.colour ?? seriesColour(index) };
    }), markAt(time)?.title ?? options.note?.(time)));
    chart.root.classList.toggle("p-pointing", Boolean(options.open || markAt(time)?.open));
  }
  chart.root.addEventListener("pointermove", (event) => {
    const pointer = /** @type {PointerEvent} */ (event);
    const bounds = chart.root.getBoundingClientRect();
    const share = (pointer.clientX - bounds.left - margin.left) / (bounds.width - margin.left - margin.right);
    if (share < 0 || share > 1) return hideTip();
    show(options.span[0] + share * (options.span[1] - options.span[0]));
  });
  chart.root.addEventListener("pointerleave", () => {
    cursor.setAttribute("x1", "-9");
    cursor.setAttribute("x2", "-9");
  });
  chart.root.classList.toggle("p-pointing", Boolean(options.open));
  chart.root.addEventListener("click", () => {
    if (Number.isNaN(at) || !(options.open || markAt(at)?.open)) return;
    hideTip();
    act();
  });
  return chart;
}
