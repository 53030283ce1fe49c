// @ts-check
/** A menu at a place of the page, for keys as for the pointer. */

import { h } from "./dom.js";

/**
 * @typedef {object} Entry
 * @property {string} title
 * @property {string} [keys]
 * @property {boolean} [chosen] where it is one of several of which one is chosen
 * @property {boolean} [off]
 * @property {() => void} run
 */

/**
 * @param {number} x CSS pixels
 * @param {number} y
 * @param {string} label
 * @param {Entry[]} entries
 */
export function openMenu(x, y, label, entries) {
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const buttons = entries.map((entry) => h("button", {
    type: "button", role: entry.chosen === undefined ? "menuitem" : "menuitemradio", "aria-checked": entry.chosen === undefined ? null : String(entry.chosen), disabled: entry.off,
    onclick: () => {
      close();
      entry.run();
    },
  }, h("span", { class: "tick", "aria-hidden": "true" }, entry.chosen ? "✓" : ""), h("span", { class: "menu-words" }, entry.title), entry.keys ? h("span", { class: "menu-keys" }, entry.keys) : null));
  const menu = h("div", { class: "menu at-pointer", role: "menu", "aria-label": label }, buttons);
  (document.getElementById("main") ?? document.body).append(menu);
  menu.style.left = `${Math.max(4, Math.min(x, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${Math.max(4, Math.min(y, innerHeight - menu.offsetHeight - 8))}px`;
  const outside = (/** @type {Event} */ event) => {
    if (!menu.contains(/** @type {Node} */ (event.target))) close();
  };
  function close() {
    menu.remove();
    removeEventListener("pointerdown", outside, true);
    before?.focus();
  }
  addEventListener("pointerdown", outside, true);
  menu.addEventListener("keydown", (event) => {
    const open = buttons.filter((button) => !button.disabled);
    const at = open.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    if (event.key === "Escape" || event.key === "Tab") close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") open[(at + (event.key === "ArrowDown" ? 1 : open.length - 1)) % open.length].focus();
    else if (event.key !== "Enter" && event.key !== " ") return;
    event.stopPropagation();
    if (event.key !== "Enter" && event.key !== " ") event.preventDefault();
  });
  (buttons.find((_, at) => entries[at].chosen) ?? buttons[0]).focus();
}
