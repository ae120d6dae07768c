// Pointing at seats: hover, click, drag, wheel, two fingers and keys, on one lane's canvas.

const DRAG_CSS_PX = 4; // less is a click
const WHEEL_ZOOM = 1.0018; // a factor per unit of the wheel

/** `picture`: where things are (`scale`, `lane`); `tip`: where to say what they are. */
export function steer(canvas, app, picture, tip) {
  const hand = new Hand(canvas, app, picture, tip);
  const on = (event, act, options) => canvas.addEventListener(event, act, options);
  on("pointermove", (event) => hand.move(event));
  on("pointerdown", (event) => hand.press(event));
  on("pointerup", (event) => hand.lift(event));
  on("pointercancel", (event) => hand.forget(event));
  on("pointerleave", () => hand.leave());
  on("wheel", (event) => hand.wheel(event), { passive: false });
  on("keydown", (event) => hand.key(event));
  on("blur", () => hand.leave());
}

class Hand {
  #pressed = new Map(); // pointer id → { x, y }: one drags, two zoom
  #dragged = 0;
  #cursor = null; // { index, seat } of the keys

  constructor(canvas, app, picture, tip) {
    Object.assign(this, { canvas, app, picture, tip });
  }

  move(event) {
    const before = this.#pressed.get(event.pointerId);
    const now = { x: event.offsetX, y: event.offsetY };
    if (before === undefined) return this.#point(now);
    this.#pressed.set(event.pointerId, now);
    if (this.#pressed.size === 1) this.#drag(now.x - before.x);
    else this.#pinch(event.pointerId, before, now);
  }

  press(event) {
    if (event.button !== 0) return;
    this.#pressed.set(event.pointerId, { x: event.offsetX, y: event.offsetY });
    this.#dragged = 0;
    this.canvas.setPointerCapture(event.pointerId);
  }

  lift(event) {
    const wasPressed = this.#pressed.delete(event.pointerId);
    if (!wasPressed || this.#pressed.size || this.#dragged > DRAG_CSS_PX) return;
    const { row } = this.#found({ x: event.offsetX, y: event.offsetY });
    if (row !== null) this.app.view.choose(row.sequence_id);
  }

  forget(event) {
    this.#pressed.delete(event.pointerId);
  }

  leave() {
    this.#cursor = null;
    this.tip.hide();
    this.app.view.point(null);
  }

  /** Up and down are the page's; with Ctrl, as a touchpad's pinch has it, they zoom; sideways is time. */
  wheel(event) {
    const { view } = this.app;
    if (event.ctrlKey || event.metaKey) view.zoom(WHEEL_ZOOM ** -event.deltaY, this.picture.scale.timeAt(event.offsetX));
    else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.#pan(event.deltaX);
    else return;
    event.preventDefault();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const acts = {
      ArrowLeft: () => this.#step(-1, 0),
      ArrowRight: () => this.#step(1, 0),
      ArrowUp: () => this.#step(0, -1),
      ArrowDown: () => this.#step(0, 1),
      Enter: () => this.#open(),
    };
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  }

  #point(at) {
    const found = this.#found(at);
    this.app.view.point(found.row?.sequence_id ?? null);
    if (found.seat === null) this.tip.hide();
    else this.tip.tell(found, at.x + this.canvas.offsetLeft, at.y + this.canvas.offsetTop);
  }

  #drag(byCss) {
    this.#dragged += Math.abs(byCss);
    if (this.#dragged > DRAG_CSS_PX) this.#pan(-byCss);
  }

  #pan(byCss) {
    const { view } = this.app;
    view.moveTo(view.edgeS + byCss / view.pxPerS);
  }

  #pinch(id, before, now) {
    this.#dragged = Infinity;
    const other = [...this.#pressed].find(([key]) => key !== id)[1];
    const apart = (one) => Math.max(10, Math.hypot(one.x - other.x, one.y - other.y));
    this.app.view.zoom(apart(now) / apart(before), this.picture.scale.timeAt((now.x + other.x) / 2));
  }

  #found({ x, y }) {
    const { scale, lane } = this.picture;
    if (scale === null || lane === undefined) return { step: null, seat: null, row: null };
    const seat = scale.seatAt(y);
    const atS = scale.timeAt(x);
    const begun = lane.steps[lane.indexAt(atS)];
    const step = begun !== undefined && atS < begun.end_s ? begun : null;
    return { step, seat, row: step?.rows.find((row) => row.seat === seat) ?? null };
  }

  /** The cursor stops time: who reads a step doesn't want it to run away. */
  #step(bySteps, bySeats) {
    const { scale, lane } = this.picture;
    if (!lane?.steps.length) return;
    const start = this.#cursor ?? { index: Math.max(0, lane.indexAt(scale.endS)), seat: 0 };
    const clamp = (value, most) => Math.max(0, Math.min(most, value));
    const moved = this.#cursor === null ? start : { index: start.index + bySteps, seat: start.seat + bySeats };
    const index = clamp(moved.index, lane.steps.length - 1);
    const seat = clamp(moved.seat, lane.seats - 1);
    this.#cursor = { index, seat };
    const step = lane.steps[index];
    if (step.end_s > scale.endS || step.start_s < scale.startS || this.app.view.isFollowing) {
      this.app.view.moveTo(step.end_s + scale.widthCss / 4 / this.app.view.pxPerS);
    }
    const row = step.rows.find((one) => one.seat === seat) ?? null;
    this.app.view.point(row?.sequence_id ?? null);
    requestAnimationFrame(() => this.#tellAt(step, seat, row)); // the picture has moved by then
  }

  #tellAt(step, seat, row) {
    const { scale } = this.picture;
    const x = (scale.px(step.end_s) - scale.left) / scale.ratio;
    this.tip.tell({ step, seat, row }, x + this.canvas.offsetLeft, (seat + 0.5) * (scale.row / scale.ratio) + this.canvas.offsetTop);
  }

  #open() {
    if (this.app.view.pointed !== null) this.app.view.choose(this.app.view.pointed);
  }
}
