// @ts-check
/** Numbers as people read them: three digits that matter, a unit that fits, nothing rounded away in the exact forms. */

/** A thin blank that does not break: between number and unit, and between groups of digits. */
const THIN = "\u202f";
/** What stands for a value that is not known. */
export const NONE = "\u2013";
const MINUS = "\u2212";

/** @param {unknown} value @returns {value is number} */
function known(value) {
  return typeof value === "number" && Number.isFinite(value);
}

/**
 * Three digits that matter, without a power of ten; whole numbers from 1000 on have all their digits.
 * @param {number} value
 * @returns {string}
 */
export function digits(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 999.5) return group(Math.round(value));
  const decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : Math.min(8, 2 - Math.floor(Math.log10(size)));
  return (value < 0 ? MINUS : "") + size.toFixed(decimals);
}

/**
 * A whole number with its digits in groups of three.
 * @param {number} value
 */
function group(value) {
  const text = Math.abs(value).toFixed(0);
  return (value < 0 ? MINUS : "") + (text.length < 5 ? text : text.replace(/\B(?=(\d{3})+$)/g, THIN));
}

/**
 * Of `units` [factor, name], greatest first, the first that the value (rounded to three digits) reaches.
 * @param {number} value
 * @param {[number, string][]} units
 */
function fitting(value, units) {
  const size = Math.abs(value);
  return units.find(([factor]) => size >= factor * 0.9995) ?? units[units.length - 1];
}

/** @type {[number, string][]} */
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];

/**
 * A span of time with the unit that fits: "7.83 µs", "1.29 s", "2 min 05 s", "3 h 20 min".
 * @param {number | null | undefined} ns
 */
export function time(ns) {
  if (!known(ns)) return NONE;
  if (ns === 0) return "0";
  const sign = ns < 0 ? MINUS : "";
  const seconds = Math.abs(ns) / 1e9;
  if (seconds >= 119.5) {
    const whole = Math.round(seconds);
    if (whole < 3600) return `${sign}${Math.floor(whole / 60)}${THIN}min ${String(whole % 60).padStart(2, "0")}${THIN}s`;
    const minutes = Math.round(seconds / 60);
    return `${sign}${group(Math.floor(minutes / 60))}${THIN}h ${String(minutes % 60).padStart(2, "0")}${THIN}min`;
  }
  const [factor, unit] = fitting(ns, TIMES);
  return (factor === 1 && Number.isInteger(ns) ? group(ns) : digits(ns / factor)) + THIN + unit;
}

/**
 * A span of time to the nanosecond: "43 198 133 ns".
 * @param {number | null | undefined} ns
 */
export function timeExact(ns) {
  return known(ns) ? group(ns) + THIN + "ns" : NONE;
}

/**
 * A moment, relative to the recording's beginning, with as many digits as `resolution` (ns) asks for: "1.2935 s"; in
 * milliseconds where seconds would take more than four: "293.516 ms".
 * @param {number | null | undefined} ns
 * @param {number} [resolution]
 */
export function moment(ns, resolution = 1000) {
  if (!known(ns)) return NONE;
  const power = Math.floor(Math.log10(Math.max(1, resolution)));
  const [unit, decimals] = power >= 5 ? [1e9, 9 - power] : [1e6, 6 - power];
  const [whole, part] = (Math.abs(ns) / unit).toFixed(Math.max(0, decimals)).split(".");
  return (
    (ns < 0 ? MINUS : "") +
    group(Number(whole)) +
    (part ? "." + (part.length > 4 ? (part.match(/.{1,3}/g) ?? []).join(THIN) : part) : "") +
    THIN +
    (unit === 1e9 ? "s" : "ms")
  );
}

