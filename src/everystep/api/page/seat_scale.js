// From time to pixels and from seats to rows of them: the geometry of one lane's canvas.  All in device pixels.

const TILE_PX = 256; // the picture is kept in pieces of this width
const AXIS_CSS_PX = 18;
const HEIGHT_CSS_PX = 128; // what the seats of a lane should take, so that three lanes share a screen of 900
const TALLEST_CSS_PX = 18;
const LOWEST_CSS_PX = 3;
const TICK_CSS_PX = 100;
const FEWEST_ROWS = 4;

/** The geometry of a lane at one moment.  Absolute pixels count from the server's start, so that pieces fit. */
export class SeatScale {
  /** `rows`: how many seats are shown, from the first on. */
  constructor({ widthCss, rows, pxPerS, edgeS, ratio }) {
    this.ratio = ratio;
    this.widthCss = widthCss;
    this.width = Math.round(widthCss * ratio);
    this.pxPerS = pxPerS * ratio;
    this.rows = Math.max(1, rows);
    const rowCss = Math.max(LOWEST_CSS_PX, Math.min(TALLEST_CSS_PX, Math.floor(HEIGHT_CSS_PX / this.rows)));
    this.row = Math.max(1, Math.round(rowCss * ratio));
    this.gap = this.row >= 4 * ratio ? Math.max(1, Math.round(ratio)) : 0; // between rows
    this.seatsHeight = this.row * this.rows;
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
    return seat >= 0 && seat < this.rows ? seat : null;
  }

  get startS() {
    return this.left / this.pxPerS;
  }

  get endS() {
    return (this.left + this.width) / this.pxPerS;
  }

  /** What a kept piece depends on beside its place. */
  get key() {
    return `${this.pxPerS} ${this.row} ${this.rows}`;
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

/** How many seats to show of a lane: those that were ever used and some more, so that the height changes seldom. */
export function rowsToShow(seats, used) {
  let rows = FEWEST_ROWS;
  while (rows < used) rows *= 2;
  return Math.min(Math.max(1, seats), rows);
}

/** Times for the axis, each with its words: round numbers, at least a hundred CSS pixels apart. */
export function ticks(scale) {
  const wantedS = (TICK_CSS_PX * scale.ratio) / scale.pxPerS;
  const magnitude = 10 ** Math.floor(Math.log10(wantedS));
  const everyS = [1, 2, 5, 10].map((n) => n * magnitude).find((s) => s >= wantedS);
  const digits = Math.max(0, -Math.floor(Math.log10(everyS) + 1e-9));
  const found = [];
  for (let n = Math.max(0, Math.ceil(scale.startS / everyS)); n * everyS <= scale.endS; n++) {
    found.push({ atS: n * everyS, words: `${(n * everyS).toFixed(digits)} s` });
  }
  return found;
}
