// @ts-check
/** In the details of an operation: which operator, module and functions of the host launched it. */

import { h } from "./dom.js";
import { count, middle } from "./format.js";
import { iconButton } from "./icons.js";
import { frameOf, inputs } from "./shapes.js";

/**
 * @typedef {{name: string, input_dims: string | null, input_types: string | null, ref: any}} OperatorOf
 * @typedef {{operator: OperatorOf | null, module: string | null, pass: string | null, stack: string[], native_frames: number,
 *   more_frames: number}} LaunchedBy
 */

/** Letters of shapes that have room. */
const ROOM = 120;

export class LauncherPart {
  constructor() {
    /** Who opens one stack wants to see the next one too. */
    this.open = false;
  }

  /**
   * @param {LaunchedBy | null | undefined} by
   * @param {string} title
   * @param {(ref: any) => HTMLElement} jump a button that leads to a slice
   * @param {(by: "operators" | "modules" | "stacks", names: string[]) => void} find shows a table at the row of these names, the
   *   innermost first
   */
  element(by, title, jump, find) {
    if (!by) return null;
    const { operator, module, pass } = by;
    const inTable = (/** @type {Parameters<typeof find>[0]} */ table, /** @type {string[]} */ names) =>
      iconButton("rows", `Show it in the table of ${table}`, (event) => {
        event.preventDefault();
        find(table, names);
      });
    const { sizes, types } = inputs(operator?.input_dims, operator?.input_types);
    return h(
      "div",
      { class: "details-part details-launcher" },
      h("h2", {}, title),
      h(
        "dl",
        { class: "facts" },
        operator && [h("dt", {}, "Operator"), h("dd", {}, jump(operator.ref), inTable("operators", [operator.name]))],
        sizes && [
          h("dt", {}, "Inputs"),
          h(
            "dd",
            { title: `${operator?.input_dims ?? ""}\n${operator?.input_types ?? ""}` },
            middle(sizes, ROOM),
            types && h("span", { class: "faint" }, ` ${types}`),
          ),
        ],
        module && [
          h("dt", {}, "Module"),
          h("dd", {}, module, pass && h("span", { class: "faint" }, ` ${pass}`), inTable("modules", [module])),
        ],
      ),
      by.stack.length > 0 && this.stack(by, inTable("stacks", by.stack)),
    );
  }

  /** The functions, innermost first. @private @param {LaunchedBy} by @param {HTMLElement} inTable leads to their table */
  stack({ stack, native_frames: native, more_frames: more }, inTable) {
    const words = (/** @type {string} */ frame) => {
      const { name, place } = frameOf(frame);
      return [middle(name, ROOM), place && h("span", { class: "faint" }, ` ${place}`)];
    };
    const line = (/** @type {string} */ frame) => h("li", { title: frame }, words(frame));
    const element = h(
      "details",
      { class: "launcher-stack", open: this.open },
      h("summary", { title: stack[0] }, h("span", { class: "quiet" }, native > 0 ? "Called by " : "Python "), words(stack[0]), inTable),
      h("ol", {}, stack.slice(1).map(line), more > 0 && h("li", { class: "faint" }, `and ${count(more)} more`)),
    );
    element.addEventListener("toggle", () => (this.open = element.open));
    return element;
  }
}
