// @ts-check
/** Which steps are meant: "5-20", both counted, or "5" alone; "" are all. */

/**
 * What was written as the server takes it, "5..20" too, as the terminal does; null where it is no range.
 * @param {string} text
 */
export function stepRange(text) {
  const found = text.trim().match(/^(\d{1,9})(?:\s*(?:\.\.|–|-)\s*(\d{1,9}))?$/);
  if (!found) return null;
  const [first, last] = [Number(found[1]), Number(found[2] ?? found[1])];
  if (last < first) return null;
  return first === last ? `${first}` : `${first}-${last}`;
}

/** What a range is called. @param {string} steps */
export const stepWords = (steps) => (steps.includes("-") ? `steps ${steps.replace("-", "–")}` : `step ${steps}`);

/**
 * Whether a step is one of them.
 * @param {string} steps
 * @param {number} number
 */
export function isAmong(steps, number) {
  const [first, last = first] = steps.split("-").map(Number);
  return steps === "" || (number >= first && number <= last);
}
