// @ts-check
/** The strip under the bar: the numbers that answer, and the findings as sentences that lead to their places. */

import { shareBar } from "../charts.js";
import { h } from "../dom.js";
import * as format from "../format.js";
import { costliest, showCollective } from "./collectives.js";
import { leadOf, summary } from "./findings.js";
import { mounted, ofSteps, shareParts } from "./shared.js";

/**
 * @param {HTMLElement} container
 * @param {import("./shared.js").Context} context
 */
export function mountAnswer(container, context) {
  container.classList.add("p-answer");
  return mounted(container, context, draw, "The analysis");
}

/**
 * @type {(analysis: import("../../types/analysis.js").Analysis, context: import("./shared.js").Context, keep: Record<string, any>,
 *   redraw: () => void) => import("../dom.js").Child}
 */
function draw(analysis, context, keep) {
  if (!analysis.ranks.length) {
    return h("p", { class: "p-quiet" }, "No rank of this recording ran anything on a GPU. ", analysis.losses.length ? "See Devices for what was lost." : "");
  }
  return [ofSteps(context), figures(analysis, context), findings(analysis, context, keep)];
}

/** @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context */
function figures(analysis, context) {
  const all = summary(analysis);
  const several = format.severalDevices(analysis);
  const many = analysis.ranks.length > 1;
  const who = (/** @type {any} */ rank) => format.place(rank, several);
  const figure = (
    /** @type {string} */ name,
    /** @type {string} */ value,
    /** @type {string} */ more,
    /** @type {string} */ panel,
    /** @type {string} */ hint,
    /** @type {string} */ tone = "",
  ) =>
    h(
      "button",
      { type: "button", class: `p-figure ${tone}`, title: more ? `${more}. ${hint}` : hint, onclick: () => context.show?.(panel) },
      h("span", { class: "p-figurename" }, name),
      h("span", { class: "p-figurevalue" }, value),
      h("span", { class: "p-figuremore" }, more),
    );
  const steps = all.steps;
  const warmUp = steps?.warm_up.length ? `, ${format.count(steps.warm_up.length)} of warm-up` : "";
  const outliers = steps?.outlierCount ? `, ${format.count(steps.outlierCount)} ${steps.outlierCount === 1 ? "outlier" : "outliers"}` : "";
  const boxes = [
    figure(
      "Span",
      format.time(all.span),
      steps
        ? `${format.count(steps.count)} ${steps.count === 1 ? "step" : "steps"} of ${format.time(steps.mean_ns)}${warmUp}${outliers}`
        : "no steps are marked",
      "steps",
      "From the first operation on a GPU to the last, of the rank where that is longest; " +
        "the mean of its steps without warm-up, each as long as on its slowest rank",
    ),
    figure(
      "Busy",
      format.percent(all.busy),
      many
        ? `${who(all.leastBusy)} least: ${format.percent(1 - (all.leastBusy?.idle_ratio ?? 0))}`
        : format.place(analysis.ranks[0], several),
      "steps",
      "Share of the span in which a GPU ran anything, over all ranks",
    ),
  ];
  if (all.communication > 0) {
    boxes.push(
      figure(
        "Exposed communication",
        format.percent(all.exposed),
        all.mostExposed ? `${format.time(all.mostExposed.communication_exposed_ns)} on ${who(all.mostExposed)}` : "",
        "collectives",
        "Share of the span in which ranks communicate and nothing computes",
        (all.exposed ?? 0) > 0.05 ? "p-warm" : "",
      ),
      figure(
        "Overlap",
        format.percent(all.overlap),
        all.leastOverlap && many
          ? `${who(all.leastOverlap)} least: ${format.percent(all.leastOverlap.overlap_ratio)}`
          : "of communication is hidden",
        "steps",
        "Share of the communication that is hidden behind compute",
      ),
    );
  }
  boxes.push(
    figure(
      "Idle",
      format.percent(all.idle),
      all.cause ? `${format.percent(all.cause.share)} of it ${all.cause.title}` : "",
      "idle",
      "Share of the span in which a GPU ran nothing, and its main cause",
    ),
  );
  if (all.late) {
    boxes.push(
      figure(
        "Late rank",
        all.late.cost_ns > 0 ? format.place(all.late, several) : "none",
        all.late.cost_ns > 0
          ? `last at ${format.count(all.late.last_count)} of ${format.count(all.late.collectives)}, costs ${format.time(all.late.cost_ns)}`
          : "all arrive together",
        "collectives",
        "The rank whose late arrivals at collectives cost the others most",
        all.late.standsOut ? "p-warm" : all.late.share < 0.01 || all.late.collectives < 5 ? "p-calm" : "",
      ),
    );
  }
  return h(
    "div",
    { class: "p-figures" },
    boxes,
    h(
      "div",
      { class: "p-wholebar" },
      h("span", { "aria-hidden": "true" }, "Time of all GPUs"),
      shareBar(shareParts(all.parts), {
        format: (value) =>
          format.percent(
            value /
              Math.max(
                1,
                Object.values(all.parts).reduce((a, b) => a + b, 0),
              ),
          ),
        label: "Time of all GPUs",
      }),
    ),
  );
}

