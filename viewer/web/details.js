// @ts-check
/** The drawer at the bottom: everything that is known of the selected operation, or of the chosen area. */

import { onHost } from "./align.js";
import { h, replace } from "./dom.js";
import { bandwidth, bytes, count, middle, place, time, timeExact } from "./format.js";
import { iconButton } from "./icons.js";
import { LauncherPart } from "./launcher.js";
import { wholeNames, written } from "./names.js";
import { confirmOn, copyText } from "./table.js";

const LEAST = 90;
/** Letters of a name in the heading, and of what is read out; the whole name stands below. */
const HEADING = 160;
/** So many of them have room in the heading. */
const ROOM = 60;
const STORED = "gputrace.details";

/**
 * The time of day of a moment, to the microsecond.
 * @param {string} origin ns since the epoch
 * @param {number} at ns since then
 */
function wallClock(origin, at) {
  try {
    const ns = BigInt(origin) + BigInt(Math.round(at));
    return `${new Date(Number(ns / 1000000n)).toISOString().replace("T", " ").replace("Z", "")}${String((ns / 1000n) % 1000n).padStart(3, "0")} UTC`;
  } catch {
    return "";
  }
}

export class Details {
  /**
   * @param {import("./timeline.js").Timeline} timeline
   * @param {HTMLElement} container
   */
  constructor(timeline, container) {
    this.timeline = timeline;
    this.container = container;
    this.body = h("div", { class: "details-body" });
    this.title = h("div", { class: "details-title" });
    this.grip = h("div", { class: "details-grip", role: "separator", tabindex: "0", "aria-orientation": "horizontal", "aria-label": "Height of the details" });
    replace(container, this.grip, h("div", { class: "details-head" }, this.title, iconButton("close", "Close (Escape)", () => this.close())), this.body);
    /** @type {AbortController | null} */
    this.controller = null;
    this.said = "";
    this.launcher = new LauncherPart();
    this.height = Math.min(230, innerHeight * 0.3);
    try {
      this.height = Number(localStorage.getItem(STORED)) || this.height;
    } catch {
      // A browser that stores nothing.
    }
    this.resize(this.height);
    this.grip.addEventListener("pointerdown", (event) => this.press(event));
    this.grip.addEventListener("keydown", (event) => {
      const step = event.key === "ArrowUp" ? 24 : event.key === "ArrowDown" ? -24 : 0;
      if (!step) return;
      event.preventDefault();
      event.stopPropagation();
      this.resize(this.height + step);
    });
    timeline.state.subscribe(["zero", "names"], () => {
      if (timeline.detail && !timeline.state.get().area) this.fill(timeline.detail);
    });
    timeline.state.subscribe(["tab"], ({ tab }) => {
      if (tab !== "timeline") container.hidden = true;
      else if (timeline.state.get().selection || timeline.state.get().area) container.hidden = false;
    });
  }

  /** @private @param {number} height */
  resize(height) {
    this.height = Math.max(LEAST, Math.min(innerHeight * 0.6, height));
    this.container.style.setProperty("--details", `${Math.round(this.height)}px`);
    this.grip.setAttribute("aria-valuenow", String(Math.round(this.height)));
    try {
      localStorage.setItem(STORED, String(Math.round(this.height)));
    } catch {
      // As above.
    }
  }

  /** @private @param {PointerEvent} event */
  press(event) {
    const from = event.clientY;
    const { height } = this;
    this.grip.setPointerCapture(event.pointerId);
    const move = (/** @type {PointerEvent} */ next) => this.resize(height + from - next.clientY);
    this.grip.addEventListener("pointermove", move);
    const up = () => this.grip.removeEventListener("pointermove", move);
    this.grip.addEventListener("pointerup", up, { once: true });
    this.grip.addEventListener("pointercancel", up, { once: true });
  }

  /** Copies the whole name of the selection. */
  async copyName() {
    const { detail } = this.timeline;
    if (!detail) return;
    await copyText(detail.full_name);
    this.timeline.context.announce("The name is on the clipboard");
    const button = this.title.querySelector(".copy-name");
    if (button instanceof HTMLButtonElement) confirmOn(button, "copied");
  }

