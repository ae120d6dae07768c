// What part of time is shown and what is pointed at: one for all lanes, so that they stay side by side.
// Listen for "move" (the part of time), "point" and "choose" (a sequence).

export const MIN_PX_PER_S = 1;
export const MAX_PX_PER_S = 20_000;

const FIRST_PX_PER_S = 60;

export class View extends EventTarget {
  constructor() {
    super();
    this.pxPerS = FIRST_PX_PER_S;
    this.endS = null; // the right edge in the server's time; null: now
    this.pointed = null; // sequence id
    this.chosen = null;
    this.clockOffsetS = null; // the server's clock less the page's
  }

  get isFollowing() {
    return this.endS === null;
  }

  /** The server said what time it is. */
  setClock(nowS) {
    this.clockOffsetS = nowS - performance.now() / 1000;
  }

  get nowS() {
    return this.clockOffsetS === null ? 0 : performance.now() / 1000 + this.clockOffsetS;
  }

  /** The time at the right edge. */
  get edgeS() {
    return this.endS ?? this.nowS;
  }

  /** `null` follows the present. */
  moveTo(endS) {
    this.endS = endS;
    this.dispatchEvent(new Event("move"));
  }

  /** The present, as at the beginning. */
  follow() {
    this.pxPerS = FIRST_PX_PER_S;
    this.moveTo(null);
  }

  /** `aroundS` stays where it is on the screen. */
  zoom(factor, aroundS = this.edgeS) {
    const before = this.pxPerS;
    this.pxPerS = Math.min(MAX_PX_PER_S, Math.max(MIN_PX_PER_S, before * factor));
    if (!this.isFollowing) this.endS = aroundS + ((this.endS - aroundS) * before) / this.pxPerS;
    this.dispatchEvent(new Event("move"));
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
