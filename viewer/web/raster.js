// @ts-check
/**
 * Drawing rows of slices as pixels. A row is one-dimensional, so it is one line of pixels, stretched later to the
 * row's height; this costs a small part of drawing rectangles, and slices narrower than a pixel blend truthfully.
 * Nothing here touches the document.
 */

/** Shades of one kind, told apart by name. */
export const SHADES = 8;
/** Kinds that have colours of their own; greater numbers are drawn as "other". */
export const KINDS = 14;
const OTHER = 11;
/** Least opacity of a pixel that holds anything: a short kernel in an idle second has to be seen. */
export const LEAST_ALPHA = 72;

export const FLAG_DENSITY = 1;
export const FLAG_CUT = 2;

/**
 * Index into the palette: hue by kind, lightness by a hash of the name, which the server gives, so that a name looks
 * the same in every rank and recording.
 * @param {number} meta
 */
export function colourIndex(meta) {
  const kind = meta & 255;
  return (kind < KINDS ? kind : OTHER) * SHADES + (meta >>> 29);
}

/**
 * Adds a share of a pixel: coverages add up, colours mix by coverage.
 * @param {Uint32Array} px
 * @param {number} at
 * @param {number} colour 0xBBGGRR
 * @param {number} alpha 1..255
 */
function add(px, at, colour, alpha) {
  const old = px[at];
  const before = old >>> 24;
  if (before === 0) {
    px[at] = ((alpha << 24) | colour) >>> 0;
    return;
  }
  const sum = before + alpha;
  const part = ((alpha << 8) / sum) | 0;
  const rest = 256 - part;
  const rb = (((old & 0xff00ff) * rest + (colour & 0xff00ff) * part) >>> 8) & 0xff00ff;
  const g = (((old & 0x00ff00) * rest + (colour & 0x00ff00) * part) >>> 8) & 0x00ff00;
  px[at] = (((sum > 255 ? 255 : sum) << 24) | rb | g) >>> 0;
}

/**
 * Adds what was summed for a pixel: colours times opacities, and opacities.
 * @param {Uint32Array} px
 * @param {number} at
 * @param {number} sum    more than 0; more than 255 is opaque
 * @param {number} red
 * @param {number} green
 * @param {number} blue
 */
function put(px, at, sum, red, green, blue) {
  const part = 1 / sum;
  add(px, at, ((blue * part + 0.5) << 16) | ((green * part + 0.5) << 8) | (red * part + 0.5), sum < 255 ? Math.ceil(sum) : 255);
}

/**
 * First record that ends after `x` (records are in order and do not overlap).
 * @param {Float32Array} x1
 * @param {number} n
 * @param {number} x
 */
export function firstEndingAfter(x1, n, x) {
  let low = 0;
  let high = n;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x1[middle] > x) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Draws one tile's part of one row into a line of pixels.
 *
 * @param {Uint32Array} px       pixels, 0xAABBGGRR
 * @param {number} base          index of the line's first pixel
 * @param {import("./api.js").SliceColumns} columns
 * @param {number} scale         pixels a bin
 * @param {number} offset        pixel of the tile's begin
 * @param {number} low           pixels are drawn from here
 * @param {number} high          to here
 * @param {Uint32Array} palette  colours 0xBBGGRR by kind and shade
 * @param {Map<number, number> | null} [own]  colours of names that have one of their own
 * @returns {number} records drawn
 */
