// @ts-check
/** The bar on top: what is shown, whether it can be trusted, and what can be done with all of it. */

import { h, replace } from "./dom.js";
import { count } from "./format.js";
import { icon, iconButton } from "./icons.js";
import { openInPerfetto } from "./perfetto.js";
import { picture } from "./picture.js";
import { copyText } from "./table.js";

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
    this.menu = h("div", { class: "menu", role: "menu", hidden: true });
    this.context.state.subscribe(["theme"], () => this.actions());
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
      (info.imported || info.device === "imported") && h("span", { class: "badge", title: info.source }, "imported"),
    );
    const lost = typeof info.total_events === "number" && info.total_events > info.events;
    const losses = info.losses ?? [];
    replace(
      region("status"),
      this.page.live.element,
      (lost || losses.length > 0) && h("button", {
        class: "badge bad", type: "button", title: [lost ? `${count(info.events)} of ${count(info.total_events)} events are here` : "", ...losses.slice(0, 8).map((/** @type {any} */ loss) => loss.text ?? loss.what ?? "")].filter(Boolean).join("\n"),
        onclick: () => this.context.show("devices"),
      }, icon("warning"), lost ? `${count(info.events)} of ${count(info.total_events)} events` : `${count(losses.length)} ${losses.length === 1 ? "loss" : "losses"}`),
    );
    this.actions();
  }

  /** @private */
  actions() {
    const { state } = this.context;
    const { theme } = state.get();
    this.export = iconButton("download", "Export", () => this.openMenu(), { "aria-haspopup": "menu", "aria-expanded": "false" });
    replace(
      region("actions"),
      this.export,
      iconButton(THEME_ICONS[theme], `Colours: ${theme === "auto" ? "as the system" : theme} (T)`, () => this.switchTheme()),
      iconButton("help", "Keys (?)", () => this.context.openHelp()),
      this.menu,
    );
  }

  switchTheme() {
    const { theme } = this.context.state.get();
    this.context.state.set({ theme: THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] });
  }

  /** What can be taken out. @returns {{title: string, group: string, run: () => void}[]} */
  commands() {
    const { info, api } = this.page;
    const { window: shown } = this.context.state.get();
    const range = { from: Math.max(info.begin, Math.floor(shown[0])), to: Math.min(info.end, Math.ceil(shown[1])) };
    const whole = range.from <= info.begin && range.to >= info.end;
    const download = (/** @type {string} */ format, /** @type {Record<string, any>} */ query) => {
      const link = h("a", { href: api.exportAddress(format, query), download: "" });
      document.body.append(link);
      link.click();
      link.remove();
    };
    const exports = /** @type {string[]} */ (info.capabilities?.exports ?? []);
    const formats = exports.filter((one) => one !== "csv");
    // Its own format is smaller and read faster; it reads Chrome's as well.
    const trace = exports.includes("perfetto") ? "perfetto" : "chrome";
    const perfetto = (/** @type {Record<string, any>} */ query) => {
      const title = [info.name, query.from === undefined ? "" : "(part)", info.simulated ? "(simulated GPUs)" : ""].filter(Boolean).join(" ");
      void openInPerfetto({ address: api.exportAddress(trace, query), ui: info.capabilities.perfetto_ui, title });
    };
    return [
      { title: "Copy a link to this view", group: "Export", run: () => void this.copyLink() },
      { title: "Picture of the view (PNG)", group: "Export", run: () => void this.save() },
      ...(exports.includes(trace) && info.capabilities?.perfetto_ui ? [
        { title: "Open in Perfetto", group: "Perfetto", run: () => perfetto({}) },
        ...(whole ? [] : [{ title: "Open in Perfetto, visible range", group: "Perfetto", run: () => perfetto(range) }]),
      ] : []),
      ...formats.flatMap((format) => [
        { title: FORMATS[format] ?? format, group: "Files", run: () => download(format, {}) },
        ...(format === "analysis" || whole ? [] : [{ title: `${FORMATS[format] ?? format}, visible range`, group: "Files", run: () => download(format, range) }]),
      ]),
      ...(exports.includes("csv") ? (info.capabilities?.tables ?? []).map((/** @type {string} */ table) => ({ title: `Table of ${table} (CSV)`, group: "Tables", run: () => download("csv", { table }) })) : []),
    ];
  }

  /** @private */
  async copyLink() {
    await copyText(location.origin + location.pathname + this.page.url.current());
    this.context.announce("The link is on the clipboard");
    if (this.export) {
      this.export.classList.add("done");
      setTimeout(() => this.export?.classList.remove("done"), 1200);
    }
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
      this.export?.setAttribute("aria-expanded", "false");
      removeEventListener("pointerdown", outside, true);
    };
    const outside = (/** @type {Event} */ event) => {
      const at = /** @type {Node} */ (event.target);
      if (!menu.contains(at) && !this.export?.contains(at)) close();
    };
    if (!menu.hidden) return close();
    let group = "";
    const all = this.commands();
    const shown = all.filter((command) => command.group !== "Tables");
    if (shown.length < all.length) shown.push({ title: "Tables (CSV) …", group: "Tables", run: () => this.page.modules.openPalette?.(all.filter((command) => command.group === "Tables")) });
    replace(menu, shown.map((command) => {
      const line = command.group !== group && group !== "" ? h("hr", {}) : null;
      group = command.group;
      return [line, h("button", { type: "button", role: "menuitem", onclick: () => { close(); command.run(); } }, command.title)];
    }));
    menu.hidden = false;
    this.export?.setAttribute("aria-expanded", "true");
    menu.querySelector("button")?.focus();
    addEventListener("pointerdown", outside, true);
    menu.onkeydown = (event) => {
      const entries = /** @type {HTMLElement[]} */ ([...menu.querySelectorAll("button")]);
      const at = entries.indexOf(/** @type {HTMLElement} */ (document.activeElement));
      if (event.key === "Escape") {
        close();
        this.export?.focus();
      } else if (event.key === "ArrowDown" || event.key === "ArrowUp") entries[(at + (event.key === "ArrowDown" ? 1 : entries.length - 1)) % entries.length].focus();
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
  }
}
