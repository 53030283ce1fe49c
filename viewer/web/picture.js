// @ts-check
/** A picture of the timeline as it is seen, with names, ruler and a line that says what it is of. */

import { getFont } from "./draw.js";

const HEAD = 30;

/**
 * @param {import("./timeline.js").Timeline} timeline
 * @returns {Promise<Blob | null>}
 */
export function picture(timeline) {
  const { theme, plot, over, rulerCanvas, layout, context } = timeline;
  const { ratio } = timeline.view();
  const gutter = Math.round(timeline.labels.element.offsetWidth * ratio);
  const head = Math.round(HEAD * ratio);
  const ruler = rulerCanvas.height;
  const canvas = document.createElement("canvas");
  canvas.width = gutter + plot.width;
  canvas.height = head + ruler + plot.height;
  const ink = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  ink.fillStyle = theme.colour.background;
  ink.fillRect(0, 0, canvas.width, canvas.height);
  ink.textBaseline = "middle";

  const { info } = context;
  const [from, to] = timeline.shown;
  const step = Math.max(1, 10 ** Math.floor(Math.log10((to - from) / 1000)));
  ink.font = `600 ${13 * ratio}px ${getFont()}`;
  ink.fillStyle = theme.colour.text;
  ink.fillText(info.name, 10 * ratio, head / 2);
  const left = 10 * ratio + ink.measureText(info.name).width + 12 * ratio;
  ink.font = `${12 * ratio}px ${getFont()}`;
  ink.fillStyle = info.simulated ? theme.colour.warn : theme.colour["text-2"];
  const kind = info.simulated ? "Simulated GPU, " : info.imported ? "imported, " : "";
  ink.fillText(`${kind}${timeline.stamp(from, step)} to ${timeline.stamp(to, step)}, gputrace`, left, head / 2);

  ink.drawImage(rulerCanvas, gutter, head);
  ink.drawImage(plot, gutter, head + ruler);
  ink.drawImage(over, gutter, head + ruler);

  const names = (/** @type {import("./rows.js").Item[]} */ items, /** @type {number} */ shift, /** @type {number} */ top) => {
    ink.save();
    ink.beginPath();
    ink.rect(0, head + ruler + top * ratio, gutter - 4 * ratio, plot.height);
    ink.clip();
    for (const item of items) {
      const y = head + ruler + (item.y + shift + item.height / 2) * ratio;
      if (y < head + ruler - 40 * ratio || y > canvas.height + 40 * ratio || !item.label) continue;
      ink.font = `${item.depth === 0 ? "600 " : ""}${12 * ratio}px ${getFont()}`;
      ink.fillStyle = item.type === "group" ? theme.colour.text : theme.colour["text-2"];
      const x = (24 + 12 * item.depth) * ratio;
      ink.fillText(item.label, x, y);
      if (!item.detail) continue;
      const wide = ink.measureText(item.label).width;
      ink.font = `${11 * ratio}px ${getFont()}`;
      ink.fillStyle = theme.colour["text-3"];
      ink.fillText(item.detail, x + wide + 6 * ratio, y);
    }
    ink.restore();
  };
  names(layout.pinned, 0, 0);
  names(layout.items, layout.pinnedHeight - timeline.scrollTop, layout.pinnedHeight);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}
