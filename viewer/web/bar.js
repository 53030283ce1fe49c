// @ts-check
/** The bar on top: what is shown, whether it can be trusted, and what can be done with all of it. */

import { h, replace } from "./dom.js";
import { count } from "./format.js";
import { icon, iconButton } from "./icons.js";
import { openInPerfetto } from "./perfetto.js";
import { picture } from "./picture.js";
import { stepRange } from "./step_range.js";
import { copyText } from "./table.js";
import { href } from "./url.js";

const THEMES = /** @type {const} */ (["auto", "light", "dark"]);
const THEME_ICONS = /** @type {const} */ ({ auto: "auto", light: "sun", dark: "moon" });
/** Exports that the server makes, and what to call them. */
const FORMATS = /** @type {Record<string, string>} */ ({
  perfetto: "Perfetto trace", chrome: "Chrome trace (JSON)", tensorboard: "TensorBoard (torch-tb-profiler, .tar)", xplane: "TensorBoard (XProf, .tar)",
  parquet: "Parquet tables (.tar)", html: "Report (HTML)", analysis: "Analysis (JSON)",
});

/** @param {string} id */
const region = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

export class Bar {
  /** @param {import("./main.js").Page} page */
  constructor(page) {
    this.page = page;
    this.context = page.context;
    this.menu = h("div", { class: "menu", role: "dialog", "aria-label": "Export", hidden: true });
    this.export = iconButton("download", "Export", () => this.openMenu(), { "aria-haspopup": "dialog", "aria-expanded": "false" });
    /** @type {HTMLElement | null} */
    this.colours = null;
    /** What files are to hold, as the user wrote it: "3-5", "0,2". */
    this.part = { steps: "", ranks: "" };
    this.context.state.subscribe(["theme"], () => this.actions());
    // Files are of what the page is of, unless the menu says otherwise.
    this.context.state.subscribe(["steps"], ({ steps }) => (this.part.steps = steps));
    region("home").addEventListener("click", () => {
      history.pushState(null, "", location.pathname);
      location.reload();
    });
  }

  /** Shows what the recording says of itself. */
  mount() {
    const { info } = this.page;
    region("name").textContent = info.name;
    region("name").title = [info.source, Array.isArray(info.command) ? info.command.join(" ") : info.command].filter(Boolean).join("\n");
    replace(
      region("badges"),
      info.simulated && h("span", { class: "badge warn", title: "No GPU was used: times on the device come from a model, not from hardware" }, "Simulated GPU"),
      info.rank_of && h("a", { class: "badge", href: href({ rec: info.rank_of, tab: "ranks" }), title: "Back to the table of all ranks" }, "All ranks"),
      (info.imported || info.device === "imported") && h("span", { class: "badge", title: info.source }, "imported"),
    );
    const lost = typeof info.total_events === "number" && info.total_events > info.events;
    const losses = info.losses ?? [];
    replace(
      region("status"),
      this.page.live.element,
      (lost || losses.length > 0) &&
        h(
          "button",
          {
            class: "badge bad",
            type: "button",
            title: [
              lost ? `${count(info.events)} of ${count(info.total_events)} events are here` : "",
              ...losses.slice(0, 8).map((/** @type {any} */ loss) => loss.text ?? loss.what ?? ""),
            ]
              .filter(Boolean)
              .join("\n"),
            onclick: () => this.context.show("devices"),
          },
          icon("warning"),
          lost
            ? `${count(info.events)} of ${count(info.total_events)} events`
            : `${count(losses.length)} ${losses.length === 1 ? "loss" : "losses"}`,
        ),
    );
    this.actions();
  }

  /** @private */
  actions() {
    const { state } = this.context;
    const { theme } = state.get();
    const colours = iconButton(THEME_ICONS[theme], `Colours: ${theme === "auto" ? "as the system" : theme} (T)`, () => this.switchTheme());
    if (this.colours) {
      const had = this.colours === document.activeElement;
      this.colours.replaceWith(colours);
      if (had) colours.focus();
    } else replace(region("actions"), this.export, colours, iconButton("help", "Keys (?)", () => this.context.openHelp()), this.menu);
    this.colours = colours;
  }

