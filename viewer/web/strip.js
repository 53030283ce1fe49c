// @ts-check
/** A canvas that nobody sees: rows are made on it line of pixels by line of pixels, and drawn from it where they belong. */

export class Strip {
  constructor() {
    this.canvas = document.createElement("canvas");
    /** @private */
    this.ink = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext("2d"));
    /** @type {ImageData | null} */
    this.image = null;
    /** 0xAABBGGRR, line after line. */
    this.pixels = new Uint32Array(0);
    /** Lines that are taken. */
    this.used = 0;
  }

  /** Whether there is room for more lines of this width. @param {number} width @param {number} lines */
  fits(width, lines) {
    return this.image !== null && this.image.width === Math.max(1, width) && this.used + lines <= this.image.height;
  }

  /**
   * Room for lines of pixels, and for more, cleared. No more than needed: the whole canvas is copied when it is drawn from.
   * @param {number} width
   * @param {number} lines
   * @param {number} more
   */
  reserve(width, lines, more) {
    const { used } = this;
    this.used = 0;
    if (!this.fits(width, lines)) {
      const room = 16 * Math.ceil((lines + more) / 16 + 1);
      this.image = new ImageData(Math.max(1, width), room);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.canvas.width = this.image.width;
      this.canvas.height = room;
    } else this.pixels.fill(0, 0, used * Math.max(1, width));
  }

  /** Takes lines, which are clear. @param {number} lines @returns {number} the first */
  take(lines) {
    this.used += lines;
    return this.used - lines;
  }

  /** Makes the lines from one on ready to be drawn from. @param {number} from */
  show(from) {
    if (this.image && this.used > from) this.ink.putImageData(this.image, 0, 0, 0, from, this.image.width, this.used - from);
  }
}