  close() {
    this.timeline.state.set({ area: null });
    this.timeline.select(null);
    this.timeline.over.focus();
  }

  /** Puts something of others' into the drawer. @param {import("./dom.js").Child} title @param {...import("./dom.js").Child} body */
  put(title, ...body) {
    replace(this.title, title);
    replace(this.body, ...body);
    this.container.hidden = this.timeline.state.get().tab !== "timeline";
  }

  /**
   * @param {import("./state.js").Ref | null} ref
   * @param {boolean} [quiet] the same operation in a new generation: nothing is said, and nothing redrawn without need
   */
  async show(ref, quiet = false) {
    this.controller?.abort();
    const { timeline } = this;
    if (!ref) {
      timeline.detail = null;
      if (!timeline.state.get().area) this.container.hidden = true;
      timeline.invalidateOverlay();
      return;
    }
    this.controller = new AbortController();
    const { signal } = this.controller;
    if (!quiet && (timeline.detail?.row !== ref.row || timeline.detail?.index !== ref.index)) timeline.detail = null;
    if (this.container.hidden) this.put(this.heading(ref), h("p", { class: "faint" }, "…"));
    try {
      const detail = await timeline.context.api.slice(ref.row, ref.index, signal);
      if (signal.aborted) return;
      timeline.detail = detail;
      timeline.state.set({
        selection: {
          row: detail.row,
          index: detail.index,
          start: detail.start,
          duration: detail.duration,
          name: detail.name,
          kind: detail.kind,
        },
      });
      const said = JSON.stringify({ ...detail, row: 0, index: 0, links: 0, collective: detail.collective?.bytes, n: detail.links?.length });
      // An area that is shown beside the selection keeps the room.
      if (!quiet || (said !== this.said && !timeline.state.get().area)) this.fill(detail);
      this.said = said;
      if (!quiet) timeline.context.announce(this.sentence(detail));
    } catch (error) {
      if (signal.aborted) return;
      this.put(this.heading(ref), h("p", { class: "bad" }, /** @type {Error} */ (error).message));
    }
    timeline.invalidateOverlay();
  }

  /** What a screen reader hears. @private @param {any} detail */
  sentence(detail) {
    const kind = this.timeline.context.info.kinds?.[detail.kind] ?? "operation";
    const row = this.timeline.rows[detail.row];
    return [
      middle(written(detail.name), HEADING),
      kind,
      time(detail.duration),
      `at ${this.timeline.stamp(detail.start, 1000)}`,
      row ? row.path.join(", ") : "",
      this.timeline.path?.words(detail) ?? "",
      detail.before ? `before it: ${detail.before.text}` : "",
    ]
      .filter(Boolean)
      .join("; ");
  }

  /** A name as it is written over the details. @private @param {{name: string, full_name?: string}} one */
  written(one) {
    return middle(written(wholeNames() && one.full_name ? one.full_name : one.name || "…"), HEADING);
  }

  /** @private @param {{name: string, kind: number, full_name?: string}} one */
  heading(one) {
    return [h("span", { class: `swatch kind-${one.kind}` }), h("strong", { class: "details-name" }, this.written(one))];
  }

  /** A button that leads to another slice. @private @param {any} ref @param {string} [text] */
  jump(ref, text) {
    return h(
      "button",
      { class: "link", type: "button", title: ref.name, onclick: () => this.timeline.select(ref, { reveal: true }) },
      h("span", { class: `swatch kind-${ref.kind}` }),
      text ?? middle(written(ref.name), HEADING),
    );
  }

  /** A value as people read it. @private @param {any} field */
  value(field) {
    const { value, unit } = field;
    const number = typeof value === "number" ? value : NaN;
    // "524 kB (524 288)" says its unit already.
    if (Number.isNaN(number) && String(value).endsWith(")")) return String(value);
    if (Number.isNaN(number)) return `${value}${unit ? `\u202f${unit}` : ""}`;
    if (unit === "ns") return time(number);
    if (unit === "bytes" || unit === "B") return `${bytes(number)}`;
    if (unit === "GB/s") return bandwidth(number);
    return `${Number.isInteger(number) ? count(number) : number.toPrecision(4)}${unit ? `\u202f${unit}` : ""}`;
  }

