// @ts-check
/** The page of all recordings, for a server of a folder. */

import { h, replace } from "./dom.js";
import * as format from "./format.js";
import { jobList } from "./jobs.js";
import { failed } from "./panels/shared.js";
import { table } from "./table.js";

/** The list is asked for again after so long. */
const AGAIN_MS = 2000;

/**
 * How long ago a moment is, in words.
 * @param {number} then ms since the epoch
 * @param {number} now
 */
export function ago(then, now) {
  const seconds = Math.max(0, (now - then) / 1000);
  if (seconds < 10) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 86400 * 14) return `${Math.floor(seconds / 86400)} days ago`;
  return new Date(then).toISOString().slice(0, 10);
}

/** @param {any} one */
function stateOf(one) {
  if (one.state === "failed") return h("span", { class: "p-bad p-why", title: one.error ?? undefined }, "can't be read: ", one.error ?? "no reason given");
  if (one.growing) return h("span", { class: "p-live" }, "recording");
  if (one.state === "loading")
    return h("span", { class: "p-quiet" }, typeof one.progress === "number" ? `reading, ${format.percent(one.progress)}` : "reading");
  if (one.exit_status) return h("span", { class: "p-bad", title: "The command's exit status" }, `failed: exit status ${one.exit_status}`);
  return h("span", { class: "p-faint" }, one.state === "ready" ? "open" : "");
}

/** The two that are ticked last, in the order in which they were. @param {string[]} ticked @param {string} id @param {boolean} on */
export function tick(ticked, id, on) {
  const others = ticked.filter((one) => one !== id);
  return on ? [...others, id].slice(-2) : others;
}

/** @param {any} one */
function deviceOf(one) {
  if (one.simulated || one.device === "sim") return h("span", { class: "p-badge p-sim" }, "Simulated GPU");
  return one.device === "imported" ? "imported" : one.device ?? format.NONE;
}

/**
 * @param {HTMLElement} container
 * @param {{api: any, open: (id: string) => void, compare: (a: string, b: string) => void, openJob: (job: string) => void}} context
 */
export function mountLibrary(container, { api, open, compare, openJob }) {
  container.classList.add("p-library");
  let timer = 0;
  let stopped = false;
  /** @type {any[]} */
  let rows = [];
  let last = "";
  const head = h("p", { class: "p-quiet" });
  /** @type {string[]} */
  let ticked = [];
  const together = h("button", { class: "p-button", disabled: true, title: "Tick two recordings", onclick: () => compare(ticked[0], ticked[1]) }, "Compare");
  /** A box to tick. @param {any} one */
  const box = (one) => h("input", {
    type: "checkbox", checked: ticked.includes(one.id), "aria-label": `Compare ${one.name}`,
    onclick: (/** @type {Event} */ event) => {
      event.stopPropagation();
      ticked = tick(ticked, one.id, /** @type {HTMLInputElement} */ (event.target).checked);
      /** @type {HTMLButtonElement} */ (together).disabled = ticked.length < 2;
      list.setRows(rows);
    },
  });
  const list = table({
    name: "recordings",
    rows,
    sort: { key: "modified_ms", descending: true },
    search: (one) => `${one.name} ${one.device ?? ""} ${one.state}`,
    searchHint: "Filter by name",
    empty: "There are no recordings in this folder yet. New ones show up here by themselves.",
    openHint: (one) => `Open ${one.name}`,
    open: (one) => open(one.id),
    columns: [
      { key: "tick", title: "", fixed: true, value: () => "", cell: box },
      { key: "name", title: "Recording", wide: true, value: (one) => one.name, cell: (one) => h("strong", { class: "p-name" }, one.name) },
      { key: "state", title: "State", value: (one) => (one.growing ? "recording" : one.state), cell: stateOf },
      { key: "device", title: "Device", spare: 1, value: (one) => one.device, cell: deviceOf },
      { key: "step_ns", title: "Step", number: true, spare: 1, value: (one) => one.step_ns, text: (one) => format.time(one.step_ns) },
      { key: "exposed_ratio", title: "Exposed", number: true, spare: 2, value: (one) => one.exposed_ratio, text: (one) => format.percent(one.exposed_ratio) },
      { key: "gpus", title: "GPUs", number: true, spare: 2, value: (one) => one.gpus, text: (one) => (one.gpus ? format.count(one.gpus) : format.NONE) },
      { key: "ranks", title: "Ranks", number: true, value: (one) => one.ranks, text: (one) => (one.ranks ? format.count(one.ranks) : format.NONE) },
      { key: "events", title: "Events", number: true, spare: 2, value: (one) => one.events, text: (one) => format.countShort(one.events) },
      { key: "bytes", title: "Size", number: true, spare: 1, value: (one) => one.bytes, text: (one) => format.bytes(one.bytes) },
      {
        key: "modified_ms",
        title: "Changed",
        number: true,
        value: (one) => one.modified_ms,
        cell: (one) =>
          one.modified_ms
            ? h("span", { title: new Date(one.modified_ms).toLocaleString() }, ago(one.modified_ms, Date.now()))
            : format.NONE,
      },
    ],
  });
  const trouble = h("div", null);
  const notes = h("div", null);
  const jobs = jobList({ api, openJob });
  jobs.element.hidden = true;
  replace(container, jobs.element, h("header", { class: "p-head" }, h("h1", null, "Recordings"), head, together), trouble, notes, list.element);

  async function look() {
    clearTimeout(timer);
    try {
      const answer = await api.json("recordings");
      rows = answer.recordings;
      jobs.element.hidden = !answer.jobs;
      if (answer.jobs) void jobs.look();
      const version = answer.version ? `, gputrace ${answer.version}` : "";
      head.textContent = `${format.count(rows.length)} ${rows.length === 1 ? "recording" : "recordings"}${version}`;
      replace(trouble);
      replace(notes, ...(answer.notes ?? []).map((/** @type {string} */ note) => h("p", { class: "p-quiet" }, note)));
      const now = JSON.stringify(rows);
      // The list is drawn again when something changed, or once in a while for the times.
      if (now !== last && !container.contains(document.activeElement?.closest("tbody") ?? null)) {
        last = now;
        list.setRows(rows);
      }
    } catch (error) {
      replace(trouble, failed(error, look, "Recordings"));
    }
    if (!stopped) timer = window.setTimeout(look, AGAIN_MS);
  }
  look();
  return {
    refresh: look,
    destroy() {
      stopped = true;
      clearTimeout(timer);
      container.textContent = "";
    },
  };
}
