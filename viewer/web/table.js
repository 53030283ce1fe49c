// @ts-check
/** Tables that sort, filter, page, and leave as CSV: real tables, usable with the keyboard alone. */

import { h, replace } from "./dom.js";
import { count, csv } from "./format.js";
import { Tree } from "./tree.js";

/** @typedef {string | number | boolean | null | undefined} Value */

/**
 * @template Row
 * @typedef {object} Column
 * @property {string} key name of the column, in CSV and for sorting
 * @property {string} title what stands above it
 * @property {string} [hint] what it means, where the title can't say it all
 * @property {(row: Row) => Value} value what is sorted by and what goes into CSV
 * @property {(row: Row) => string} [text] how it is written; else the value itself
 * @property {(row: Row) => Node | string} [cell] what is shown, where text is not enough
 * @property {(row: Row) => number | null} [bar] from 0 to 1: a bar behind the text
 * @property {boolean} [number] right-aligned, greatest first when it is sorted by
 * @property {boolean} [wide] takes the room that is left, cut where it ends
 * @property {boolean} [fixed] can't be sorted by
 * @property {string} [order] what a server calls it that sorts
 * @property {1 | 2 | 3} [spare] goes in narrow windows: 3 first
 */

/**
 * @template Row
 * @typedef {object} Options
 * @property {Column<Row>[]} columns
 * @property {string} name of the table, and of its file
 * @property {Row[]} [rows] all rows, here
 * @property {(query: {sort: string, order: "asc" | "desc", offset: number, limit: number, filter: string}) => Promise<{total: number, rows: Row[]}>} [source]
 *   rows of a server that sorts and pages itself, instead of `rows`
 * @property {{key: string, descending: boolean}} [sort]
 * @property {(row: Row) => void} [open] what choosing a row does
 * @property {(row: Row) => string} [openHint] what it would do, in words
 * @property {(row: Row) => string} [search] text that the filter looks into; without it there is no filter
 * @property {string} [searchHint]
 * @property {string} [empty] what is said where there are no rows
 * @property {(row: Row) => string | null} [rowClass]
 * @property {Node[]} [tools] more beside the filter
 * @property {boolean} [plain] no tools at all: for a handful of rows
 * @property {number} [pageRows]
 * @property {Kept} [keep] where sorting, filter and page are kept while the table is made anew
 * @property {(sort: {key: string, descending: boolean}) => void} [resorted] is told by what the user sorts
 * @property {import("./tree.js").TreeOptions<Row>} [tree] of `rows`: they lie in each other
 */

/** @typedef {{sort?: {key: string, descending: boolean}, filter?: string, page?: number}} Kept */

/** Above so many rows a table has pages. */
export const PAGED_ABOVE = 500;
const PAGE_ROWS = 200;
/** A server's table is written to CSV in pages of this size, at most so many rows. */
const SERVER_PAGE = 1000;
const SERVER_ROWS = 200_000;

/**
 * Orders rows by a column: numbers as numbers, text by its digits and letters; what is not known always comes last.
 * @template Row
 * @param {Row[]} rows
 * @param {(row: Row) => Value} value
 * @param {boolean} descending
 * @returns {Row[]}
 */
export function sorted(rows, value, descending) {
  const keys = rows.map((row, index) => ({ row, index, key: value(row) }));
  const absent = (/** @type {Value} */ key) => key === null || key === undefined || key === "" || Number.isNaN(key);
  const order = compare();
  keys.sort((a, b) => {
    const gone = Number(absent(a.key)) - Number(absent(b.key));
    if (gone !== 0) return gone;
    const by = absent(a.key) ? 0 : order(a.key, b.key);
    return (descending ? -by : by) || a.index - b.index;
  });
  return keys.map(({ row }) => row);
}

/** @returns {(a: any, b: any) => number} */
function compare() {
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  return (a, b) => (typeof a === "string" || typeof b === "string" ? collator.compare(String(a), String(b)) : Number(a) - Number(b));
}

/**
 * Whether every word of the filter is in the text; capital letters are small ones.
 * @param {string} text
 * @param {string} filter
 */