  /** @private @param {any} detail */
  fill(detail) {
    const { timeline } = this;
    const { info } = timeline.context;
    const kind = info.kinds?.[detail.kind] ?? "other";
    const row = timeline.rows[detail.row];
    const steps = row?.device === null ? onHost(info.steps ?? []) : (info.steps ?? []);
    const step = steps.find((/** @type {any} */ one) => detail.start >= one.begin && detail.start < one.end);
    const copy = h(
      "button",
      { class: "link copy-name", type: "button", title: "Copies the whole name (C)", onclick: () => void this.copyName() },
      "copy name",
    );
    const pair = (/** @type {string} */ label, /** @type {import("./dom.js").Child} */ value, /** @type {string} */ title = "") => [
      h("dt", {}, label),
      h("dd", { title: title || null }, value),
    ];

    const about = h(
      "dl",
      { class: "facts" },
      pair("Duration", [
        time(detail.duration),
        detail.duration >= 1000 ? h("span", { class: "faint" }, ` ${timeExact(detail.duration)}`) : null,
      ]),
      pair(
        "Start",
        this.timeline.stamp(detail.start, 1),
        `${timeExact(detail.start)} after the recording's beginning\n${wallClock(info.origin_ns, detail.start)}`,
      ),
      pair("Where", row ? row.path.join(" › ") : (detail.process ?? "")),
      step && pair("Step", String(step.number)),
      detail.unfinished && pair("End", h("span", { class: "bad" }, "had not ended when recording did")),
      detail.nvtx?.length > 0 && pair("Inside", detail.nvtx.join(" › ")),
    );
    const rows = Math.max(6, Math.floor((this.height - 64) / 20));
    const fields = [];
    for (let at = 0; at < (detail.fields?.length ?? 0); at += rows)
      fields.push(
        h(
          "div",
          {},
          h(
            "dl",
            { class: "facts" },
            detail.fields.slice(at, at + rows).map((/** @type {any} */ field) => pair(field.label, this.value(field))),
          ),
        ),
      );
    const gap =
      detail.before && detail.before.to > detail.before.from
        ? h(
            "div",
            { class: "details-part" },
            h("h2", {}, "Before it"),
            h("span", {}, detail.before.text, " "),
            h(
              "button",
              {
                class: "link",
                type: "button",
                onclick: () =>
                  timeline.moveTo(
                    detail.before.from - (detail.before.to - detail.before.from) * 0.3,
                    detail.before.to + (detail.before.to - detail.before.from) * 0.3,
                    { user: true },
                  ),
              },
              "Show",
            ),
          )
        : null;
    const links =
      detail.links?.length > 0
        ? h(
            "div",
            { class: "details-part" },
            h("h2", {}, "Leads from and to ", h("kbd", {}, "["), " ", h("kbd", {}, "]")),
            h(
              "ul",
              { class: "links" },
              detail.links
                .slice(0, 40)
                .map((/** @type {any} */ link) =>
                  h(
                    "li",
                    {},
                    h("span", { class: "quiet" }, `${link.label} `),
                    link.ref ? this.jump(link.ref) : h("span", { class: "faint" }, "not recorded"),
                    link.ref ? h("span", { class: "faint" }, ` ${this.distance(detail, link.ref)}`) : null,
                  ),
                ),
              detail.more_links > 0 && h("li", { class: "faint" }, `and ${count(detail.more_links)} more`),
            ),
          )
        : null;
    const tool = h(
      "span",
      { class: "details-tools" },
      copy,
      h(
        "button",
        {
          class: "link",
          type: "button",
          title: "Every operation of this name",
          onclick: () => timeline.state.set({ query: detail.full_name ?? detail.name }),
        },
        "find all",
      ),
      h("button", { class: "link", type: "button", title: "Zooms to it (F)", onclick: () => timeline.focus() }, "zoom to it"),
    );
    this.put(
      [
        this.heading(detail),
        h("span", { class: "quiet" }, [`${kind}, ${time(detail.duration)}`, timeline.path?.words(detail)].filter(Boolean).join("; ")),
        tool,
      ],
      (detail.full_name !== this.written(detail) || detail.full_name.length > ROOM) && h("p", { class: "details-full" }, detail.full_name),
      h(
        "div",
        { class: "details-columns" },
        h("div", {}, about),
        (gap || links) && h("div", {}, gap, links),
        this.launcher.element(detail.launched_by, row?.device === null ? "Called in" : "Launched by", (ref) => this.jump(ref), (by, find) => {
          const rank = row && row.device !== null ? `${row.rank ?? "none"}.${row.device}` : "all";
          timeline.state.set({ tab: "operators", operators: { by, rank, sort: null, open: null, find } });
        }),
        detail.collective && this.collective(detail),
        fields,
      ),
    );
  }

