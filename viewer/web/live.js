// @ts-check
/** Follows a recording that is still being written, and notices when the server has read it anew or is gone. */

import { ApiError, getJson } from "./api.js";
import { h, replace } from "./dom.js";
import { count, percent, time } from "./format.js";

/** A growing recording is asked for 4 times a second, others seldom: their analysis may come later than their rows. */
const GROWING_MS = 250;
const RESTING_MS = 1500;
/** What is followed at first: the last seconds. */
const TAIL_NS = 10e9;
const LAG_SHOWN_MS = 1500;

export class Live {
  /** @param {import("./main.js").Page} page */
  constructor(page) {
    this.page = page;
    this.state = page.context.state;
    this.element = h("span", { class: "live-place" });
    /** @type {any} */
    this.last = null;
    this.failures = 0;
    this.polls = 0;
    this.busy = false;
    this.refused = false;
    this.tailed = false;
    this.said = "";
    this.state.subscribe(["follow"], () => this.show());
    addEventListener("gputrace-stale", () => void this.poll());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) void this.poll();
    });
  }

  start() {
    this.show();
    this.later();
  }

  /** @private */
  later() {
    clearTimeout(this.timer);
    const growing = this.last?.growing ?? this.page.info.growing;
    this.timer = setTimeout(
      () => void this.poll(),
      document.hidden ? 5000 : growing || this.page.info.analysed === false ? GROWING_MS : RESTING_MS * Math.min(8, 1 + this.polls / 20),
    );
  }

  /** @private */
  async poll() {
    if (this.busy) return;
    this.busy = true;
    const { page } = this;
    try {
      this.last = await getJson(`${page.api.base}/live`);
      this.failures = 0;
      this.polls += 1;
      if (this.last.generation !== page.info.generation) {
        const info = await page.api.info(new AbortController().signal);
        if (info.generation !== page.info.generation) {
          await page.renew(info);
          this.tail();
        }
      }
      this.refused = false;
    } catch (error) {
      this.failures += 1;
      this.refused = error instanceof ApiError && error.status === 401;
      // Some files were shown, and then one could not be read, or is read again: the page says so.
      if (error instanceof ApiError && [404, 503].includes(error.status) && typeof page.info.reading === "number") location.reload();
    }
    this.busy = false;
    this.show();
    this.later();
  }

  /** Keeps the end of the recording in view. */
  tail() {
    const { timeline, info } = this.page;
    if (!timeline || !this.state.get().follow) return;
    const [a, b] = timeline.target;
    const whole = info.end - info.begin;
    const span = this.tailed ? b - a : Math.min(whole * 1.05, TAIL_NS);
    if (whole > TAIL_NS) this.tailed = true;
    const to = info.end + 0.03 * span;
    timeline.moveTo(to - span, to);
  }

  /** @private */
  show() {
    const { page, last } = this;
    const { follow } = this.state.get();
    const growing = last ? last.growing : page.info.growing;
    const parts = [];
    if (this.refused)
      parts.push(
        h(
          "span",
          { class: "badge bad", title: "The server was started anew. Open the address that it printed, with its token" },
          "the server does not know this page",
        ),
      );
    else if (this.failures > 1)
      parts.push(h("span", { class: "badge bad", title: "What is loaded stays usable; the page asks again" }, "server does not answer"));
    else if (last?.error) parts.push(h("span", { class: "badge bad", title: last.error }, "recording can't be read any more"));
    else if (typeof last?.reading === "number")
      parts.push(
        h(
          "span",
          { class: "badge", title: "The rows of what has been read. Numbers and findings come when all is" },
          h("progress", { max: 1, value: last.reading, "aria-hidden": "true" }),
          ` reading, ${percent(last.reading)}`,
        ),
      );
    else if (growing) {
      const lag = last?.lag_ms ?? 0;
      parts.push(
        h(
          "button",
          {
            class: `badge live${lag > LAG_SHOWN_MS ? " lagging" : ""}`,
            type: "button",
            "aria-pressed": String(follow),
            title: follow ? "The view follows the end. Move it to stop, or press L" : "Follow the end (L)",
            onclick: () => this.toggle(),
          },
          follow ? "live, following" : "live",
          lag > LAG_SHOWN_MS ? `, ${time(lag * 1e6)} behind` : "",
        ),
      );
      if (last?.lost > 0) parts.push(h("span", { class: "badge bad" }, `${count(last.lost)} lost`));
    }
    const said = parts.map((part) => part.textContent + part.className).join("|");
    if (said === this.said && parts.length === this.element.childElementCount) return;
    this.said = said;
    replace(this.element, parts);
  }

  toggle() {
    this.state.set({ follow: !this.state.get().follow });
    this.tail();
  }
}
