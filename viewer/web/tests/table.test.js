// @ts-check
import { deepEqual, equal, ok } from "./assert.js";
import { matches, sorted, table } from "../table.js";

/** @type {Record<string, () => void | Promise<void>>} */
export const tests = {
  "numbers sort as numbers, what is not known comes last either way"() {
    const rows = [3, null, 1, undefined, 20, NaN, 100];
    deepEqual(sorted(rows, (row) => row, false).slice(0, 4), [1, 3, 20, 100]);
    deepEqual(sorted(rows, (row) => row, true).slice(0, 4), [100, 20, 3, 1]);
  },
  "text sorts by the numbers in it, equal rows keep their order"() {
    deepEqual(sorted(["step 10", "step 9", "Step 1"], (row) => row, false), ["Step 1", "step 9", "step 10"]);
    const rows = [{ a: 1, b: 1 }, { a: 1, b: 2 }, { a: 0, b: 3 }];
    deepEqual(sorted(rows, (row) => row.a, true).map((row) => row.b), [1, 2, 3]);
  },
  "a filter wants all its words"() {
    ok(matches("ncclDevKernel_AllReduce_Sum", "allreduce NCCL"));
    ok(!matches("ncclDevKernel_AllReduce_Sum", "allgather"));
    ok(matches("anything", ""));
  },
  "a table is a table: headings sort, names are text, pages begin above 500 rows"() {
    if (typeof document === "undefined") return;
    const rows = Array.from({ length: 1201 }, (_, index) => ({ name: `<img src=x onerror=alert(${index})>`, time: (index * 7919) % 1201 }));
    const made = table({
      name: "test",
      rows,
      sort: { key: "time", descending: true },
      search: (row) => row.name,
      columns: [{ key: "name", title: "Name", value: (row) => row.name }, { key: "time", title: "Time", number: true, value: (row) => row.time }],
    });
    equal(made.element.querySelectorAll("tbody tr").length, 200);
    equal(made.element.querySelectorAll("img").length, 0);
    equal(made.element.querySelector("tbody td:nth-child(2)")?.textContent, "1200");
    const [, heading] = made.element.querySelectorAll("th");
    equal(heading.getAttribute("aria-sort"), "descending");
    heading.querySelector("button")?.click();
    equal(heading.getAttribute("aria-sort"), "ascending");
    equal(made.element.querySelector("tbody td:nth-child(2)")?.textContent, "0");
    made.setRows(rows.slice(0, 500));
    equal(made.element.querySelectorAll("tbody tr").length, 500);
    made.setRows([]);
    equal(made.element.querySelectorAll("tbody td").length, 1, "an empty table says so");
  },
  async "a server's table asks for the page, the order and the filter"() {
    if (typeof document === "undefined") return;
    /** @type {any[]} */
    const asked = [];
    const made = table({
      name: "far",
      sort: { key: "bytes_key", descending: false },
      columns: [{ key: "bytes_key", title: "Bytes", order: "bytes", number: true, value: (/** @type {any} */ row) => row.bytes }],
      async source(query) {
        asked.push(query);
        return { total: 900, rows: Array.from({ length: query.limit }, (_, index) => ({ bytes: query.offset + index })) };
      },
    });
    await new Promise((resolve) => setTimeout(resolve, 0));
    deepEqual(asked[0], { sort: "bytes", order: "asc", offset: 0, limit: 200, filter: "" });
    /** @type {HTMLButtonElement | null} */ (made.element.querySelector('[aria-label="Next page"]'))?.click();
    await new Promise((resolve) => setTimeout(resolve, 0));
    equal(asked[1].offset, 200);
    equal(made.element.querySelector("tbody td")?.textContent, "200");
  },
};