  /** How far another slice is. @private @param {any} detail @param {any} ref */
  distance(detail, ref) {
    const apart = ref.start - detail.start;
    return apart === 0 ? "" : apart < 0 ? `${time(-apart)} earlier` : `${time(apart)} later`;
  }

  /** A collective over its ranks. @private @param {any} detail */
  collective(detail) {
    const { collective } = detail;
    const participants = collective.participants ?? [];
    const first = Math.min(...participants.map((/** @type {any} */ one) => one.arrival ?? Infinity));
    const longest = Math.max(1, ...participants.map((/** @type {any} */ one) => (one.arrival ?? first) - first + (one.wait ?? 0) + (one.transfer ?? 0)));
    const line = (/** @type {any} */ one) => {
      const late = one.arrival === null || one.arrival === undefined ? 0 : one.arrival - first;
      const bar = (/** @type {string} */ what, /** @type {number} */ from, /** @type {number} */ size) =>
        h("i", { class: what, style: { left: `${(100 * from) / longest}%`, width: `${(100 * size) / longest}%` } });
      return h(
        "tr",
        { class: one.ref && one.ref.row === detail.row && one.ref.index === detail.index ? "self" : null },
        h("td", {}, one.ref ? this.jump(one.ref, place({ rank: one.rank })) : place({ rank: one.rank })),
        h("td", { class: "number" }, late === 0 ? "first" : `+${time(late)}`),
        h("td", { class: "number" }, time(one.wait)),
        h("td", { class: "number" }, time(one.transfer)),
        h(
          "td",
          { class: "wide" },
          h(
            "span",
            { class: "part-bar", "aria-hidden": "true" },
            bar("wait", late, one.wait ?? 0),
            bar("transfer", late + (one.wait ?? 0), one.transfer ?? 0),
          ),
        ),
      );
    };
    const facts = [
      collective.bytes !== null && collective.bytes !== undefined && bytes(collective.bytes),
      collective.busbw && `busbw ${bandwidth(collective.busbw)}`,
      collective.skew_ns && `skew ${time(collective.skew_ns)}`,
      // Of several hosts: how far off it may be because of their clocks.
      collective.clock_error_ns > 0 && `clocks within ±${time(collective.clock_error_ns)}`,
      collective.last_undecided &&
        `who was last can't be decided: margin ${time(collective.last_undecided.margin_ns)}, clocks ±${time(collective.last_undecided.clock_error_ns)}`,
      collective.communicator_name,
    ].filter(Boolean);
    return h(
      "div",
      { class: "details-part details-collective" },
      h("h2", {}, "Collective ", h("span", { class: "quiet" }, facts.join(", "))),
      h(
        "table",
        { class: "ranks" },
        h(
          "thead",
          {},
          h(
            "tr",
            {},
            ["rank", "arrived", "waited", "transferred", ""].map((text) => h("th", { scope: "col" }, text)),
          ),
        ),
        h("tbody", {}, participants.slice(0, 256).map(line)),
      ),
    );
  }
}