/** @type {[number, string][]} */
const SIZES = [[2 ** 50, "PiB"], [2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"], [1, "B"]];

/**
 * A size with the unit that fits, in powers of 1024: "4.00 MiB", "424 B".
 * @param {number | null | undefined} value
 */
export function bytes(value) {
  if (!known(value)) return NONE;
  const [factor, unit] = fitting(value, SIZES);
  return (factor === 1 ? group(Math.round(value)) : digits(value / factor)) + THIN + unit;
}

/**
 * A power of two as an axis says it: "4 MiB".
 * @param {number} value
 */
export function bytesShort(value) {
  const [factor, unit] = fitting(value, SIZES);
  const number = value / factor;
  return (Number.isInteger(number) ? String(number) : digits(number)) + THIN + unit;
}

/** @type {[number, string][]} */
const RATES = [[1e3, "TB/s"], [1, "GB/s"], [1e-3, "MB/s"], [1e-6, "kB/s"], [1e-9, "B/s"]];

/**
 * A bandwidth given in GB/s (10^9 bytes a second): "158 GB/s", "359 MB/s".
 * @param {number | null | undefined} gigabytes
 */
export function bandwidth(gigabytes) {
  if (!known(gigabytes)) return NONE;
  if (gigabytes === 0) return "0";
  const [factor, unit] = fitting(gigabytes, RATES);
  return digits(gigabytes / factor) + THIN + unit;
}

/**
 * A ratio as a percentage: "21.0 %". What is not 0 and not all is never written as "0 %" or "100 %".
 * @param {number | null | undefined} ratio
 */
export function percent(ratio) {
  if (!known(ratio)) return NONE;
  const value = ratio * 100;
  const size = Math.abs(value);
  if (size === 0) return "0" + THIN + "%";
  const sign = value < 0 ? MINUS : "";
  if (size < 0.05) return sign + "<0.1" + THIN + "%";
  if (size < 100 && size >= 99.95) return sign + ">99.9" + THIN + "%";
  if (size === 100) return sign + "100" + THIN + "%";
  return sign + (size < 99.95 ? size.toFixed(1) : group(Math.round(size))) + THIN + "%";
}

/**
 * Without the zeros that end a decimal fraction: axes say "20 ms", not "20.0 ms".
 * @param {string} text
 */
export function trimmed(text) {
  return text.replace(/(\.\d*?)0+(?=\D|$)/, "$1").replace(/\.(?=\D|$)/, "");
}

/**
 * A count, in groups of three digits.
 * @param {number | null | undefined} value
 */
export function count(value) {
  return known(value) ? group(Math.round(value)) : NONE;
}

/** @type {[number, string][]} */
const COUNTS = [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

/**
 * A count in few letters: "12.4 M".
 * @param {number | null | undefined} value
 */
export function countShort(value) {
  if (!known(value)) return NONE;
  if (Math.abs(value) < 10000) return group(Math.round(value));
  const [factor, unit] = fitting(value, COUNTS);
  return digits(value / factor) + THIN + unit;
}

/**
 * How often a second: "249 /s".
 * @param {number | null | undefined} value
 */
export function rate(value) {
  return known(value) ? digits(value) + THIN + "/s" : NONE;
}

/**
 * A difference with its sign: `signed(time, -5)` is "−5 ns", `signed(time, 5)` "+5 ns".
 * @param {(value: number) => string} format
 * @param {number | null | undefined} value
 */
export function signed(format, value) {
  if (!known(value)) return NONE;
  return (value > 0 ? "+" : "") + format(value);
}

/**
 * The end of the bracket that opens at `from`, or -1: brackets inside are stepped over, `->` closes none.
 * @param {string} text
 * @param {number} from
 */
function closing(text, from) {
  const open = text[from];
  const close = open === "<" ? ">" : ")";
  let depth = 0;
  for (let at = from; at < text.length; at++) {
    if (text[at] === open) depth++;
    else if (text[at] === close && !(close === ">" && text[at - 1] === "-")) {
      depth--;
      if (depth === 0) return at;
    }
  }
  return -1;
}

/**
 * A kernel's name without return type, template arguments, parameters and namespaces: "permute_2D_lengths_kernel".
 * What does not look like a function of C++ stays as it is. For reading only; whole names stand beside it.
 * @param {string} name
 */
export function shortName(name) {
  if (name.length > 200_000 || name[0] === "<" || !/[<(]/.test(name) || /^Mem(cpy|set) /.test(name)) return name;
  const text = name.replaceAll("(anonymous namespace)", "{anonymous}").replace(/^void /, "");
  let result = "";
  for (let at = 0; at < text.length; at++) {
    const letter = text[at];
    if (letter === "(") {
      if (result.endsWith("operator")) {
        result += "()";
        at++;
        continue;
      }
      break;
    }
    if (letter === "<") {
      const end = closing(text, at);
      if (end < 0) break;
      at = end;
      continue;
    }
    result += letter;
  }
  const last = result.trim().split(" ").pop() ?? "";
  const parts = last.split("::").filter((part) => part && part !== "{anonymous}");
  const short = parts.pop() ?? "";
  if (!short) return name;
  return /^operator/.test(short) && parts.length ? parts.pop() + "::" + short : short;
}

/**
 * The template arguments of a kernel's name without their namespaces: what tells kernels of one short name apart.
 * @param {string} name
 */
export function templateArguments(name) {
  if (name.length > 200_000 || /^Mem(cpy|set) /.test(name)) return "";
  const at = name.indexOf("<");
  const end = at > 0 ? closing(name, at) : -1;
  return end < 0 ? "" : name.slice(at, end + 1).replaceAll("(anonymous namespace)::", "").replace(/\b\w+::/g, "");
}

/**
 * Text cut in its middle to at most `most` letters: beginning and end of a kernel's name say most.
 * @param {string} text
 * @param {number} most
 */
export function middle(text, most) {
  if (text.length <= most) return text;
  const head = Math.ceil((most - 1) * 0.62);
  return text.slice(0, head) + "…" + text.slice(text.length - (most - 1 - head));
}

/** Whether a rank has several devices here. @param {{ranks: {rank: number | null}[]}} among */
export function severalDevices({ ranks }) {
  const seen = new Set();
  return ranks.some(({ rank }) => rank !== null && (seen.has(rank) || !seen.add(rank)));
}

/**
 * A rank's device in words: "rank 3", "rank 3 GPU 1" where its rank has several, "GPU 0" without a rank.
 * @param {{rank: number | null, device_index?: number | null}} place
 * @param {boolean} [several] whether a rank has several devices here
 */
export function place(place, several = false) {
  const device = place.device_index ?? null;
  if (place.rank === null || place.rank === undefined) return device === null ? "no rank" : `GPU ${device}`;
  return several && device !== null ? `rank ${place.rank} GPU ${device}` : `rank ${place.rank}`;
}

/**
 * One field of CSV (RFC 4180). What a spreadsheet would take for a formula gets an apostrophe before it.
 * @param {string | number | boolean | null | undefined} value
 */
export function csvField(value) {
  if (value === null || value === undefined) return "";
  let text = String(value);
  if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
  return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
}

/**
 * Rows as CSV with a line of names first.
 * @param {string[]} names
 * @param {(string | number | boolean | null | undefined)[][]} rows
 */
export function csv(names, rows) {
  return [names, ...rows].map((row) => row.map(csvField).join(",")).join("\r\n") + "\r\n";
}

/**
 * A command on files, safe to paste into a shell whatever their names are.
 * @param {string} command
 * @param {string[]} names
 */
export function shellLine(command, names) {
  const words = names.map((name) => {
    // What begins with a dash would be taken for an option.
    const path = name.startsWith("-") ? `./${name}` : name;
    return /^[\w.,+@%/-]+$/.test(path) ? path : `'${path.replaceAll("'", "'\\''")}'`;
  });
  return [command, ...words].join(" ");
}