export function rasterRow(px, base, columns, scale, offset, low, high, palette, own = null) {
  const { n, x0, x1, name, meta } = columns;
  const start = firstEndingAfter(x1, n, (low - offset) / scale - 1e-3);
  let i = start;
  // Records are in order, so all shares of a pixel come one after the other: they are summed and written once.
  let pixel = -1;
  let sum = 0;
  let red = 0;
  let green = 0;
  let blue = 0;
  for (; i < n; i += 1) {
    let a = x0[i] * scale + offset;
    if (a >= high) break;
    let b = x1[i] * scale + offset;
    const m = meta[i];
    let fill = (m >>> 8) & 255;
    if ((m & (FLAG_DENSITY << 16)) === 0) {
      fill = 255;
      // A hair between neighbours, once there is room for it.
      const width = b - a;
      if (width > 2.5) b -= width > 6.5 ? 1 : (width - 2.5) * 0.25;
    }
    if (a < low) a = low;
    if (b > high) b = high;
    const colour = own?.get(name[i]) ?? palette[colourIndex(m)];
    const first = a | 0;
    const last = b | 0;
    if (first >= high) continue;
    if (first !== pixel) {
      if (sum > 0) put(px, base + pixel, sum, red, green, blue);
      pixel = first;
      sum = red = green = blue = 0;
    }
    // A slice of no duration leaves a trace.
    let share = ((last > first ? first + 1 : b) - a) * fill;
    if (!(share > 1)) share = 1;
    sum += share;
    red += share * (colour & 255);
    green += share * ((colour >> 8) & 255);
    blue += share * (colour >> 16);
    // Without its hair a slice may end before `low`, where it was cut.
    if (last <= first) continue;
    put(px, base + pixel, sum, red, green, blue);
    sum = red = green = blue = 0;
    if (fill === 255) px.fill((0xff000000 | colour) >>> 0, base + first + 1, base + last);
    else for (let at = first + 1; at < last; at += 1) add(px, base + at, colour, fill < 1 ? 1 : fill);
    pixel = last;
    const rest = (b - last) * fill;
    if (rest > 0) {
      sum = rest;
      red = rest * (colour & 255);
      green = rest * ((colour >> 8) & 255);
      blue = rest * (colour >> 16);
    }
  }
  if (sum > 0 && pixel < high) put(px, base + pixel, sum, red, green, blue);
  return i - start;
}

/**
 * Lifts every pixel that holds anything to the least opacity.
 * @param {Uint32Array} px
 * @param {number} base
 * @param {number} width
 */
export function lift(px, base, width) {
  for (let at = base; at < base + width; at += 1) {
    const alpha = px[at] >>> 24;
    if (alpha !== 0 && alpha < LEAST_ALPHA) px[at] = ((LEAST_ALPHA << 24) | (px[at] & 0xffffff)) >>> 0;
  }
}

/** Opacities of a counter: the area under it, and the band between least and greatest on top of that. */
const AREA = 0.2;
const BAND = 0.3;

/** Of each column of pixels: whether it holds anything, the band, and the lowest, highest and last value of the line. */
let column = columnsOf(0);

/** @param {number} width */
function columnsOf(width) {
  const values = () => new Float32Array(width);
  return { width, known: new Uint8Array(width), min: values(), max: values(), low: values(), high: values(), last: values() };
}

/**
 * Finds for each column of pixels what the records in it hold.
 * @param {number} width
 * @param {CounterPart[]} parts
 * @returns {number} records that were looked at
 */
function gather(width, parts) {
  if (column.width !== width) column = columnsOf(width);
  const { known, min, max, low, high, last } = column;
  known.fill(0);
  let records = 0;
  for (const { columns, scale, offset, low: begin, high: end } of parts) {
    const { n, x0, x1, min: mins, max: maxs, last: lasts } = columns;
    for (let i = firstEndingAfter(x1, n, (begin - offset) / scale); i < n; i += 1) {
      const a = Math.max(begin, x0[i] * scale + offset);
      if (a >= end) break;
      const b = Math.min(end, x1[i] * scale + offset);
      records += 1;
      const beyond = Math.min(width, Math.max(Math.ceil(b), (a | 0) + 1));
      for (let x = a | 0; x < beyond; x += 1) {
        if (known[x] === 0) {
          known[x] = 1;
          min[x] = mins[i];
          max[x] = maxs[i];
          low[x] = high[x] = lasts[i];
        } else {
          if (mins[i] < min[x]) min[x] = mins[i];
          if (maxs[i] > max[x]) max[x] = maxs[i];
          if (lasts[i] < low[x]) low[x] = lasts[i];
          if (lasts[i] > high[x]) high[x] = lasts[i];
        }
        last[x] = lasts[i];
      }
    }
  }
  return records;
}

