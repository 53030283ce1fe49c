// @ts-check
/** Why: what costs time with the chain of its causes, the critical path, and what a step would take if something were different. */

import { partName } from "../critical.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { table } from "../table.js";
import { nothing, panel, section } from "./shared.js";
import { WhatIfPart, intervalBar } from "./whatif.js";

/** @typedef {import("../../types/analysis.js").Analysis} Analysis */
/** @typedef {import("../../types/analysis.js").Finding} Finding */
/** @typedef {import("../../types/analysis.js").CauseLink} CauseLink */
/** @typedef {import("../../types/analysis.js").PathPart} PathPart */
/** @typedef {import("./shared.js").Context} Context */

export const why = {
  ...panel("why", "Why", (analysis, context, keep) => {
    keep.whatIf ??= new WhatIfPart(context);
    keep.whatIf.renew();
    return [causes(analysis, context), h("div", { class: "p-columns" }, keep.whatIf.element, path(analysis, context, keep))];
  }),
  // Digits are those of the other views.
  key: "Y",
};

/** The ranks that a finding is about. @param {Finding} finding */
function ranksOf({ rank, ranks }) {
  return ranks.length ? ranks : rank === null ? [] : [rank];
}

/** Ranks that are named; of more only how many there are. */
const NAMED = 12;

/** @param {number[]} ranks */
function named(ranks) {
  const more = ranks.length > NAMED ? ` and ${ranks.length - NAMED} more` : "";
  return ranks.length === 0 ? "" : ranks.length === 1 ? `rank ${ranks[0]}` : `ranks ${ranks.slice(0, NAMED).join(", ")}${more}`;
}

/** What mending a finding would be as a change to try; what has no such change is not offered. @param {Finding} finding @returns {string | null} */
export function changeOf(finding) {
  const ranks = ranksOf(finding);
  switch (finding.code) {
    case "slow_rank":
      return ranks.length ? `rank:${ranks.join(",")}=as-others` : null;
    case "exposed_communication":
      return "communication=none";
    case "host_late":
    case "nothing_submitted":
      return "host=none";
    default:
      return null;
  }
}

/** @param {Analysis} analysis @param {Context} context */
function causes(analysis, context) {
  const findings = analysis.findings.filter(({ code }) => code);
  const note =
    "What surely saves most comes first, with what a step loses if that alone is mended. " +
    "Several may save the same time. A link of a chain leads to its place.";
  if (!findings.length) return section("Causes", null, nothing("Nothing stands out: no finding."));
  const most = Math.max(1, ...findings.map((one) => one.saves_high_ns ?? one.saves_per_step_ns ?? 0));
  return section("Causes", note, h("ol", { class: "p-causes", "aria-label": "Causes" }, findings.map((finding) => cause(finding, most, context))));
}

/** @param {Finding} finding @param {number} most @param {Context} context */
function cause(finding, most, context) {
  const { saves_per_step_ns: saves, saves_low_ns: low, saves_high_ns: high } = finding;
  const replayed = typeof low === "number" && typeof high === "number";
  const saved =
    finding.code === "hang"
      ? "hang"
      : saves !== null
        ? [format.time(saves), h("small", null, " a step")]
        : [format.time(finding.saves_ns), h("small", null, " in all")];
  const change = changeOf(finding);
  const at = finding.text.indexOf(": ");
  const whose = named(ranksOf(finding));
  return h("li", { class: "p-cause", dataset: { code: finding.code } },
    h("div", { class: "p-causesaves" },
      h("span", { class: "p-saves" }, saved),
      replayed ? h("small", { class: "p-faint" }, `${format.time(low)} to ${format.time(high)}`) : null,
      saves !== null ? intervalBar(replayed ? low : saves, replayed ? high : saves, most) : null),
    h("div", { class: "p-causesaid" },
      h("p", null, h("strong", null, at < 0 ? finding.text : finding.text.slice(0, at)), whose ? h("span", { class: "p-badge p-whose" }, whose) : null,
        at < 0 ? null : h("span", { class: "p-advice" }, ` ${sentence(finding.text.slice(at + 2))}.`)),
      h("p", { class: "p-evidence" }, sentence(finding.evidence), "."),
      chain(finding, context),
      change ? h("button", { type: "button", class: "p-link", title: change, onclick: () => tryOut(change, context) }, "What if it were mended?") : null));
}

/** Makes this the one change that is tried. @param {string} change @param {Context} context */
function tryOut(change, context) {
  context.state.set({ changes: [change] });
  document.querySelector(".p-whatif")?.scrollIntoView({ block: "nearest", behavior: "auto" });
}