/** How many findings are shown before they are asked for. */
const FIRST = 2;

/** @param {import("../../types/analysis.js").Analysis} analysis @param {import("./shared.js").Context} context @param {Record<string, any>} keep */
function findings(analysis, context, keep) {
  const list = analysis.findings;
  if (!list.length) return h("div", { class: "p-findings" }, h("p", { class: "p-quiet" }, "Nothing stands out: no finding."));
  // Who asks to see one wants room to see it.
  const items = list.map((finding) => sentence(finding, analysis, context, () => show(false)));
  const button = h("button", { type: "button", class: "p-more" });
  const box = h("div", { class: "p-findings" }, h("ol", { "aria-label": "Findings" }, items), button);
  const show = (/** @type {boolean} */ open) => {
    keep.open = open;
    items.forEach((item, index) => (item.hidden = !open && index >= FIRST));
    box.classList.toggle("p-brief", !open);
    button.textContent = open ? "Less" : list.length > FIRST ? `All ${list.length}` : "Full text";
    button.title = open ? "" : "Shows the findings whole";
    button.setAttribute("aria-expanded", String(open));
  };
  button.addEventListener("click", () => show(!keep.open));
  show(Boolean(keep.open));
  return box;
}

/**
 * @param {import("../../types/analysis.js").Finding} finding
 * @param {import("../../types/analysis.js").Analysis} analysis
 * @param {import("./shared.js").Context} context
 * @param {() => void} fold
 */
function sentence(finding, analysis, context, fold) {
  const lead = leadOf(finding, analysis);
  const [what, advice] = split(finding.text);
  const links = [];
  if (lead.place) {
    const place = lead.place;
    links.push(link("Show", `Show ${place.what} on the timeline`, () => {
      fold();
      context.goTo(place);
    }));
  } else if (lead.late !== undefined) {
    links.push(link("Show", "Show on the timeline where it cost most", () => {
      fold();
      latest(lead.late, context);
    }));
  } else if (lead.search && context.search) {
    const text = lead.search;
    links.push(link("Find", "Find them on the timeline", () => context.search?.(text)));
  }
  links.push(link("More", "The numbers behind it", () => context.show?.(lead.panel)));
  return h(
    "li",
    { class: "p-finding" },
    h(
      "span",
      { class: "p-saves", title: savesTitle(finding) },
      finding.code === "hang"
        ? "hang"
        : finding.saves_per_step_ns !== null
          ? [format.time(finding.saves_per_step_ns), h("small", null, " a step")]
          : format.time(finding.saves_ns),
    ),
    h(
      "span",
      { class: "p-said", title: `${finding.text}. ${finding.evidence}.` },
      h("strong", null, what),
      ". ",
      advice ? h("span", { class: "p-advice" }, sentenceCase(advice), ". ") : null,
      h("span", { class: "p-evidence" }, sentenceCase(finding.evidence), "."),
    ),
    h("span", { class: "p-links" }, links),
  );
}

/** What is meant by what a finding saves. @param {import("../../types/analysis.js").Finding} finding */
function savesTitle(finding) {
  if (finding.code === "hang") return "It never ended";
  const { saves_low_ns: low, saves_high_ns: high } = finding;
  const replayed = low !== null && high !== null && low !== undefined && high !== undefined
    ? `A step loses ${format.time(low)} to ${format.time(high)} if this alone is mended, by a replay of all ranks; `
    : "";
  return `${replayed}could save at most ${format.time(finding.saves_ns)} over the run; savings of several findings may be the same time`;
}

/** @param {string} text */
const sentenceCase = (text) => (/^[a-z]+[ ,:]/.test(text) ? text[0].toUpperCase() + text.slice(1) : text);

/** What it is, and what to try. @param {string} text @returns {[string, string]} */
function split(text) {
  const at = text.indexOf(": ");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 2)];
}

/** @param {string} text @param {string} hint @param {() => void} act */
function link(text, hint, act) {
  return h("button", { type: "button", class: "p-link", title: hint, onclick: act }, text);
}

/**
 * Goes to the collective at which a rank's lateness cost most.
 * @param {any} rank
 * @param {import("./shared.js").Context} context
 */
async function latest(rank, context) {
  try {
    const found = await costliest(rank, context);
    if (found) return showCollective(found, context);
  } catch {
    // The panel has the list, and says what is wrong with it.
  }
  context.show?.("collectives");
}