/**
 * Part of a counter in one tile.
 * @typedef {{columns: import("./api.js").CounterColumns, scale: number, offset: number, low: number, high: number}} CounterPart
 */

/**
 * Draws a counter: for each column of pixels what the records in it hold.
 *
 * @param {Uint32Array} px
 * @param {number} width    of the image, pixels
 * @param {number} top      its first line, lines
 * @param {number} height   lines; they are clear
 * @param {CounterPart[]} parts  in order
 * @param {number} least    value at the foot
 * @param {number} most     value at the top, but for a little room
 * @param {number} colour   0xBBGGRR
 * @param {number} ratio    device pixels a CSS pixel: how thick the line is
 * @returns {number} records drawn
 */
export function rasterCounter(px, width, top, height, parts, least, most, colour, ratio) {
  const records = gather(width, parts);
  const { known, min, max, low, high, last } = column;
  const scaled = (height - Math.round(2 * ratio)) / (most - least);
  const base = height + least * scaled;
  const half = ratio / 2;
  // On the foot the line would lie half outside.
  const lowest = height - half;
  const under = ((Math.round(AREA * 255) << 24) | colour) >>> 0;
  for (let x = 0; x < width; x += 1) {
    if (known[x] === 0) continue;
    const foot = base - low[x] * scaled;
    let from = base - high[x] * scaled;
    let to = foot;
    // From where the line left the column before.
    if (x > 0 && known[x - 1] === 1) {
      const left = base - last[x - 1] * scaled;
      if (left < from) from = left;
      if (left > to) to = left;
    }
    from = (from < lowest ? from : lowest) - half;
    to = (to < lowest ? to : lowest) + half;
    const bandFrom = base - max[x] * scaled;
    let bandTo = bandFrom;
    if (max[x] > min[x]) {
      bandTo = base - min[x] * scaled;
      if (bandTo < bandFrom + 1) bandTo = bandFrom + 1;
    }
    // Under all edges it is the area alone.
    const plain = Math.min(height, Math.max(0, Math.ceil(Math.max(foot, bandTo, to))));
    let at = Math.max(0, Math.floor(Math.min(from, bandFrom)));
    let place = (top + at) * width + x;
    for (; at < plain; at += 1, place += width) {
      const end = at + 1;
      let clear = end > foot ? 1 - AREA * (end - foot < 1 ? end - foot : 1) : 1;
      if (bandTo > at && bandFrom < end) clear *= 1 - BAND * ((end < bandTo ? end : bandTo) - (at > bandFrom ? at : bandFrom));
      if (to > at && from < end) clear *= 1 - ((end < to ? end : to) - (at > from ? at : from));
      px[place] = ((((1 - clear) * 255 + 0.5) << 24) | colour) >>> 0;
    }
    for (; at < height; at += 1, place += width) px[place] = under;
  }
  return records;
}

/**
 * The record under a pixel; one just beside it when none is, within `tolerance` pixels.
 * @param {import("./api.js").SliceColumns} columns
 * @param {number} scale
 * @param {number} offset
 * @param {number} x
 * @param {number} tolerance
 * @returns {number} its index, or -1
 */
export function recordAt(columns, scale, offset, x, tolerance) {
  const { n, x0, x1 } = columns;
  const after = firstEndingAfter(x1, n, (x - offset) / scale);
  let best = -1;
  let least = tolerance;
  for (let i = Math.max(0, after - 1); i < Math.min(n, after + 1); i += 1) {
    const a = x0[i] * scale + offset;
    const b = x1[i] * scale + offset;
    const away = x < a ? a - x : x > b ? x - b : 0;
    if (away <= least) {
      if (away === 0 && x >= a) return i;
      least = away;
      best = i;
    }
  }
  return best;
}

/**
 * Draws bands of stacked shares: what each column of a band holds, from its floor upwards.
 *
 * @param {Uint32Array} px
 * @param {number} width          of the image, pixels
 * @param {number} top            the band's first line
 * @param {number} height         lines
 * @param {Float32Array[]} shares one array for each part, drawn from the floor up, each 0..1
 * @param {number} bins           length of each
 * @param {number[]} colours      0xBBGGRR of each part
 */