  switchTheme() {
    const { theme } = this.context.state.get();
    this.context.state.set({ theme: THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] });
  }

  /** The time in view, and whether that is all there is. */
  visible() {
    const { info } = this.page;
    const { window: shown } = this.context.state.get();
    const range = { from: Math.max(info.begin, Math.floor(shown[0])), to: Math.min(info.end, Math.ceil(shown[1])) };
    return { range, whole: range.from <= info.begin && range.to >= info.end };
  }

  /**
   * What can be taken out.
   * @param {{range: {from: number, to: number}, whole: boolean}} [visible]
   * @returns {{title: string, group: string, run: () => void}[]}
   */
  commands({ range, whole } = this.visible()) {
    const { info, api } = this.page;
    const { query: chosen, words } = partOf(this.part);
    const download = (/** @type {string} */ format, /** @type {Record<string, any>} */ query) => {
      const link = h("a", { href: api.exportAddress(format, { ...query, ...chosen }), download: "" });
      document.body.append(link);
      link.click();
      link.remove();
    };
    const exports = /** @type {string[]} */ (info.capabilities?.exports ?? []);
    const formats = exports.filter((one) => one !== "csv");
    // Its own format is smaller and read faster; it reads Chrome's as well.
    const trace = exports.includes("perfetto") ? "perfetto" : "chrome";
    const perfetto = (/** @type {Record<string, any>} */ query) => {
      const title = [info.name, query.from === undefined && !words ? "" : "(part)", info.simulated ? "(simulated GPUs)" : ""].filter(Boolean).join(" ");
      void openInPerfetto({ address: api.exportAddress(trace, { ...query, ...chosen }), ui: info.capabilities.perfetto_ui, title });
    };
    return [
      { title: "Copy a link to this view", group: "Export", run: () => void this.copyLink() },
      { title: "Picture of the view (PNG)", group: "Export", run: () => void this.save() },
      ...(exports.includes(trace) && info.capabilities?.perfetto_ui ? [
        { title: `Open in Perfetto${words}`, group: "Perfetto", run: () => perfetto({}) },
        ...(whole ? [] : [{ title: `Open in Perfetto, visible range${words}`, group: "Perfetto", run: () => perfetto(range) }]),
      ] : []),
      ...formats.flatMap((format) => [
        { title: `${FORMATS[format] ?? format}${words}`, group: "Files", run: () => download(format, {}) },
        ...(format === "analysis" || whole
          ? []
          : [{ title: `${FORMATS[format] ?? format}, visible range${words}`, group: "Files", run: () => download(format, range) }]),
      ]),
      ...(exports.includes("csv")
        ? (info.capabilities?.tables ?? []).map((/** @type {string} */ table) => ({
            title: `Table of ${table} (CSV)${words}`,
            group: "Tables",
            run: () => download("csv", { table }),
          }))
        : []),
    ];
  }

  /** @private */
  async copyLink() {
    await copyText(location.origin + location.pathname + this.page.url.current());
    this.context.announce("The link is on the clipboard");
    this.export.classList.add("done");
    setTimeout(() => this.export.classList.remove("done"), 1200);
  }

  /** Saves a picture of the timeline. @private */
  async save() {
    const { timeline } = this.page;
    if (!timeline) return;
    const blob = await picture(timeline);
    if (!blob) return;
    const address = URL.createObjectURL(blob);
    const link = h("a", { href: address, download: `${this.page.info.name.replace(/[^\w.-]+/g, "-")}.png` });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  /** @private */
  openMenu() {
    const { menu } = this;
    const close = () => {
      menu.hidden = true;
      this.export.setAttribute("aria-expanded", "false");
      removeEventListener("pointerdown", outside, true);
    };
    const outside = (/** @type {Event} */ event) => {
      const at = /** @type {Node} */ (event.target);
      if (!menu.contains(at) && !this.export.contains(at)) close();
    };
    if (!menu.hidden) return close();
    this.fillMenu(close);
    menu.hidden = false;
    this.export.setAttribute("aria-expanded", "true");
    menu.querySelector("button")?.focus();
    addEventListener("pointerdown", outside, true);
    menu.onkeydown = (event) => {
      if (event.target instanceof HTMLInputElement && !["Escape", "ArrowDown", "ArrowUp"].includes(event.key)) return event.stopPropagation();
      const entries = /** @type {HTMLElement[]} */ ([...menu.querySelectorAll("button, input")]);
      const at = entries.indexOf(/** @type {HTMLElement} */ (document.activeElement));
      if (event.key === "Escape") {
        close();
        this.export.focus();
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp")
        entries[(at + (event.key === "ArrowDown" ? 1 : entries.length - 1)) % entries.length].focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
  }

  /** What the menu has. @private @param {ReturnType<Bar["visible"]>} visible @returns {{title: string, group: string, run: () => void}[]} */
  entries(visible) {
    const all = this.commands(visible);
    const shown = all.filter((command) => command.group !== "Tables");
    const tables = all.filter((command) => command.group === "Tables");
    if (tables.length > 0)
      shown.push({
        title: `Tables (CSV)${partOf(this.part).words} …`,
        group: "Tables",
        run: () => this.page.modules.openPalette?.(tables),
      });
    return shown;
  }

  /** @private @param {() => void} close */
  fillMenu(close) {
    let group = "";
    // What the recording grows by meanwhile changes nothing that is offered here.
    const visible = this.visible();
    replace(this.menu, this.entries(visible).map((command, at) => {
      const line = command.group !== group && group !== "" ? [h("hr", {}), group === "Export" ? this.fields(visible) : null] : null;
      group = command.group;
      return [line, h("button", { type: "button", onclick: () => { close(); this.entries(visible)[at].run(); } }, command.title)];
    }));
  }

  /** Which steps and ranks files are to hold. @private @param {ReturnType<Bar["visible"]>} visible */
  fields(visible) {
    const { info } = this.page;
    const steps = info.steps ?? [];
    const ranks = [...new Set((info.bands ?? []).map((/** @type {any} */ band) => band.rank))].filter((rank) => typeof rank === "number");
    const field = (/** @type {"steps" | "ranks"} */ what, /** @type {string} */ title, /** @type {string} */ all) => {
      const input = h("input", {
        type: "text",
        value: this.part[what],
        placeholder: all,
        spellcheck: "false",
        autocomplete: "off",
        inputmode: "numeric",
        "aria-label": `Only these ${what}, like ${all}`,
      });
      const told = () => {
        this.part[what] = input.value;
        const wrong = input.value.trim() !== "" && partOf({ steps: "", ranks: "", [what]: input.value }).words === "";
        input.setAttribute("aria-invalid", String(wrong));
        // The entries say what they save.
        const entries = this.entries(visible);
        this.menu.querySelectorAll("button").forEach((button, at) => (button.textContent = entries[at].title));
      };
      input.addEventListener("input", told);
      return h("label", {}, title, input);
    };
    if (steps.length < 2 && ranks.length < 2) return null;
    return h("div", { class: "menu-fields", role: "group", "aria-label": "Only a part" },
      steps.length > 1 && field("steps", "Steps", `${steps[0].number}-${steps[steps.length - 1].number}`),
      ranks.length > 1 && field("ranks", "Ranks", `${Math.min(...ranks)}-${Math.max(...ranks)}`));
  }
}

/**
 * Steps and ranks as the server takes them, and in words; what can't be understood is not asked for.
 * @param {{steps: string, ranks: string}} part
 */
export function partOf({ steps, ranks }) {
  const tidy = (/** @type {string} */ text) => text.trim().replace(/\s*(?:\.\.|–|-)\s*/g, "-").replace(/[\s,;]+/g, ",");
  /** @type {Record<string, string>} */
  const query = {};
  const words = [];
  const range = stepRange(steps);
  if (range !== null) {
    query.steps = range;
    words.push(`${range.includes("-") ? "steps" : "step"} ${range}`);
  }
  const wanted = tidy(ranks);
  if (/^\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*$/.test(wanted)) {
    query.ranks = wanted;
    words.push(/^\d+$/.test(wanted) ? `rank ${wanted}` : `ranks ${wanted}`);
  }
  return { query, words: words.length ? `, ${words.join(" of ")}` : "" };
}
