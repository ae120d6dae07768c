// The picture of one lane's seats: what is on its canvas, where, and for how long it goes on moving.

import { repaint } from "./frames.js";
import { Stays, UsedSeats, unknownTimes } from "./seat_known.js";
import { Look, paintAxis, paintEmpty, paintStays, paintSteps, paintUnknown } from "./seat_paint.js";
import { rowsToShow, SeatScale, ticks } from "./seat_scale.js";
import { SeatTiles } from "./seat_tiles.js";

export class SeatPicture {
  #tiles = new SeatTiles();
  #stays = new Stays();
  #used = new UsedSeats();
  #look = null;
  #rows = 0; // shown; never fewer again, and no more while time stands still, so that nothing jumps
  #mayGrow = true;

  /** `wordsOf(unknown)`: what to write on a time of which nothing is known. */
  constructor(canvas, app, policy, wordsOf) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.app = app;
    this.store = app.store; // of its section; a section is made anew with another store
    this.policy = policy;
    this.wordsOf = wordsOf;
    this.widthCss = 0; // told by who watches the size: to ask for it in each frame would lay out the whole page
    this.scale = null;
    this.unknown = [];
    this.onPaint = () => {};
  }

  get lane() {
    return this.store.lanes.get(this.policy);
  }

  /** Whether the lane's steps are known from its first on. */
  get isWhole() {
    return !this.unknown.some(({ first }) => first === null);
  }

  /** How many of the lane's seats are shown. */
  get numRows() {
    return this.#rows;
  }

  /** The lane begins anew. */
  forget() {
    this.#used = new UsedSeats();
    this.#stays = new Stays();
    this.#rows = 0;
    this.recolour();
  }

  recolour() {
    this.#tiles.clear();
    this.#look = null;
  }

  /** Somebody moves the picture: it may change its height with it. */
  moved() {
    this.#mayGrow = true;
  }

  paint() {
    const { lane, app, context } = this;
    if (lane === undefined || this.widthCss === 0) return;
    const scale = this.#fit(lane);
    if (this.#look === null || this.#look.ratio !== scale.ratio) this.#look = new Look(scale.ratio);
    const look = this.#look;
    this.#tiles.paint(context, scale, look, {
      begin: (piece) => paintEmpty(piece, scale, look),
      go: (piece, tile, state) => paintSteps(piece, scale, look, lane, tile, state),
    });
    this.unknown = unknownTimes(this.store, lane);
    for (const time of this.unknown) {
      if (time.toS > scale.startS && time.fromS < scale.endS) paintUnknown(context, scale, look, time, this.wordsOf(time));
    }
    paintAxis(context, scale, look, ticks(scale));
    if (app.view.pointed !== null) paintStays(context, scale, look, this.#stays.of(lane, app.view.pointed));
    this.onPaint();
    if (app.view.isFollowing && this.store.isLive && isMoving(lane, scale)) repaint();
  }

  #fit(lane) {
    const { view } = this.app;
    const ratio = devicePixelRatio;
    const { widthCss } = this;
    view.widthCss = widthCss;
    if (view.isFollowing || this.#mayGrow) this.#rows = Math.max(this.#rows, rowsToShow(lane.seats, this.#used.of(lane)));
    this.#mayGrow = false;
    const edgeS = this.store.isLive ? view.edgeS : Math.min(view.edgeS, this.store.endS + view.spanS / 100);
    const scale = new SeatScale({ widthCss, rows: this.#rows, pxPerS: view.pxPerS, edgeS, ratio });
    if (this.canvas.width !== scale.width || this.canvas.height !== scale.height) {
      this.canvas.width = scale.width;
      this.canvas.height = scale.height;
      this.canvas.style.setProperty("--height", `${scale.heightCss}px`);
    }
    this.scale = scale;
    return scale;
  }
}

/** Whether something that is shown moves to the left as time goes by. */
function isMoving(lane, scale) {
  return lane.last !== null && lane.last.end_s > scale.startS;
}
