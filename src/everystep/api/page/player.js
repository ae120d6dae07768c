// Plays a recording: moves the view's right edge as time goes by.

export class Player {
  static SPEEDS = [0.1, 0.25, 0.5, 1, 2, 4, 16];
  #lastMs = null; // null: it stands
  #speed = 1;

  constructor(app) {
    this.app = app;
    app.addEventListener("store", () => this.stop());
  }

  get isPlaying() {
    return this.#lastMs !== null;
  }

  setSpeed(speed) {
    this.#speed = speed;
  }

  /** At the end it begins again. */
  toggle() {
    const { store, view } = this.app;
    if (this.isPlaying) return this.stop();
    if (view.edgeS >= store.endS) view.moveTo(store.startS);
    this.#lastMs = performance.now();
    requestAnimationFrame((nowMs) => this.#go(nowMs));
  }

  stop() {
    this.#lastMs = null;
  }

  #go(nowMs) {
    if (!this.isPlaying) return;
    const { store, view } = this.app;
    const edgeS = Math.min(store.endS, view.edgeS + (Math.max(0, nowMs - this.#lastMs) / 1000) * this.#speed);
    this.#lastMs = nowMs;
    view.moveTo(edgeS);
    if (edgeS >= store.endS) return this.stop();
    requestAnimationFrame((laterMs) => this.#go(laterMs));
  }
}
