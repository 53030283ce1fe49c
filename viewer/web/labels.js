// @ts-check
/** The column of names beside the rows, as a tree, and the tools over it. */

import { h, replace } from "./dom.js";
import { icon, iconButton } from "./icons.js";
import { LINE, toggleMenu } from "./menu.js";
import { hasClock } from "./times.js";

/** @typedef {import("./rows.js").Item} Item */

const HEIGHTS = /** @type {const} */ (["compact", "normal", "tall"]);

export class Labels {
  /** @param {import("./timeline.js").Timeline} timeline */
  constructor(timeline) {
    this.timeline = timeline;
    this.pinned = h("div", { class: "tl-labels-pinned", role: "group", "aria-label": "Pinned rows" });
    this.scrolled = h("div", { class: "tl-labels-all", role: "group" });
    this.clip = h("div", { class: "tl-labels-clip", role: "presentation" }, this.scrolled);
    this.element = h("div", { class: "tl-labels", role: "tree", "aria-label": "Rows" }, this.pinned, this.clip);
    const { state } = timeline;
    this.input = h("input", {
      type: "search", placeholder: "Filter rows", "aria-label": "Filter rows", spellcheck: "false", autocomplete: "off",
      oninput: () => state.set({ filter: { ...state.get().filter, text: this.input.value } }),
      onkeydown: (/** @type {KeyboardEvent} */ event) => {
        if (event.key !== "Escape") return;
        this.input.value = "";
        state.set({ filter: { ...state.get().filter, text: "" } });
        timeline.over.focus();
      },
    });
    this.height = iconButton("rows", "Row height", () => {
      const next = HEIGHTS[(HEIGHTS.indexOf(state.get().rowHeight) + 1) % HEIGHTS.length];
      state.set({ rowHeight: next });
    });
    this.more = iconButton("more", "Rows, names and times", () => this.openMenu(), { "aria-haspopup": "menu", "aria-expanded": "false" });
    this.path = iconButton("path", "Critical path (O)", () => timeline.path?.toggle(), { "aria-pressed": "false", hidden: "pair" in timeline.context });
    this.tools = h("div", { class: "tl-tools" }, icon("filter"), this.input, this.path, this.height, this.more);
    /** @type {Map<string, HTMLElement>} */
    this.shown = new Map();
    this.drawnFor = "";
    this.element.addEventListener("click", (event) => this.click(event));
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.element.addEventListener("dblclick", (event) => {
      const item = this.itemOf(event.target);
      if (item?.foldable) timeline.toggle(item.node.path);
    });
    timeline.state.subscribe(["filter", "rowHeight", "path"], () => this.showTools());
  }

  /** @private */
  openMenu() {
    const { state, input, context } = this.timeline;
    const { filter, pins, names, zero } = state.get();
    const entries = [
      { title: "Open all groups", run: () => this.timeline.foldAll(false) },
      { title: "Fold all groups", run: () => this.timeline.foldAll(true) },
      { title: "Groups as at first", run: () => state.set({ collapsed: [], order: {} }) },
      LINE,
      {
        title: "Hide empty rows",
        checked: filter.hideEmpty,
        run: () => state.set({ filter: { ...filter, hideEmpty: !filter.hideEmpty } }),
      },
      {
        title: "Only rows with hits of the search",
        checked: filter.onlyMatches,
        run: () => state.set({ filter: { ...filter, onlyMatches: !filter.onlyMatches } }),
      },
      LINE,
      { title: "Whole names of kernels", keys: "V", checked: names === "full", run: () => input.run("names") },
      LINE,
      { title: "Times from the beginning", chosen: zero === null, run: () => state.set({ zero: null }) },
      { title: "Times from the selection, mark or step", keys: "Z", chosen: typeof zero === "number", run: () => input.run("zero") },
    ];
    if (hasClock(context.info.origin_ns))
      entries.push({ title: "Time of day (UTC)", keys: "Shift + Z", chosen: zero === "clock", run: () => input.run("clock") });
    if (pins.length > 0) entries.push(LINE, { title: "Unpin all rows", run: () => state.set({ pins: [] }) });
    toggleMenu(this.more, "Rows, names and times", entries);
  }

  /** @private */
  showTools() {
    const { filter, rowHeight, path } = this.timeline.state.get();
    this.path.setAttribute("aria-pressed", String(path));
    if (this.input.value !== filter.text) this.input.value = filter.text;
    this.height.title = `Row height: ${rowHeight} (H)`;
  }

  /** Shows the names of the rows in view. */
  draw() {
    const { layout, scrollTop, plotHeight } = this.timeline;
    const { pinned, pinnedHeight, items } = layout;
    const from = scrollTop - 60;
    const to = scrollTop + plotHeight + 60;
    const inView = items.filter((item) => item.y + item.height > from && item.y < to);
    const state = this.timeline.state.get();
    const wanted = `${pinned.length} ${pinned.map((item) => item.key).join()} ${inView.map((item) => `${item.key}@${item.y}${item.folded ? "+" : ""}`).join()} ${state.rowHeight} ${state.pins.join()} ${this.timeline.context.info.generation}`;
    if (wanted !== this.drawnFor) {
      this.drawnFor = wanted;
      const had = document.activeElement instanceof HTMLElement && this.element.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      this.shown.clear();
      replace(this.pinned, pinned.map((item) => this.label(item, item.y)));
      replace(this.scrolled, inView.map((item) => this.label(item, item.y)));
      this.pinned.style.height = `${pinnedHeight}px`;
      this.clip.style.top = `${pinnedHeight}px`;
      if (had) this.shown.get(had)?.focus();
    }
    this.scrolled.style.transform = `translateY(${-scrollTop}px)`;
  }

