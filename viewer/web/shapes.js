// @ts-check
/** What PyTorch's profiler wrote, for people: shapes and types of an operator's inputs, functions of the host. */

/** @param {string | null | undefined} text @returns {any[]} */
function listOf(text) {
  try {
    const list = JSON.parse(text ?? "[]");
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}

/** Deeper lists are cut: they are other people's input. */
const DEEPEST = 4;

/** One input's sizes: "64×512"; of a list of tensors those of each. @param {any} input @param {number} [depth] @returns {string} */
function sizes(input, depth = 0) {
  if (!Array.isArray(input)) return String(input);
  if (!input.length) return "";
  if (input.every((size) => typeof size === "number")) return input.join("×");
  return depth < DEEPEST ? `[${input.map((one) => sizes(one, depth + 1) || "–").join(", ")}]` : "[…]";
}

/** "c10::BFloat16" is BFloat16. @param {string} type */
export const shortType = (type) => type.replace(/^c10::/, "");

/**
 * Inputs in words: sizes of tensors in their order, and of what types these are. A scalar between tensors is a dash.
 * @param {string | null | undefined} dims  "[[64, 512], [512, 10], []]"
 * @param {string | null | undefined} types  '["float", "float", "Scalar"]'
 */
export function inputs(dims, types) {
  const all = listOf(dims).map((input) => sizes(input));
  const ofInputs = listOf(types).map((type) => shortType(String(type)));
  const last = all.findLastIndex((one) => one !== "");
  const seen = ofInputs.filter((type, at) => type !== "" && (all[at] ?? "") !== "");
  return {
    sizes: all.slice(0, last + 1).map((one) => one || "–").join(", "),
    types: [...new Set(seen)].join(", "),
  };
}

/**
 * A Python function, "/a/torch/nn/modules/module.py(1743): _call_impl", or a native one, "at::_ops::mm::call [libtorch_cpu.so]": its
 * name, and where it is as far as that has to be said. What is no function of a file is a name alone.
 * @param {string} frame
 */
export function frameOf(frame) {
  const [, path, line, name] = frame.match(/^(.*)(\(\d+\)): (.+)$/s) ?? [];
  if (name) return { name, place: path.split("/").slice(-2).join("/") + line };
  const [, native, library] = frame.match(/^(.+) \[([^[\]]+)\]$/s) ?? [];
  return native ? { name: native, place: library } : { name: frame, place: "" };
}
