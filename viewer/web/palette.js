// @ts-check
/** All commands in one list: type a few letters, press Enter. */

import { h, replace } from "./dom.js";
import { show } from "./help.js";

/** @typedef {{title: string, group?: string, keys?: string, run: () => void}} Command */

/**
 * How well letters fit a text: higher is better, negative not at all. Letters stand in order; those that begin words
 * or follow each other count more.
 * @param {string} text
 * @param {string} letters
 */
export function fit(text, letters) {
  const wanted = letters.toLowerCase().replace(/\s+/g, "");
  if (!wanted) return 0;
  const low = text.toLowerCase();
  const whole = low.indexOf(letters.toLowerCase().trim());
  if (whole >= 0) return 1000 - whole - text.length / 100 + (whole === 0 || low[whole - 1] === " " ? 500 : 0);
  let score = 0;
  let from = 0;
  let before = -2;
  for (const letter of wanted) {
    const at = low.indexOf(letter, from);
    if (at < 0) return -1;
    score += at === before + 1 ? 8 : at === 0 || low[at - 1] === " " ? 6 : 1;
    before = at;
    from = at + 1;
  }
  return score - text.length / 100;
}

/** @type {HTMLDialogElement | null} */
let dialog = null;

/** @param {Command[]} commands */
export function openPalette(commands) {
  if (dialog?.open) {
    dialog.close();
    return;
  }
  /** @type {Command[]} */
  let found = [];
  let chosen = 0;
  const list = h("ul", { class: "p-commands", role: "listbox", id: "p-commands", "aria-label": "Commands" });
  const input = h("input", {
    type: "text",
    class: "p-command",
    placeholder: "Type a command",
    "aria-label": "Command",
    role: "combobox",
    "aria-expanded": "true",
    "aria-controls": "p-commands",
    autocomplete: "off",
    spellcheck: "false",
  });
  const made = h("dialog", { class: "p-dialog p-palette", "aria-label": "All commands" }, input, list);

  const run = (/** @type {number} */ index) => {
    const command = found[index];
    made.close();
    command?.run();
  };
  const choose = (/** @type {number} */ index) => {
    chosen = found.length ? (index + found.length) % found.length : 0;
    [...list.querySelectorAll("[role=option]")].forEach((item, at) => {
      item.setAttribute("aria-selected", String(at === chosen));
      if (at === chosen) {
        item.scrollIntoView({ block: "nearest" });
        input.setAttribute("aria-activedescendant", item.id);
      }
    });
  };
  const update = () => {
    const text = input.value;
    found = commands
      .map((command, index) => ({ command, index, score: Math.max(fit(command.title, text), fit(`${command.group ?? ""} ${command.title}`, text) - 1) }))
      .filter(({ score }) => score >= 0)
      .sort((a, b) => b.score - a.score || a.index - b.index)
      .map(({ command }) => command);
    const parts = [];
    let group;
    for (const [index, command] of found.entries()) {
      if (!text.trim() && command.group && command.group !== group) parts.push(h("li", { class: "p-group", role: "presentation" }, command.group));
      group = command.group;
      parts.push(
        h(
          "li",
          { role: "option", id: `p-command-${index}`, onclick: () => run(index), onpointermove: () => index !== chosen && choose(index) },
          h("span", null, command.title),
          text.trim() && command.group ? h("span", { class: "p-faint" }, ` ${command.group}`) : null,
          h("span", { class: "p-spacer" }),
          command.keys ? command.keys.split(" + ").map((key) => h("kbd", null, key)) : null,
        ),
      );
    }
    replace(list, parts.length ? parts : h("li", { class: "p-empty" }, "No command fits."));
    choose(0);
  };
  input.addEventListener("input", update);
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown") choose(chosen + 1);
    else if (event.key === "ArrowUp") choose(chosen - 1);
    else if (event.key === "Enter") run(chosen);
    else if ((event.ctrlKey || event.metaKey) && event.code === "KeyK") made.close();
    else return;
    event.preventDefault();
  });
  show(made);
  dialog = made;
  update();
  input.focus();
}