  /**
   * @private
   * @param {Item} item
   * @param {number} y
   */
  label(item, y) {
    const pinned = this.timeline.state.get().pins.includes(item.key);
    const element = h("div", {
      class: `tl-label ${item.type} depth-${item.depth}${item.counter ? " counter" : ""}${pinned ? " is-pinned" : ""}`,
      role: "treeitem", tabindex: "-1", "aria-level": String(item.depth + 1), "aria-expanded": item.foldable && !item.pinned ? String(!item.folded) : null,
      "aria-label": item.label ? null : item.hint, title: [item.hint, item.detail].filter(Boolean).join("\n"), dataset: { key: item.key },
      style: { transform: `translateY(${y}px)`, height: `${item.height}px`, "padding-left": `${6 + 12 * item.depth}px` },
    },
      h("span", { class: "twisty", "aria-hidden": "true" }, item.foldable && icon(item.folded ? "right" : "down")),
      h(
        "span",
        { class: "words" },
        h("span", { class: "name" }, item.label),
        " ",
        item.detail && item.label ? h("span", { class: "detail" }, item.detail) : null,
      ),
      item.height >= 12 &&
        h(
          "button",
          {
            class: "pin",
            type: "button",
            tabindex: "-1",
            "aria-pressed": String(pinned),
            "aria-label": pinned ? `Unpin ${item.hint}` : `Pin ${item.hint}`,
            title: pinned ? "Unpin (P)" : "Pin to the top (P)",
          },
          icon("pin"),
        ),
    );
    this.shown.set(item.pinned ? `pin:${item.key}` : item.key, element);
    return element;
  }

  /** Marks the rows of the pointer and of the selection. */
  highlight() {
    const { hover, pointer, current } = this.timeline;
    const { selection } = this.timeline.state.get();
    const under = hover?.item.key ?? (pointer ? this.timeline.itemAt(pointer.y)?.key : null);
    const chosen = selection ? this.timeline.layout.byRow.get(selection.row)?.key : null;
    // One row is reached by Tab: the current one, or the first where that is out of sight.
    const stop = current !== null && this.shown.has(current) ? current : [...this.shown.keys()][0];
    for (const [key, element] of this.shown) {
      element.classList.toggle("hover", key === under);
      element.classList.toggle("current", key === (chosen ?? current));
      element.tabIndex = key === stop ? 0 : -1;
    }
  }

  /** @private @param {EventTarget | null} target @returns {Item | undefined} */
  itemOf(target) {
    const element = target instanceof Element ? target.closest(".tl-label") : null;
    const key = element instanceof HTMLElement ? element.dataset.key : undefined;
    return [...this.timeline.layout.items, ...this.timeline.layout.pinned].find((item) => item.key === key);
  }

  /** @private @param {MouseEvent} event */
  click(event) {
    const item = this.itemOf(event.target);
    if (!item || !(event.target instanceof Element)) return;
    this.timeline.current = item.key;
    if (event.target.closest(".pin")) this.timeline.pin(item.key);
    else if (item.foldable && (event.target.closest(".twisty") || (item.type === "group" && event.detail < 2))) this.timeline.toggle(item.node.path);
    this.timeline.invalidateOverlay();
  }

  /** @private @param {KeyboardEvent} event */
  key(event) {
    const item = this.itemOf(event.target);
    if (!item || event.altKey || event.ctrlKey || event.metaKey) return;
    const { items } = this.timeline.layout;
    const at = items.indexOf(item);
    const go = (/** @type {Item | undefined} */ next) => {
      if (!next) return;
      this.timeline.current = next.key;
      this.timeline.scrollTo(next);
      requestAnimationFrame(() => requestAnimationFrame(() => this.shown.get(next.key)?.focus()));
    };
    switch (event.key) {
      case "ArrowDown":
        go(items[at + 1]);
        break;
      case "ArrowUp":
        go(items[at - 1]);
        break;
      case "ArrowRight":
        if (item.foldable && item.folded) this.timeline.toggle(item.node.path);
        else go(items[at + 1]);
        break;
      case "ArrowLeft":
        if (item.foldable && !item.folded) this.timeline.toggle(item.node.path);
        else
          go(
            items
              .slice(0, at)
              .reverse()
              .find((other) => other.depth < item.depth),
          );
        break;
      case "Home":
        go(items[0]);
        break;
      case "End":
        go(items[items.length - 1]);
        break;
      case "Enter":
        this.timeline.current = item.key;
        this.timeline.select(null);
        void this.timeline.neighbour("next", false);
        break;
      default:
        return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
