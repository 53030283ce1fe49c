// @ts-check
/** A menu at a place of the page or under a button, for keys as for the pointer. */

import { h } from "./dom.js";

/**
 * @typedef {object} Entry
 * @property {string} title
 * @property {string} [keys]
 * @property {boolean} [chosen] where it is one of several of which one is chosen
 * @property {boolean} [checked] where it is something that is so or not
 * @property {boolean} [off]
 * @property {() => void} run
 */

/** A line between entries. */
export const LINE = null;

/** What closes the menu that is open. @type {(() => void) | null} */
let closeOpen = null;

/** @param {Entry} entry @param {() => void} close */
function button(entry, close) {
  const { title, keys, chosen, checked, off } = entry;
  const role = checked !== undefined ? "menuitemcheckbox" : chosen !== undefined ? "menuitemradio" : "menuitem";
  const isSo = checked ?? chosen;
  const run = () => {
    close();
    entry.run();
  };
  return h("button", { type: "button", role, "aria-checked": isSo === undefined ? null : String(isSo), disabled: off, onclick: run },
    h("span", { class: "tick", "aria-hidden": "true" }, isSo ? "✓" : ""),
    h("span", { class: "menu-words" }, title),
    keys ? h("span", { class: "menu-keys" }, keys) : null);
}

/**
 * @param {number} x CSS pixels
 * @param {number} y
 * @param {string} label
 * @param {(Entry | null)[]} entries with lines between them
 * @param {HTMLElement} [anchor] the button that opened it
 */
export function openMenu(x, y, label, entries, anchor) {
  closeOpen?.();
  const before = /** @type {HTMLElement | null} */ (document.activeElement);
  const parts = entries.map((entry) => (entry ? button(entry, close) : h("hr", {})));
  const menu = h("div", { class: "menu at-pointer", role: "menu", "aria-label": label }, parts);
  (document.getElementById("main") ?? document.body).append(menu);
  menu.style.left = `${Math.max(4, Math.min(x, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${Math.max(4, Math.min(y, innerHeight - menu.offsetHeight - 8))}px`;
  anchor?.setAttribute("aria-expanded", "true");
  const outside = (/** @type {Event} */ event) => {
    const at = /** @type {Node} */ (event.target);
    if (!menu.contains(at) && !anchor?.contains(at)) close();
  };
  function close() {
    menu.remove();
    removeEventListener("pointerdown", outside, true);
    anchor?.setAttribute("aria-expanded", "false");
    closeOpen = null;
    (anchor ?? before)?.focus();
  }
  closeOpen = close;
  addEventListener("pointerdown", outside, true);
  const open = /** @type {HTMLButtonElement[]} */ ([...menu.querySelectorAll("button:not(:disabled)")]);
  menu.addEventListener("keydown", (event) => {
    const at = open.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    if (event.key === "Escape" || event.key === "Tab") close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") open[(at + (event.key === "ArrowDown" ? 1 : open.length - 1)) % open.length].focus();
    else if (event.key === "Home" || event.key === "End") open[event.key === "Home" ? 0 : open.length - 1].focus();
    else if (event.key !== "Enter" && event.key !== " ") return;
    event.stopPropagation();
    if (event.key !== "Enter" && event.key !== " ") event.preventDefault();
  });
  // A list to choose one of begins at the one that is chosen.
  const chosen = entries.every((entry) => entry?.chosen !== undefined || entry?.off) && open.find((one) => one.ariaChecked === "true");
  (chosen || open[0])?.focus();
}

/**
 * Opens a menu under a button, or closes it where it is open.
 * @param {HTMLElement} anchor
 * @param {string} label
 * @param {(Entry | null)[]} entries
 */
export function toggleMenu(anchor, label, entries) {
  if (anchor.getAttribute("aria-expanded") === "true") return closeOpen?.();
  const box = anchor.getBoundingClientRect();
  openMenu(box.left, box.bottom + 4, label, entries, anchor);
}
