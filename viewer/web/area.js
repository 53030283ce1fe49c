// @ts-check
/** Statistics of a rectangle of the timeline: what ran in it, how long, and how busy its rows were. */

import { h } from "./dom.js";
import { Flame } from "./flame.js";
import { count, percent, time } from "./format.js";
import { written } from "./names.js";
import { table } from "./table.js";

/** So long nothing is said of what is on its way. */
const PATIENCE_MS = 300;

export class Area {
  /** @param {import("./timeline.js").Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    /** @type {AbortController | null} */
    this.controller = null;
    /** How its table is sorted and filtered, kept while areas change. */
    this.keep = {};
    this.flame = new Flame(timeline);
    /** @type {any} */
    this.answer = null;
    /** The area whose numbers are shown. @type {import("./state.js").Area | null} */
    this.filled = null;
    timeline.state.subscribe(["names", "zero", "flame"], ({ area, flame }, changed) => {
      // The flame graph writes its names itself.
      if (flame && !changed.has("zero") && !changed.has("flame")) return;
      if (area && this.answer) this.fill(area, this.answer);
    });
    timeline.state.subscribe(["area", "generation"], ({ area }) => void this.show(area));
  }

  /**
   * Takes the rows between two heights, CSS pixels in the plot, and the times between two places.
   * @param {{from: number, to: number, top: number, bottom: number}} box
   */
  take(box) {
    const { timeline } = this;
    this.within(timeline.timeAt(Math.min(box.from, box.to)), timeline.timeAt(Math.max(box.from, box.to)), box);
  }

  /** @private @param {number} from ns @param {number} to @param {{top: number, bottom: number}} box */
  within(from, to, box) {
    const { timeline } = this;
    const { pinned, pinnedHeight, items } = timeline.layout;
    const top = Math.min(box.top, box.bottom);
    const bottom = Math.max(box.top, box.bottom);
    const inside = (/** @type {import("./rows.js").Item} */ item, /** @type {number} */ y) => y + item.height > top && y < bottom;
    const chosen = [
      ...pinned.filter((item) => inside(item, item.y)),
      ...items.filter((item) => {
        const y = item.y - timeline.scrollTop + pinnedHeight;
        return y + item.height > pinnedHeight && inside(item, y);
      }),
    ];
    const rows = [...new Set(chosen.flatMap((item) => (item.counter ? [] : item.rows)))];
    if (rows.length === 0 || to <= from) return;
    timeline.select(null);
    timeline.state.set({ area: { from, to, rows } });
  }

  /** Everything in view, or that will be once the window is where it goes: what R does. */
  takeView() {
    const { timeline } = this;
    const [from, to] = timeline.target;
    this.within(from, to, { top: 0, bottom: timeline.plotHeight });
  }

  /** The flame graph of the area; without one, of everything in view: what I does. */
  showFlame() {
    this.timeline.state.set({ flame: true });
    if (!this.timeline.state.get().area) this.takeView();
  }

  /** @private @param {import("./state.js").Area | null} area */
  async show(area) {
    this.controller?.abort();
    const { timeline } = this;
    this.answer = null;
    if (!area) {
      this.filled = null;
      if (!timeline.state.get().selection) timeline.details.container.hidden = true;
      return;
    }
    this.controller = new AbortController();
    const { signal } = this.controller;
    const words = `${time(area.to - area.from)} from ${timeline.stamp(area.from, 1000)}`;
    // The same of a recording that grew is exchanged when it is there.
    const late =
      this.filled === area
        ? 0
        : setTimeout(
            () =>
              timeline.details.put(
                [
                  h("strong", {}, words),
                  h(
                    "span",
                    { class: "details-tools" },
                    h("button", { class: "link", type: "button", onclick: () => timeline.state.set({ area: null }) }, "cancel"),
                  ),
                ],
                h("p", { class: "waiting-line", role: "status" }, h("progress", {}), "Adding up …"),
              ),
            PATIENCE_MS,
          );
    signal.addEventListener("abort", () => clearTimeout(late));
    try {
      const answer = await timeline.context.api.area(area.from, area.to, area.rows, signal);
      if (signal.aborted) return;
      this.answer = answer;
      this.filled = area;
      this.fill(area, answer);
    } catch (error) {
      if (!signal.aborted) timeline.details.put(h("strong", {}, "Area"), h("p", { class: "bad" }, /** @type {Error} */ (error).message));
    } finally {
      clearTimeout(late);
    }
  }

  /** @private @param {import("./state.js").Area} area @param {any} answer */
  fill(area, answer) {
    const { timeline } = this;
    const { flame } = timeline.state.get();
    const span = area.to - area.from;
    const kinds = timeline.context.info.kinds ?? [];
    const sum = Math.max(1, answer.total);
    const names = table({
      name: "area", keep: this.keep, rows: answer.names, sort: { key: "total_ns", descending: true },
      search: (one) => one.name, searchHint: "Filter by name", openHint: () => "Find all of this name",
      open: (one) => timeline.state.set({ query: one.name }),
      columns: [
        {
          key: "name",
          title: "name",
          wide: true,
          value: (one) => one.name,
          cell: (one) =>
            h("span", {}, h("span", { class: `swatch kind-${one.kind}`, title: kinds[one.kind] ?? "other" }), written(one.name)),
        },
        { key: "count", title: "count", number: true, value: (one) => one.count, text: (one) => count(one.count) },
        { key: "total_ns", title: "sum", number: true, value: (one) => one.total, text: (one) => time(one.total), bar: (one) => one.total / sum },
        { key: "mean_ns", title: "mean", number: true, value: (one) => Math.round(one.mean), text: (one) => time(one.mean) },
        { key: "min_ns", title: "min", number: true, spare: 2, value: (one) => one.min, text: (one) => time(one.min) },
        { key: "p50_ns", title: "p50", number: true, value: (one) => one.p50, text: (one) => time(one.p50) },
        { key: "p99_ns", title: "p99", number: true, spare: 2, value: (one) => one.p99, text: (one) => time(one.p99) },
        { key: "max_ns", title: "max", number: true, value: (one) => one.max, text: (one) => time(one.max) },
      ],
    });
    const rows = table({
      name: "area rows", plain: true, rows: answer.rows, sort: { key: "", descending: false },
      columns: [
        { key: "row", title: "row", wide: true, fixed: true, value: (one) => timeline.rows[one.row]?.path.join(" › ") ?? "" },
        { key: "count", title: "count", number: true, value: (one) => one.count, text: (one) => count(one.count) },
        { key: "busy", title: "busy", number: true, value: (one) => one.busy, text: (one) => percent(one.busy / span), bar: (one) => one.busy / span },
        { key: "idle", title: "idle", number: true, value: (one) => one.idle, text: (one) => time(one.idle) },
      ],
    });
    const words = `${time(span)} from ${timeline.stamp(area.from, 1000)}`;
    timeline.details.put(
      [
        h("strong", {}, words),
        h(
          "span",
          { class: "quiet" },
          `${count(answer.count)} operations on ${count(answer.rows.length)} ${answer.rows.length === 1 ? "row" : "rows"}, ${time(answer.total)} in sum`,
        ),
        h(
          "span",
          { class: "p-choice", role: "group", "aria-label": "Shown as" },
          ["Table", "Flame graph"].map((title, at) =>
            h(
              "button",
              {
                type: "button",
                "aria-pressed": String(flame === (at === 1)),
                title: at === 1 ? "What threads were in, merged by name (I)" : "Counts and percentiles by name",
                onclick: () => timeline.state.set({ flame: at === 1 }),
              },
              title,
            ),
          ),
        ),
        h(
          "span",
          { class: "details-tools" },
          h("button", { class: "link", type: "button", title: "Zooms to it (F)", onclick: () => timeline.focus() }, "zoom to it"),
          h("button", { class: "link", type: "button", title: "Marks it (M)", onclick: () => timeline.input.run("mark") }, "mark"))],
      flame ? this.flame.element : h("div", { class: "area-columns" }, names.element, rows.element),
      !flame && answer.more > 0 && h("p", { class: "faint" }, `${count(answer.more)} more names`));
    if (flame) void this.flame.take(area);
    timeline.context.announce(`Area of ${words}: ${count(answer.count)} operations, ${time(answer.total)} in sum`);
  }
}