/** From what is to be mended to what is seen of it. @param {Finding} finding @param {Context} context */
function chain(finding, context) {
  const links = finding.cause ?? [];
  if (!links.length) return null;
  return h(
    "ol",
    { class: "p-chain", "aria-label": "From the cause to what is seen of it" },
    links.map((link) => {
      const whose = link.rank === null ? null : h("span", { class: "p-faint" }, ` rank ${link.rank}`);
      const words = [h("span", { class: "p-faint" }, `${link.what} `), format.middle(format.shortName(link.name), 90), whose];
      return h(
        "li",
        null,
        link.start_ns === null
          ? h("span", { title: link.name }, words)
          : h(
              "button",
              {
                type: "button",
                class: "p-link",
                title: `${link.name}: show it on the timeline`,
                onclick: () => void follow(link, finding, context),
              },
              words,
            ),
      );
    }),
  );
}

/** Rows that are asked for what lies at a link's place. */
const MOST_ASKED = 24;
/** On which rows what a link names lies. @type {Record<string, string[]>} */
const ROWS = { kernel: ["stream"], copy: ["stream"], memset: ["stream"], collective: ["stream"], call: ["thread"], host: ["thread", "nvtx"] };

/** Goes to the place of a link, and selects what begins there. @param {CauseLink} link @param {Finding} finding @param {Context} context */
async function follow(link, finding, context) {
  const start = /** @type {number} */ (link.start_ns);
  const wanted = ROWS[link.what] ?? ["stream", "thread"];
  const rows = (context.rows?.() ?? []).filter((row) => row.rank === link.rank && wanted.includes(row.what) && row.type === "slices");
  const hits = await Promise.all(rows.slice(0, MOST_ASKED).map((row) => context.api.hit(row.row, start, 0).catch(() => null)));
  const at = hits.findIndex((ref) => ref?.start === start);
  // As much of a step as it costs, where nothing is found that has a length.
  const length = at >= 0 ? hits[at].duration : Math.max(finding.saves_per_step_ns ?? 0, 1_000_000);
  await context.goTo({ from: start, to: start + Math.max(1, length), rank: link.rank ?? undefined, ...(at >= 0 ? { key: rows[at].key, start } : {}) });
}

/** @param {string} text */
const sentence = (text) => (/^[a-z]+[ ,:]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text);

/** Colours of what is on the path. @type {Record<string, string>} */
const COLOURS = {
  kernel: "var(--kind-compute)",
  transfer: "var(--kind-communication)",
  copy: "var(--kind-copy)",
  memset: "var(--kind-memset)",
  host: "var(--kind-4)",
  call: "var(--kind-5)",
};

/** @param {string} what */
function whatMark(what) {
  return h("span", { class: "p-kind" }, h("span", { class: "p-dot", "aria-hidden": "true", style: { "--c": COLOURS[what] ?? "var(--text-3)" } }), what);
}

/** @param {Analysis} analysis @param {Context} context @param {Record<string, any>} keep */
function path(analysis, context, keep) {
  const whole = analysis.critical_path;
  if (!whole?.parts.length)
    return section(
      "The critical path",
      null,
      nothing("There is no path.", "Nothing ran, or one step has more operations than can be followed."),
    );
  const { total_ns: total, steps } = whole;
  const share = (/** @type {PathPart} */ part) => part.time_ns / Math.max(1, total);
  const most = Math.max(1e-9, ...whole.parts.map(share));
  keep.path ??= {};
  const show = h(
    "button",
    {
      type: "button",
      class: "p-button",
      title: "Draws it through the rows (O); B and Shift + B go along it",
      onclick: () => void context.showPath?.({}),
    },
    "Show on the timeline",
  );
  const list = table({
    name: "critical-path",
    keep: keep.path,
    rows: whole.parts,
    search: (part) => `${partName(part)} ${part.rank === null ? "" : `rank ${part.rank}`}`,
    tools: [show],
    openHint: () => "Show its longest piece on the timeline",
    open: (part) => void context.showPath?.({ part }),
    columns: [
      { key: "what", title: "What", value: (part) => part.what, cell: (part) => whatMark(part.what) },
      { key: "name", title: "Name", wide: true, value: (part) => part.name, cell: (part) => h("span", { class: "p-name" }, part.name || format.NONE) },
      { key: "rank", title: "Rank", value: (part) => part.rank, text: (part) => format.place(part) },
      {
        key: "step_ns",
        title: "A step",
        number: true,
        value: (part) => part.time_ns / Math.max(1, steps),
        text: (part) => format.time(Math.round(part.time_ns / Math.max(1, steps))),
      },
      {
        key: "share",
        title: "%",
        number: true,
        value: share,
        text: (part) => format.percent(share(part)),
        bar: (part) => share(part) / most,
      },
    ],
  });
  return section(
    "The critical path",
    `What the time of ${steps === 1 ? "a step" : `${format.count(steps)} steps`} was spent on, one thing at a time: ` +
      "whatever the next was waiting for, over all ranks.",
    list.element,
  );
}