export function matches(text, filter) {
  const low = text.toLowerCase();
  return filter.toLowerCase().split(/\s+/).every((word) => low.includes(word));
}

/**
 * Puts text on the clipboard; where the page may not (http beyond loopback), by way of a selection.
 * @param {string} text
 * @param {Element} [place] where that selection may be
 */
export async function copyText(text, place = document.body) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = h("textarea", { class: "p-offscreen", "aria-hidden": "true" });
    area.value = text;
    place.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/**
 * Gives text to the browser to save.
 * @param {string} name
 * @param {string} text
 * @param {string} [type]
 */
export function download(name, text, type = "text/csv") {
  const address = URL.createObjectURL(new Blob([text], { type: type + ";charset=utf-8" }));
  const link = h("a", { href: address, download: name.replace(/[^\w.-]+/g, "-") });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/**
 * Says on a button for a moment that it did what it says.
 * @param {HTMLButtonElement} button
 * @param {string} said
 */
export function confirmOn(button, said) {
  const before = button.textContent;
  button.textContent = said;
  button.disabled = true;
  setTimeout(() => {
    button.textContent = before;
    button.disabled = false;
  }, 1200);
}

/**
 * @template Row
 * @param {Options<Row>} options
 */
export function table(options) {
  const { columns } = options;
  let rows = options.rows ?? [];
  const keep = options.keep ?? {};
  let sort = keep.sort ?? options.sort ?? { key: "", descending: false };
  let filter = keep.filter ?? "";
  let page = keep.page ?? 0;
  /** @type {Row[]} */ let shown = [];
  let total = rows.length;
  let asked = 0;
  const pageRows = options.pageRows ?? PAGE_ROWS;

  const body = h("tbody", null);
  const tree = options.tree ? new Tree(rows, options.tree) : null;
  const headers = columns.map((column) => header(column));
  const head = h("thead", null, h("tr", null, headers));
  const counted = h("span", { class: "p-faint p-counted", "aria-live": "polite" });
  const pager = h("div", { class: "p-pager" });
  const grid = h("table", { class: "p-table", role: tree ? "treegrid" : null, "aria-label": options.name }, head, body);
  const scroll = h("div", { class: "p-scroll", tabindex: 0, role: "region", "aria-label": options.name }, grid);
  const element = h("div", { class: "p-tablebox" }, tools(), scroll, pager);

  /** @param {Column<Row>} column */
  function header(column) {
    const classes = [column.number && "number", column.wide && "wide", column.spare && `spare${column.spare}`].filter(Boolean).join(" ");
    if (column.fixed)
      return h(
        "th",
        { scope: "col", class: classes, title: column.hint },
        column.title || h("span", { class: "unseen" }, column.hint || column.key),
      );
    const cell = h("th", { scope: "col", class: classes, "aria-sort": "none" });
    cell.append(
      h(
        "button",
        { type: "button", class: "p-sort", title: column.hint, onclick: () => sortBy(column) },
        h("span", null, column.title || h("span", { class: "unseen" }, column.hint || column.key)),
        h("span", { class: "p-arrow", "aria-hidden": "true" }),
      ),
    );
    return cell;
  }

  /** @param {Column<Row>} column */
  function sortBy(column) {
    sort = { key: column.key, descending: sort.key === column.key ? !sort.descending : Boolean(column.number) };
    page = 0;
    options.resorted?.(sort);
    update();
  }

  function tools() {
    if (options.plain) return null;
    const parts = [];
    if (options.search) {
      const input = h("input", {
        type: "search",
        class: "p-filter",
        placeholder: options.searchHint ?? "Filter",
        "aria-label": `Filter ${options.name}`,
        spellcheck: "false",
        value: filter,
      });
      let timer = 0;
      input.addEventListener("input", () => {
        clearTimeout(timer);
        timer = window.setTimeout(() => {
          filter = input.value.trim();
          page = 0;
          update();
        }, options.source ? 250 : 60);
      });
      input.addEventListener("keydown", (event) => event.stopPropagation());
      parts.push(input);
    }
    const copy = h("button", { type: "button", class: "p-button", title: "Copies the rows, as text with tabs" }, "Copy");
    copy.addEventListener("click", async () => {
      await copyText(await written("\t"));
      confirmOn(copy, "Copied");
    });
    const save = h("button", { type: "button", class: "p-button", title: "Saves the rows as CSV, times in nanoseconds" }, "CSV");
    save.addEventListener("click", async () => {
      save.disabled = true;
      download(`${options.name}.csv`, await written(","));
      save.disabled = false;
    });
    return h("div", { class: "p-tools" }, parts, options.tools, counted, h("span", { class: "p-spacer" }), copy, save);
  }

  /** All rows that the filter leaves, in their order. @param {"," | "\t"} between */
  async function written(between) {
    const all = options.source ? await everything() : ordered(true);
    const names = columns.map((column) => column.key);
    const values = all.map((row) => columns.map((column) => column.value(row)));
    if (tree) {
      names.unshift("level");
      values.forEach((row, at) => row.unshift(tree.levelOf(all[at])));
    }
    if (between === ",") return csv(names, values);
    const clean = (/** @type {Value} */ value) => String(value ?? "").replace(/[\t\r\n]+/g, " ");
    return [names, ...values].map((row) => row.map(clean).join("\t")).join("\n") + "\n";
  }

  async function everything() {
    const all = [];
    for (;;) {
      const part = await /** @type {NonNullable<typeof options.source>} */ (options.source)(query(all.length, SERVER_PAGE));
      all.push(...part.rows);
      if (part.rows.length === 0 || all.length >= Math.min(part.total, SERVER_ROWS)) return all;
    }
  }

  /** @param {number} offset @param {number} limit */
  function query(offset, limit) {
    const column = columns.find((candidate) => candidate.key === sort.key);
    return { sort: column?.order ?? sort.key, order: /** @type {"asc" | "desc"} */ (sort.descending ? "desc" : "asc"), offset, limit, filter };
  }

  /** @param {boolean} [closed] of a tree, also what is in rows that are closed */
  function ordered(closed = false) {
    const search = options.search;
    const kept = filter && search ? (/** @type {Row} */ row) => matches(search(row), filter) : null;
    const column = columns.find((candidate) => candidate.key === sort.key);
    const order = (/** @type {Row[]} */ some) => (column ? sorted(some, column.value, sort.descending) : some);
    if (tree) return tree.shown(order, { kept, all: closed });
    return order(kept ? rows.filter(kept) : rows);
  }

  async function update() {
    const mine = ++asked;
    Object.assign(keep, { sort, filter, page });
    if (options.source) {
      element.classList.add("p-waiting");
      try {
        const part = await options.source(query(page * pageRows, pageRows));
        if (mine !== asked) return;
        total = part.total;
        shown = part.rows;
        draw(total, total > pageRows);
      } catch (error) {
        if (mine !== asked) return;
        replace(body, h("tr", null, h("td", { colspan: columns.length, class: "p-empty" }, String(/** @type {Error} */ (error).message ?? error))));
        replace(pager);
      } finally {
        if (mine === asked) element.classList.remove("p-waiting");
      }
      return;
    }
    const all = ordered();
    total = all.length;
    const paged = total > PAGED_ABOVE;
    if (!paged) page = 0;
    page = Math.min(page, Math.max(0, Math.ceil(total / pageRows) - 1));
    shown = paged ? all.slice(page * pageRows, (page + 1) * pageRows) : all;
    draw(total, paged);
  }

  /** @param {number} all @param {boolean} paged */
  function draw(all, paged) {
    headers.forEach((cell, index) => {
      if (!columns[index].fixed) cell.setAttribute("aria-sort", columns[index].key !== sort.key ? "none" : sort.descending ? "descending" : "ascending");
    });
    const lines = shown.map((row) => line(row));
    if (!lines.length)
      lines.push(
        h(
          "tr",
          null,
          h(
            "td",
            { colspan: columns.length, class: "p-empty" },
            filter ? "Nothing matches the filter." : (options.empty ?? "Nothing here."),
          ),
        ),
      );
    replace(body, lines);
    tree?.mark(body);
    const of = options.source || all === rows.length ? "" : ` of ${count(rows.length)}`;
    counted.textContent = `${count(all)}${of} ${all === 1 && !of ? "row" : "rows"}`;
    replace(pager, paged ? pages(all) : null);
    scroll.classList.toggle("p-long", shown.length > 16);
  }

  /** @param {number} all */
  function pages(all) {
    const last = Math.max(0, Math.ceil(all / pageRows) - 1);
    const go = (/** @type {number} */ to) => () => {
      page = Math.max(0, Math.min(last, to));
      scroll.scrollTop = 0;
      update();
    };
    const button = (/** @type {string} */ text, /** @type {string} */ label, /** @type {number} */ to, /** @type {boolean} */ off) =>
      h("button", { type: "button", class: "p-button", "aria-label": label, disabled: off, onclick: go(to) }, text);
    return [
      button("«", "First page", 0, page === 0),
      button("‹", "Page before", page - 1, page === 0),
      h("span", { class: "p-faint" }, `${count(page * pageRows + 1)} to ${count(Math.min(all, (page + 1) * pageRows))} of ${count(all)}`),
      button("›", "Next page", page + 1, page >= last),
      button("»", "Last page", last, page >= last),
    ];
  }

  /** @param {Row} row */
  function line(row) {
    const open = options.open;
    const classes = [open && "p-opens", options.rowClass?.(row)].filter(Boolean).join(" ");
    const element = h("tr", { class: classes || null });
    columns.forEach((column, index) => {
      const text = column.text ? column.text(row) : plain(column.value(row));
      /** @type {Node | string} */
      let content = column.cell ? column.cell(row) : text;
      if (index === 0 && tree) content = tree.write(row, element, content);
      else if (index === 0 && open) content = h("button", { type: "button", class: "p-open", title: options.openHint?.(row) }, content);
      const cell = h("td", {
        class: [column.number && "number", column.wide && "wide", column.spare && `spare${column.spare}`].filter(Boolean).join(" ") || null,
        title: column.wide ? plain(column.value(row)).slice(0, 2000) : null,
      });
      const bar = column.bar?.(row);
      if (column.bar) cell.classList.add("p-barred");
      if (typeof bar === "number" && bar > 0.008) {
        cell.append(
          h("span", { class: "p-cellbar", "aria-hidden": "true", style: { width: `${Math.min(100, bar * 100).toFixed(2)}%` } }),
          h("span", { class: "p-cellvalue" }, content),
        );
      } else cell.append(content);
      element.append(cell);
    });
    if (open) {
      element.addEventListener("click", (event) => {
        const target = /** @type {Element} */ (event.target);
        if (target.closest("a, button:not(.p-open), input") || String(getSelection()).length) return;
        open(row);
      });
    }
    return element;
  }

  tree?.listen(body, update);
  if (options.rows || options.source) update();
  return {
    element,
    /** @param {Row[]} next */
    setRows(next) {
      rows = next;
      tree?.take(next);
      update();
    },
    refresh: update,
    /** The first page again: what the source gives has changed. */
    restart() {
      page = 0;
      update();
    },
    /** Goes to a row, also where the filter or a closed one hides it. @param {Row} row */
    reveal(row) {
      tree?.openTo(row);
      if (filter && !ordered(true).includes(row)) {
        filter = "";
        const input = element.querySelector("input");
        if (input) input.value = "";
      }
      const at = ordered().indexOf(row);
      if (at < 0) return;
      page = Math.floor(at / pageRows);
      void update();
      const line = body.rows[shown.indexOf(row)];
      line?.scrollIntoView({ block: "nearest" });
      if (tree) return tree.focus(body, Number(line.dataset.place));
      /** @type {HTMLElement | null | undefined} */ (line?.querySelector(".p-open"))?.focus({ focusVisible: true, preventScroll: true });
    },
    /** The rows as they are shown now. */
    shown: () => shown,
  };
}

/** @param {Value} value */
function plain(value) {
  return value === null || value === undefined ? "–" : String(value);
}
