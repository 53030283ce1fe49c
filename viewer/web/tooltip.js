// @ts-check
/** A few words beside the pointer. */

import { h, replace } from "./dom.js";
import { count, digits, percent, time } from "./format.js";

/** How far from the pointer, CSS pixels. */
const AWAY = 14;
/** Letters of a name: more than are shown. */
const NAME = 1000;

export class Tooltip {
  /** @param {import("./timeline.js").Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.element = h("div", { class: "tooltip", "aria-hidden": "true", hidden: true });
    document.body.append(this.element);
    this.said = "";
  }

  /**
   * @param {import("./stage.js").Hit | null} hit
   * @param {{x: number, y: number} | null} pointer
   */
  show(hit, pointer) {
    const lines = pointer ? (hit ? this.slice(hit) : this.other(pointer)) : null;
    if (!lines || !pointer) {
      this.element.hidden = true;
      return;
    }
    const said = JSON.stringify(lines);
    if (said !== this.said) {
      this.said = said;
      const [title, ...rest] = lines;
      replace(this.element, h("div", { class: "tooltip-name" }, title), rest.map((text) => h("div", { class: "quiet" }, text)));
    }
    this.element.hidden = false;
    const box = this.timeline.over.getBoundingClientRect();
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const x = box.left + pointer.x;
    const y = box.top + pointer.y;
    const left = x + AWAY + width > innerWidth - 8 ? Math.max(8, x - AWAY - width) : x + AWAY;
    const top = y + AWAY + height > innerHeight - 8 ? Math.max(8, y - AWAY - height) : y + AWAY;
    this.element.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  /** What is said of an operation. @param {import("./stage.js").Hit} hit */
  slice(hit) {
    const kinds = this.timeline.context.info.kinds ?? [];
    const kind = kinds[hit.kind] ?? "other";
    const step = this.timeline.view().nsPerPixel;
    const name = (hit.name ?? "…").slice(0, NAME);
    if (hit.index < 0)
      return [`${count(hit.count)} operations`, `${percent(hit.busy)} busy over ${time(hit.duration)}`, `longest: ${name}`];
    return [
      name,
      `${time(hit.duration)} at ${this.timeline.stamp(hit.start, Math.max(1, step))}`,
      `${kind}${hit.cut ? ", not finished when recording ended" : ""} · ${hit.item.hint}`,
    ];
  }

  /** A counter's value, or why there is nothing. @private @param {{x: number, y: number}} pointer */
  other(pointer) {
    const { timeline } = this;
    const item = timeline.itemAt(pointer.y);
    if (!item) return null;
    if (item.counter) {
      const value = timeline.valueAt(item, pointer.x);
      if (!value) return null;
      const unit = item.row?.unit ? `\u202f${item.row.unit}` : "";
      const range = value.max > value.min ? [`${digits(value.min)} to ${digits(value.max)}${unit} here`] : [];
      return [`${item.label}: ${digits(value.last)}${unit}`, ...range];
    }
    const at = timeline.timeAt(pointer.x);
    const rank = item.row ? item.row.rank : item.node.rank;
    const gap = (timeline.context.info.gaps ?? []).find(
      (/** @type {any} */ one) => at >= one.from && at < one.to && (one.rank === null || one.rank === undefined || one.rank === rank),
    );
    return gap ? ["Not recorded", gap.what] : null;
  }
}
