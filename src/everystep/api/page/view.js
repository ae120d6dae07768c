// What part of time is shown and what is pointed at: one for all lanes, so that they stay side by side.
// Listen for "move" (the part of time), "point" and "choose" (a sequence).

export const MIN_PX_PER_S = 0.2; // an hour and more on a screen
export const MAX_PX_PER_S = 20_000; // a step of a millisecond is 20 wide

const FIRST_PX_PER_S = 50;
const NEW_CLOCK_S = 2; // a reply that is as late isn't late: another server's clock tells its time
const DRIFT_SHARE = 0.02; // of what a reply is later than the fastest, as clocks may drift

export class View extends EventTarget {
  constructor() {
    super();
    this.pxPerS = FIRST_PX_PER_S;
    this.endS = null; // the right edge in the server's time; null: now
    this.widthCss = 1000; // of the lanes' canvases; set by them
    this.pointed = null; // sequence id
    this.chosen = null;
    this.clockOffsetS = null; // the server's clock less the page's
    this.heldS = null; // where the clock stands while no server answers
    this.store = null; // what is shown; set by the app
  }

  /** Behind it there is nothing: the present, or a recording's end. */
  get lastS() {
    return this.store?.isLive === false ? this.store.endS : this.nowS;
  }

  get isFollowing() {
    return this.endS === null;
  }

  /** The server said what time it is; the reply was under way for a while, so that the fastest is the truest. */
  setClock(nowS) {
    this.heldS = null;
    const offsetS = nowS - performance.now() / 1000;
    const lateS = (this.clockOffsetS ?? -Infinity) - offsetS;
    const isTruer = lateS <= 0 || lateS > NEW_CLOCK_S;
    this.clockOffsetS = isTruer ? offsetS : this.clockOffsetS - lateS * DRIFT_SHARE;
  }

  /** Nobody knows of a later time than this, until the server says what time it is. */
  holdClock() {
    this.heldS = this.nowS;
  }

  get nowS() {
    if (this.heldS !== null) return this.heldS;
    return this.clockOffsetS === null ? 0 : performance.now() / 1000 + this.clockOffsetS;
  }

  /** The time at the right edge. */
  get edgeS() {
    return this.endS ?? this.nowS;
  }

  /** Seconds from the left edge to the right. */
  get spanS() {
    return this.widthCss / this.pxPerS;
  }

  /** `null` follows the present. */
  moveTo(endS) {
    this.endS = endS;
    this.dispatchEvent(new Event("move"));
  }

  /** Within what there is; who comes to the present follows it again. */
  moveBy(seconds) {
    const { store, lastS } = this;
    const endS = this.edgeS + seconds;
    if (store.isLive && endS >= lastS) this.moveTo(null);
    else this.moveTo(Math.max(Math.min(store.startS, lastS), Math.min(lastS, endS)));
  }

  /** The present, as at the beginning. */
  follow() {
    this.pxPerS = FIRST_PX_PER_S;
    this.moveTo(null);
  }

  /** `aroundS` stays where it is on the screen; while the present is followed, the present does. */
  zoom(factor, aroundS = this.edgeS - this.spanS / 2) {
    const before = this.pxPerS;
    this.pxPerS = Math.min(MAX_PX_PER_S, Math.max(MIN_PX_PER_S, before * factor));
    if (!this.isFollowing) this.endS = Math.min(this.lastS, aroundS + ((this.endS - aroundS) * before) / this.pxPerS);
    this.dispatchEvent(new Event("move"));
  }

  /** From one time to another, as wide as it goes; `isFollowing` keeps the right edge at the present. */
  showAll(fromS, toS, { isFollowing = false } = {}) {
    const spanS = Math.max(0.001, toS - fromS) * 1.02; // some room at the edges
    this.pxPerS = Math.min(MAX_PX_PER_S, Math.max(MIN_PX_PER_S, this.widthCss / spanS));
    this.moveTo(isFollowing ? null : toS + 0.01 * (toS - fromS));
  }

  point(sequenceId) {
    if (sequenceId === this.pointed) return;
    this.pointed = sequenceId;
    this.dispatchEvent(new Event("point"));
  }

  choose(sequenceId) {
    this.chosen = sequenceId;
    this.dispatchEvent(new Event("choose"));
  }
}
