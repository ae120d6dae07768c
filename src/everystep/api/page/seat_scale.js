// From time to pixels and from seats to rows of them: the geometry of one lane's canvas.  All in device pixels.

const TILE_PX = 256; // the picture is kept in pieces of this width
const AXIS_CSS_PX = 18;
const HEIGHT_CSS_PX = 330; // what the seats of a lane may take; less where they are few
const TALLEST_CSS_PX = 24;
const LOWEST_CSS_PX = 4;

/** The geometry of a lane at one moment.  Absolute pixels count from the server's start, so that pieces fit. */
export class SeatScale {
  constructor({ widthCss, seats, pxPerS, edgeS, ratio }) {
    this.ratio = ratio;
    this.widthCss = widthCss;
    this.width = Math.round(widthCss * ratio);
    this.pxPerS = pxPerS * ratio;
    this.seats = Math.max(1, seats);
    const rowCss = Math.max(LOWEST_CSS_PX, Math.min(TALLEST_CSS_PX, Math.floor(HEIGHT_CSS_PX / this.seats)));
    this.row = Math.max(1, Math.round(rowCss * ratio));
    this.seatsHeight = this.row * this.seats;
    this.heightCss = this.seatsHeight / ratio + AXIS_CSS_PX;
    this.height = Math.round(this.heightCss * ratio);
    this.left = Math.round(edgeS * this.pxPerS) - this.width; // absolute pixel at the canvas's left edge
  }

  /** Absolute pixel of a time. */
  px(atS) {
    return Math.round(atS * this.pxPerS);
  }

  /** Time at a distance from the left edge, in CSS pixels. */
  timeAt(xCss) {
    return (this.left + xCss * this.ratio) / this.pxPerS;
  }

  /** The seat at a distance from the top, in CSS pixels; null below the last. */
  seatAt(yCss) {
    const seat = Math.floor((yCss * this.ratio) / this.row);
    return seat >= 0 && seat < this.seats ? seat : null;
  }

  get startS() {
    return this.left / this.pxPerS;
  }

  get endS() {
    return (this.left + this.width) / this.pxPerS;
  }

  /** What a kept piece depends on beside its place. */
  get key() {
    return `${this.pxPerS} ${this.row} ${this.seats}`;
  }

  get tilePx() {
    return TILE_PX;
  }

  /** Numbers of the pieces that the canvas shows, left to right. */
  get tiles() {
    const first = Math.floor(this.left / TILE_PX);
    const last = Math.floor((this.left + this.width - 1) / TILE_PX);
    return Array.from({ length: last - first + 1 }, (_, i) => first + i);
  }
}

/** Times for the axis, each with its words: round numbers, about a hundred CSS pixels apart. */
export function ticks(scale) {
  const wantedS = (100 * scale.ratio) / scale.pxPerS;
  const magnitude = 10 ** Math.floor(Math.log10(wantedS));
  const everyS = [1, 2, 5, 10].map((n) => n * magnitude).find((s) => s >= wantedS);
  const digits = Math.max(0, -Math.floor(Math.log10(everyS) + 1e-9));
  const found = [];
  for (let n = Math.max(0, Math.ceil(scale.startS / everyS)); n * everyS <= scale.endS; n++) {
    found.push({ atS: n * everyS, words: `${(n * everyS).toFixed(digits)} s` });
  }
  return found;
}