export function rasterBand(px, width, top, height, shares, bins, colours) {
  for (let x = 0; x < width; x += 1) {
    const from = Math.floor((x * bins) / width);
    const to = Math.max(from + 1, Math.floor(((x + 1) * bins) / width));
    let floor = 0;
    for (let part = 0; part < shares.length; part += 1) {
      let sum = 0;
      for (let bin = from; bin < to; bin += 1) sum += shares[part][bin];
      const next = Math.min(height, floor + (sum / (to - from)) * height);
      // Lines counted from the floor; the one that is cut gets its share of opacity.
      for (let line = Math.floor(floor); line < next; line += 1) {
        const cover = Math.min(line + 1, next) - Math.max(line, floor);
        if (cover > 0.004) add(px, (top + height - 1 - line) * width + x, colours[part], Math.min(255, Math.ceil(cover * 255)));
      }
      floor = next;
    }
  }
}

/** Steps narrower than this are always shown as their means, CSS pixels. */
const STEP_CALM = 14;
/** Where what dominates changes more often than this, CSS pixels, it is a texture; steps up to the second width become means then. */
const TEXTURE = 8;
const STEP_TEXTURE = 60;
/** How wide the mean is that smooths a texture without such steps, CSS pixels. */
const SMOOTH = 12;

/**
 * How many bins one thing dominates on average, over all bands and where anything runs at all.
 * @param {Record<string, Float32Array | number[]>[]} bands
 * @param {string[]} parts
 */
function runOf(bands, parts) {
  let bins = 0;
  let runs = 0;
  for (const shares of bands) {
    const most = Array.from(shares[parts[0]] ?? [], (_, bin) => {
      let sum = 0;
      let best = -1;
      for (const [at, part] of parts.entries()) {
        sum += shares[part][bin];
        if (best < 0 || shares[part][bin] > shares[parts[best]][bin]) best = at;
      }
      return 1 - sum > shares[parts[best]][bin] ? -1 : best;
    });
    const first = most.findIndex((at) => at >= 0);
    const last = most.findLastIndex((at) => at >= 0);
    for (let bin = first; first >= 0 && bin <= last; bin += 1) {
      bins += 1;
      if (bin === first || most[bin] !== most[bin - 1]) runs += 1;
    }
  }
  return runs > 0 ? bins / runs : Infinity;
}

/**
 * Turns shares of time that change every few pixels, a texture, into what can be read: each step becomes the mean of
 * its time, so that slow steps and late ranks stand out; where steps are wide, or there are none, all is smoothed.
 * @param {Record<string, Float32Array | number[]>[]} bands by part, a value a bin; changed in place
 * @param {string[]} parts
 * @param {number[]} edges the bins at which steps begin, and where the last one ends
 * @param {number} ratio bins a CSS pixel
 */
export function calm(bands, parts, edges, ratio) {
  const steps = edges.length - 1;
  const wide = steps > 2 ? (edges[steps] - edges[0]) / steps / ratio : Infinity;
  const textured = wide <= STEP_CALM || runOf(bands, parts) / ratio < TEXTURE;
  if (!textured) return;
  for (const shares of bands) {
    for (const part of parts) {
      const values = shares[part];
      if (wide <= STEP_TEXTURE) {
        for (let k = 0; k < steps; k += 1) {
          const [a, b] = [edges[k], edges[k + 1]];
          if (b - a < 2) continue;
          let sum = 0;
          for (let i = a; i < b; i += 1) sum += values[i];
          values.fill(sum / (b - a), a, b);
        }
      } else smooth(values, Math.max(1, Math.round((SMOOTH * ratio) / 2)));
    }
  }
}

/** Each value becomes the mean of those up to `reach` away. @param {Float32Array | number[]} values @param {number} reach */
function smooth(values, reach) {
  const sums = new Float64Array(values.length + 1);
  for (let k = 0; k < values.length; k += 1) sums[k + 1] = sums[k] + values[k];
  for (let k = 0; k < values.length; k += 1) {
    const from = Math.max(0, k - reach);
    const to = Math.min(values.length, k + reach + 1);
    values[k] = (sums[to] - sums[from]) / (to - from);
  }
}
