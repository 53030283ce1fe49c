// @ts-check
/** The bar on top: what is shown, whether it can be trusted, and what can be done with all of it. */

import { h, replace } from "./dom.js";
import { count } from "./format.js";
import { icon, iconButton } from "./icons.js";

const THEMES = /** @type {const} */ (["auto", "light", "dark"]);
const THEME_ICONS = /** @type {const} */ ({ auto: "auto", light: "sun", dark: "moon" });

export class Bar {
  /**
   * @param {import("./main.js").Context} context
   * @param {any} panels
   */
  constructor(context, panels) {
    this.context = context;
    this.panels = panels;
    context.state.subscribe(["theme"], () => this.actions());
  }

  /** @param {any} info */
  mount(info) {
    const name = /** @type {HTMLElement} */ (document.getElementById("name"));
    name.textContent = info.name;
    name.title = info.source ?? "";
    replace(
      /** @type {HTMLElement} */ (document.getElementById("badges")),
      info.simulated && h("span", { class: "badge warn", title: "No GPU was used: times on the device come from a model" }, "Simulated GPU"),
      info.device === "imported" && h("span", { class: "badge", title: info.source }, "imported"),
    );
    replace(
      /** @type {HTMLElement} */ (document.getElementById("status")),
      info.losses?.length > 0 && h("button", { class: "badge bad", type: "button", onclick: () => this.context.show("devices") }, icon("warning"), `${count(info.events)} of ${count(info.total_events)} events`),
    );
    this.actions();
  }

  actions() {
    const { state } = this.context;
    const { theme } = state.get();
    const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    replace(
      /** @type {HTMLElement} */ (document.getElementById("actions")),
      iconButton(THEME_ICONS[theme], `Theme: ${theme}`, () => state.set({ theme: next })),
      iconButton("help", "Keys (?)", () => this.panels.openHelp?.()),
    );
  }
}
