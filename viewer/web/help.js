// @ts-check
/** The overlay of all keys. */

import { h } from "./dom.js";
import { confirmOn, copyText } from "./table.js";

/**
 * Keys by what they are for; a row is what is pressed (of several one is enough) and what it does.
 * @typedef {{group: string, rows: [string[], string][]}[]} Keys
 */

/** What the page's own keys are, where the timeline names none. @type {Keys} */
export const KEYS = [
  {
    group: "Move",
    rows: [
      [["W", "S"], "zoom in, out at the pointer"],
      [["A", "D"], "pan left, right"],
      [["Shift"], "with these: faster"],
      [["Ctrl + wheel"], "zoom at the pointer"],
      [["Shift + wheel"], "pan"],
      [["0", "Home"], "show everything"],
      [["F"], "zoom to the selection; twice: show everything"],
    ],
  },
  {
    group: "Select",
    rows: [
      [["click"], "select an operation"],
      [["drag"], "select an area: counts, sums, percentiles"],
      [[".", ","], "next, previous on the row"],
      [["Shift + .", "Shift + ,"], "next, previous of the same name"],
      [["]", "["], "along the arrows: launch, kernel, other ranks"],
      [["Esc"], "select nothing"],
    ],
  },
  {
    group: "Find and mark",
    rows: [
      [["/"], "search names"],
      [["Enter", "Shift + Enter"], "next, previous hit"],
      [["M"], "mark the selection or the area"],
      [["Shift + M"], "keep the mark"],
    ],
  },
];

/** Keys of the page around the timeline. @type {Keys} */
const PAGE_KEYS = [
  { group: "Page", rows: [
    [["Ctrl + K", "Ctrl + Shift + P"], "all commands"], [["?"], "these keys"], [["Tab"], "to tables, charts and buttons"], [["Esc"], "close"],
  ] },
  { group: "Charts and tables", rows: [
    [["←", "→"], "move along a chart"], [["Enter"], "go to its place on the timeline"], [["Enter"], "on a heading: sort by it"],
    [["←", "→", "↑", "↓"], "move in a flame graph"], [["+", "-"], "a node of it alone, and back"],
  ] },
];

/** @type {HTMLDialogElement | null} */
let dialog = null;

/** @param {Keys} [keys] */
export function openHelp(keys) {
  if (dialog?.open) {
    dialog.close();
    return;
  }
  const groups = [...(keys?.length ? keys : KEYS)];
  for (const group of PAGE_KEYS) if (!groups.some((one) => one.group === group.group)) groups.push(group);
  const close = h("button", { type: "button", class: "p-close", "aria-label": "Close" }, "×");
  const made = h("dialog", { class: "p-dialog p-help", "aria-labelledby": "p-help-title" },
    h("header", { class: "p-dialoghead" }, h("h2", { id: "p-help-title" }, "Keys"), close),
    h(
      "div",
      { class: "p-keys" },
      groups.map(({ group, rows }) =>
        h(
          "section",
          null,
          h("h3", null, group),
          h(
            "dl",
            null,
            rows.map(([pressed, does]) => [
              h(
                "dt",
                null,
                pressed.map((key, index) => [index ? h("span", { class: "p-faint" }, " ") : null, keyCap(key)]),
              ),
              h("dd", null, does),
            ]),
          ),
        ),
      ),
    ),
  );
  close.addEventListener("click", () => made.close());
  show(made);
  dialog = made;
}

/**
 * A few words, and a line to copy.
 * @param {string} title
 * @param {string} text
 * @param {string} line
 */
export function openNotice(title, text, line) {
  const close = h("button", { type: "button", class: "p-close", "aria-label": "Close" }, "×");
  const copy = h("button", { type: "button", class: "p-button" }, "Copy");
  const made = h("dialog", { class: "p-dialog p-notice", "aria-labelledby": "p-notice-title" },
    h("header", { class: "p-dialoghead" }, h("h2", { id: "p-notice-title" }, title), close), h("p", null, text), h("pre", { tabindex: 0 }, line),
    h("p", null, copy));
  copy.addEventListener("click", async () => {
    // The page behind is out of reach while the dialog is open, and so would be what copies without a clipboard.
    await copyText(line, made);
    confirmOn(copy, "Copied");
  });
  close.addEventListener("click", () => made.close());
  show(made);
}

/** "Shift + wheel" as caps. @param {string} key */
function keyCap(key) {
  return h("span", { class: "p-combination" }, key.split(" + ").map((part) => h("kbd", null, part)));
}

/**
 * Shows a dialog over the page: keys stay in it, a click beside it closes it, and it is gone when closed.
 * @param {HTMLDialogElement} made
 */
export function show(made) {
  document.body.append(made);
  made.addEventListener("click", (event) => {
    if (event.target === made) made.close();
  });
  // Keys of the page behind must not act on what can't be seen.
  made.addEventListener("keydown", (event) => {
    if (event.key === "?" && !(event.target instanceof HTMLInputElement)) made.close();
    event.stopPropagation();
  });
  made.addEventListener("close", () => made.remove());
  made.showModal();
}
