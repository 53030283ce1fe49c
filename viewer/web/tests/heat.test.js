// @ts-check
import { close, deepEqual, equal, ok } from "./assert.js";
import { arranged, colourOf, columnName, groupings, idOf, laid, lineAt, measureOf, scaleOf, shareOf, stateWords } from "../heat.js";
import { luminance } from "../theme.js";
import { href, parse } from "../url.js";

/** @param {number} rank @param {any} [more] @returns {any} */
const row = (rank, more) => ({ rank, device_index: 0, device_name: null, host: `host${rank >> 1}`, state: "here", stage: null, steps: 2, ...more });

/** Four ranks on two hosts, of which the last is not here. @returns {any} */
const overview = () => ({
  measures: [
    { name: "duration_ns", unit: "ns", label: "step time", definition: "", compared: false },
    { name: "communication_exposed_ns", unit: "ns", label: "exposed", definition: "", compared: false },
  ],
  compared: true, here: 3, all: 4,
  steps: [{ number: 7, repeat: 0, name: "step 7" }, { number: 8, repeat: 0, name: "step 8" }],
  rows: [row(0), row(1), row(2), row(3, { state: "missing", host: "", device_index: null, steps: 0 })],
  communicators: [
    { communicator: "0xa", name: null, ranks: 4, rows: [0, 1, 2] },
    { communicator: "0xb0", name: "data", ranks: 2, rows: [0, 2] },
    { communicator: "0xb1", name: "data", ranks: 2, rows: [1] },
  ],
});

/** @type {Record<string, () => void>} */
export const tests = {
  "colours go from dark to light, so that their order shows without hues"() {
    const light = Array.from({ length: 21 }, (_, at) => luminance(colourOf(at / 20)));
    for (let at = 1; at < light.length; at++) ok(light[at] > light[at - 1], `${at}`);
    deepEqual(colourOf(0), [68, 1, 84]);
    deepEqual(colourOf(1), [253, 231, 37]);
    deepEqual(colourOf(7), colourOf(1));
  },
  "the scale goes from the least to the greatest value, whatever has none"() {
    deepEqual(scaleOf([[1, null], [5, 3]]), { low: 1, high: 5, cut: false });
    equal(scaleOf([[null], [null]]), null);
    equal(scaleOf([]), null);
    equal(shareOf(3, { low: 1, high: 5 }), 0.5);
    deepEqual(scaleOf([[0, 0]]), { low: 0, high: 1, cut: false });
  },
  "noise does not fill the scale"() {
    const scale = scaleOf([[1000, 1001]]);
    close(scale?.low ?? 0, 1001 * 0.98);
    equal(scale?.high, 1001);
  },
  "a value far above all others is cut, and the others keep half of the colours"() {
    const many = Array.from({ length: 200 }, (_, at) => 100 + (at % 2));
    deepEqual(scaleOf([many, [5000]]), { low: 100, high: 202, cut: true });
    // A quarter more is no reason.
    deepEqual(scaleOf([many, [125]]), { low: 100, high: 125, cut: false });
  },
  "rows stand by rank, or those that stand out first; what has no value last"() {
    const order = (/** @type {any} */ view) => arranged(overview(), view, [1, 9, 4, null]).map(({ title, rows }) => [title, rows]);
    deepEqual(order({ group: "", sort: "rank" }), [["", [0, 1, 2, 3]]]);
    deepEqual(order({ group: "", sort: "outliers" }), [["", [1, 2, 0, 3]]]);
    deepEqual(order({ group: "host", sort: "rank" }), [["host0", [0, 1]], ["host1", [2]], ["no host known", [3]]]);
    deepEqual(order({ group: "host", sort: "outliers" }), [["host0", [1, 0]], ["host1", [2]], ["no host known", [3]]]);
    deepEqual(order({ group: "name:data", sort: "outliers" }), [["data of rank 1", [1]], ["data of rank 0", [2, 0]], ["in none of these", [3]]]);
    // A link's group that this recording has not.
    deepEqual(order({ group: "name:other", sort: "rank" }), [["in none of these", [0, 1, 2, 3]]]);
  },
  "what rows can be put together by is what tells several apart"() {
    deepEqual(groupings(overview()).map(({ id }) => id), ["", "host", "name:data"]);
    const staged = overview();
    staged.rows[0].stage = 0;
    staged.rows[1].stage = 1;
    deepEqual(groupings(staged).map(({ title }) => title), ["All ranks", "Host (2)", "Pipeline stage (2)", "Communicator data (2)"]);
  },
  "two rows are as readable as a thousand, and a pointer finds each"() {
    const few = laid([{ title: "", rows: [0, 1] }]);
    deepEqual([few.rowHeight, few.height, few.left_out], [22, 44, 0]);
    const many = laid([{ title: "", rows: Array.from({ length: 1000 }, (_, at) => at) }]);
    deepEqual([many.rowHeight, many.height, many.lines.length], [2, 2000, 1000]);
    const groups = laid([{ title: "a", rows: [3, 1] }, { title: "b", rows: [2] }]);
    deepEqual(groups.lines, [{ row: 3, top: 0, height: 22, group: 0 }, { row: 1, top: 22, height: 22, group: 0 }, { row: 2, top: 48, height: 22, group: 1 }]);
    deepEqual([-1, 0, 21, 22, 45, 48, 69, 70].map((y) => lineAt(groups.lines, y)), [-1, 0, 0, 1, 2, 2, 2, -1]);
    const most = laid([{ title: "", rows: Array.from({ length: 20000 }, (_, at) => at) }]);
    deepEqual([most.rowHeight, most.lines.length, most.left_out], [1, 16000, 4000]);
    // Those that stand out can be read and pointed at.
    const outliers = laid([{ title: "", rows: Array.from({ length: 1000 }, (_, at) => at) }], true);
    deepEqual([outliers.lines[15].height, outliers.lines[16].height, outliers.height], [14, 2, 16 * 14 + 984 * 2]);
    deepEqual([13, 14, 223, 224, 226].map((y) => lineAt(outliers.lines, y)), [0, 1, 15, 16, 17]);
  },
  "names"() {
    const all = overview();
    deepEqual([columnName(all, [0, 0]), columnName(all, [0, 1])], ["step 7", "step 7 to step 8"]);
    equal(measureOf(all, "").name, "communication_exposed_ns");
    equal(measureOf(all, "duration_ns").label, "step time");
    equal(measureOf(all, "gone").name, "communication_exposed_ns");
    deepEqual([idOf(all.rows[1], 1), idOf(row(3, { device_index: 2 }), 3), idOf(row(0, { rank: null }), 5)], ["1", "3.2", "row5"]);
    ok(stateWords(all.rows[3]).startsWith("not here"));
    equal(stateWords(all.rows[0]), "");
  },
  "a link says what is shown, and survives nonsense"() {
    /** @type {any} */
    const heat = { measure: "wait_ns", group: "name:<img src=x>&a=b", sort: "outliers", binned: "median", cell: { rank: "417.1", step: 12, repeat: 1 } };
    deepEqual(parse(href({ rec: "x", tab: "ranks", heat })).heat, heat);
    equal(parse("#tab=ranks").heat, undefined);
    equal(parse("#tab=ranks&measure=%3Cb%3E&cell=a@b&rank=7&binned=mean").heat, undefined);
    deepEqual(parse("#rec=x-rank7&step=12.1").step, { number: 12, repeat: 1 });
    equal(href({ rec: "x-rank7", step: { number: 12, repeat: 0 } }), "#rec=x-rank7&step=12");
    equal(parse("#step=-1").step, undefined);
  },
};
