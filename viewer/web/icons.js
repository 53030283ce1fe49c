// @ts-check
/** The page's icons: lines on a square of 16, in the colour of the text beside them. */

import { h, svg } from "./dom.js";

const LINES = {
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9M10.4 10.4 14 14",
  close: "M4 4l8 8M12 4l-8 8",
  up: "M3.5 10 8 5.5 12.5 10",
  down: "M3.5 6 8 10.5 12.5 6",
  right: "M6 3.5 10.5 8 6 12.5",
  left: "M10 3.5 5.5 8 10 12.5",
  pin: "M6 2.5h4M6.8 2.5v4L4.5 9v.8h7V9L9.2 6.5v-4M8 9.8V14",
  sun: "M8 5a3 3 0 1 0 0 6 3 3 0 0 0 0-6M8 1.2v1.3M8 13.5v1.3M1.2 8h1.3M13.5 8h1.3M3.2 3.2l.9.9M11.9 11.9l.9.9M12.8 3.2l-.9.9M4.1 11.9l-.9.9",
  moon: "M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8z",
  auto: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM8 2.2v11.6M10 3v10M12 4.6v6.8",
  help: "M5.8 6a2.2 2.2 0 1 1 3.3 1.9c-.7.4-1.1.8-1.1 1.6M8 12.2v.3",
  download: "M8 2.5v8M4.8 7.5 8 10.7l3.2-3.2M3 13.5h10",
  link: "M6.8 9.2a2.4 2.4 0 0 0 3.4 0l2.3-2.3a2.4 2.4 0 0 0-3.4-3.4l-.8.8M9.2 6.8a2.4 2.4 0 0 0-3.4 0L3.5 9.1a2.4 2.4 0 0 0 3.4 3.4l.8-.8",
  warning: "M8 2.5 14.2 13.3H1.8zM8 6.5v3.2M8 11.4v.3",
  rows: "M2.5 4h11M2.5 8h11M2.5 12h11",
  filter: "M2.5 3.5h11L9.3 8.5v4.2l-2.6-1.3V8.5z",
  more: "M3 8h.6M7.7 8h.6M12.4 8h.6",
  fit: "M2.5 5.5v-3h3M10.5 2.5h3v3M13.5 10.5v3h-3M5.5 13.5h-3v-3",
  path: "M1.8 11.5h3.4L9 4.5h5.2M11.8 2.2l2.4 2.3-2.4 2.3",
  expand: "M4 6l4-3.5L12 6M4 10l4 3.5 4-3.5",
  collapse: "M4 3l4 3.5L12 3M4 13l4-3.5 4 3.5",
};

/**
 * @param {keyof typeof LINES} name
 * @returns {SVGElement}
 */
export function icon(name) {
  return svg("svg", { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" }, svg("path", { d: LINES[name] }));
}

/**
 * A button that shows an icon and is named for those who don't see it.
 *
 * @param {keyof typeof LINES} name
 * @param {string} label
 * @param {(event: MouseEvent) => void} click
 * @param {Record<string, any>} [properties]
 * @returns {HTMLButtonElement}
 */
export function iconButton(name, label, click, properties) {
  return h("button", { class: "icon-button", type: "button", title: label, "aria-label": label, onclick: click, ...properties }, icon(name));
}
