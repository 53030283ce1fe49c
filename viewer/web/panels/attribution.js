// @ts-check
/** Who launched what, over several ranks: the analysis's tables as one, as the terminal's are. */

/** @typedef {import("../../types/analysis.js").RankAnalysis} Rank */
/**
 * What the analysis has of a rank, or of all of them.
 * @typedef {Pick<Rank, "operators" | "shapes" | "products" | "modules" | "module_classes" | "stacks" | "unattributed" | "peak">} Attribution
 */

/**
 * Rows of one key as one; what `sums` names is summed, the rest is the first's, but for what `meet` makes of it.
 * @template Row
 * @param {Row[]} rows
 * @param {(row: Row) => any} key
 * @param {(keyof Row)[]} sums
 * @param {(sum: Row, row: Row) => void} [meet]
 * @returns {Row[]}
 */
function summed(rows, key, sums, meet) {
  /** @type {Map<string, Row>} */
  const found = new Map();
  for (const row of rows) {
    const name = JSON.stringify(key(row));
    const sum = found.get(name);
    if (sum) {
      add(sum, row, sums);
      meet?.(sum, row);
    } else found.set(name, { ...row });
  }
  return [...found.values()];
}

/**
 * What one of both does not know, the sum does not know.
 * @template Row
 * @param {Row} sum
 * @param {Row} row
 * @param {(keyof Row)[]} sums
 */
function add(sum, row, sums) {
  for (const name of sums) {
    const [one, other] = /** @type {(number | null)[]} */ ([sum[name], row[name]]);
    sum[name] = /** @type {any} */ (one === null || other === null ? null : one + other);
  }
}

/**
 * Trees laid over each other: by name and by what they are in.
 * @template {{name: string, parent: number | null}} Row
 * @param {Row[][]} trees
 * @param {(keyof Row)[]} sums
 * @returns {Row[]}
 */
export function summedTrees(trees, sums) {
  /** @type {Map<string, number>} */
  const places = new Map();
  /** @type {Row[]} */
  const all = [];
  for (const tree of trees) {
    /** @type {number[]} */
    const put = [];
    for (const row of tree) {
      const parent = row.parent === null ? null : put[row.parent];
      const key = `${parent} ${row.name}`;
      const place = places.get(key) ?? all.length;
      if (place < all.length) add(all[place], row, sums);
      else {
        places.set(key, place);
        all.push({ ...row, parent });
      }
      put.push(place);
    }
  }
  return all;
}

/** What modules sum. */
const TIMES = /** @type {const} */ (["calls", "forward_ns", "forward_self_ns", "recompute_ns", "recompute_self_ns", "backward_ns", "backward_self_ns"]);
/** What operators sum. */
const OPERATORS = /** @type {const} */ (["calls", "kernels", "direct_ns", "subtree_ns", "host_self_ns", "host_total_ns", "host_calls_ns"]);

/** A second's worth of what took a time. @param {number | null} amount @param {number} ns */
const rate = (amount, ns) => (amount === null || ns <= 0 ? null : amount / (ns / 1e9));

/**
 * The tables of some ranks' devices as one. Rates are sums over sums; what a device can do at most is left out where they differ.
 * @param {Attribution[]} ranks
 * @returns {Attribution}
 */
export function overRanks(ranks) {
  if (ranks.length === 1) return ranks[0];
  /** @type {Attribution["unattributed"]} */
  let unattributed = null;
  for (const { unattributed: more } of ranks) {
    if (!more) continue;
    if (unattributed) add(unattributed, more, /** @type {(keyof typeof more)[]} */ (Object.keys(more)));
    else unattributed = { ...more };
  }
  const whole = unattributed?.operations_ns ?? 0;
  const share = (/** @type {{direct_ns: number}} */ row) => (whole > 0 ? row.direct_ns / whole : null);
  const every = (/** @type {keyof Attribution} */ name) => ranks.flatMap((rank) => /** @type {any[]} */ (rank[name]));
  /** @type {Attribution["operators"]} */
  const operators = summed(every("operators"), ({ name }) => name, [...OPERATORS]);
  /** @type {Attribution["shapes"]} */
  const shapes = summed(every("shapes"), (row) => [row.name, row.input_dims, row.input_types], [...OPERATORS, "flops"]);
  /** @type {Attribution["products"]} */
  const products = summed(
    every("products"),
    (row) => [row.name, row.batch, row.m, row.n, row.k, row.input_dims, row.dtype],
    ["calls", "flops", "bytes", "time_ns"],
    (sum, row) => {
      // What both devices can do at most stays.
      if (sum.peak_flops_per_second !== row.peak_flops_per_second) sum.peak_flops_per_second = sum.bound = null;
    },
  );
  const [first, ...others] = ranks.map(({ peak }) => peak);
  return {
    operators: operators.map((row) => ({ ...row, share: share(row) })),
    shapes: shapes.map((row) => ({ ...row, share: share(row), flops_per_second: rate(row.flops, row.subtree_ns) })),
    products: products.map((row) => {
      const flops_per_second = rate(row.flops, row.time_ns);
      const peak = row.peak_flops_per_second;
      return {
        ...row,
        flops_per_second,
        bytes_per_second: rate(row.bytes, row.time_ns),
        peak_share: peak && flops_per_second !== null ? flops_per_second / peak : null,
      };
    }),
    modules: summedTrees(ranks.map(({ modules }) => modules), [...TIMES]),
    module_classes: summed(every("module_classes"), ({ name }) => name, ["modules", ...TIMES]),
    stacks: summedTrees(ranks.map(({ stacks }) => stacks), ["kernels", "direct_ns", "backward_ns", "subtree_ns"]),
    unattributed,
    peak: others.every((peak) => JSON.stringify(peak) === JSON.stringify(first)) ? first : null,
  };
}
