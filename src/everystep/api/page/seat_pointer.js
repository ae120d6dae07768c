// Pointing at seats: hover, click, drag, wheel, two fingers and keys, on one lane's canvas.

const DRAG_CSS_PX = 4; // less is a click
const WHEEL_ZOOM = 1.0018; // a factor per unit of the wheel
const LOOK_AGAIN_MS = 150; // where a pointer rests and the picture moves on under it

/** `picture`: where things are; `tip`: where to say what they are.  Returns what to call when the picture was drawn. */
export function steer(canvas, app, picture, tip) {
  const hand = new Hand(canvas, app, picture, tip);
  const on = (event, act, options) => canvas.addEventListener(event, act, options);
  on("pointermove", (event) => hand.move(event));
  on("pointerdown", (event) => hand.press(event));
  on("pointerup", (event) => hand.lift(event));
  on("pointercancel", (event) => hand.forget(event));
  on("pointerleave", (event) => hand.leave(event));
  on("wheel", (event) => hand.wheel(event), { passive: false });
  on("keydown", (event) => hand.key(event));
  on("blur", () => hand.leave());
  return () => hand.lookAgain();
}

class Hand {
  #pressed = new Map(); // pointer id → { x, y }: one drags, two zoom
  #dragged = 0;
  #cursor = null; // { step, seat } of the keys
  #resting = null; // { x, y } of a mouse over the picture
  #lookedMs = 0;

  constructor(canvas, app, picture, tip) {
    Object.assign(this, { canvas, app, picture, tip });
  }

  move(event) {
    const before = this.#pressed.get(event.pointerId);
    const now = { x: event.offsetX, y: event.offsetY };
    if (before === undefined) return event.pointerType === "touch" ? undefined : this.#point(now);
    this.#pressed.set(event.pointerId, now);
    if (this.#pressed.size === 1) this.#drag(now.x - before.x);
    else this.#pinch(event.pointerId, before, now);
  }

  lookAgain() {
    const nowMs = performance.now();
    if (this.#resting === null || this.#pressed.size || nowMs - this.#lookedMs < LOOK_AGAIN_MS) return;
    this.#point(this.#resting);
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
    const at = { x: event.offsetX, y: event.offsetY };
    const id = this.#found(at).row?.sequence_id ?? null;
    const isTold = event.pointerType !== "touch" || (id !== null && id === this.app.view.pointed);
    if (!isTold) this.#tell(at, { isTouch: true });
    else if (id !== null) this.app.view.choose(id);
  }

  forget(event) {
    this.#pressed.delete(event.pointerId);
  }

  /** A finger that was lifted leaves what it asked for. */
  leave(event) {
    if (event?.pointerType === "touch") return;
    this.#cursor = null;
    this.#resting = null;
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
    this.#resting = at;
    this.#lookedMs = performance.now();
    this.#tell(at);
  }

  #tell(at, options = {}) {
    const found = this.#found(at);
    this.app.view.point(found.row?.sequence_id ?? null);
    if (found.seat === null) this.tip.hide();
    else this.tip.tell(found, at.x + this.canvas.offsetLeft, at.y + this.canvas.offsetTop, options);
  }

  #drag(byCss) {
    this.#dragged += Math.abs(byCss);
    if (this.#dragged > DRAG_CSS_PX) this.#pan(-byCss);
  }

  #pan(byCss) {
    const { view } = this.app;
    view.moveBy(byCss / view.pxPerS);
  }

  #pinch(id, before, now) {
    this.#dragged = Infinity;
    const other = [...this.#pressed].find(([key]) => key !== id)[1]; // there are two at least
    const apart = (one) => Math.max(10, Math.hypot(one.x - other.x, one.y - other.y));
    this.app.view.zoom(apart(now) / apart(before), this.picture.scale.timeAt((now.x + other.x) / 2));
  }

  #found({ x, y }) {
    const { scale, lane } = this.picture;
    const { isWhole } = this.picture;
    const nothing = { lane, isWhole, index: null, step: null, seat: null, row: null, unknown: null };
    if (scale === null || lane === undefined) return nothing;
    const seat = scale.seatAt(y);
    const atS = scale.timeAt(x);
    const index = lane.indexAt(atS);
    const step = lane.steps[index];
    if (step !== undefined && atS < step.end_s) return { ...nothing, index, step, seat, row: rowAt(step, seat) };
    const unknown = this.picture.unknown.find(({ fromS, toS }) => fromS <= atS && atS < toS) ?? null;
    const before = unknown === null && step !== undefined ? rowAt(step, seat) : null;
    const after = before === null || index + 1 === lane.steps.length ? null : rowAt(lane.steps[index + 1], seat);
    const isKept = after !== null && after.sequence_id === before.sequence_id; // other lanes have their turn
    return { ...nothing, seat, unknown, row: isKept ? before : null };
  }

  /** The cursor stops time: who reads a step doesn't want it to run away. */
  #step(bySteps, bySeats) {
    const { scale, lane } = this.picture;
    if (scale === null || !lane?.steps.length) return;
    const within = (value, count) => Math.max(0, Math.min(count - 1, value));
    const isFirst = this.#cursor === null;
    const before = lane.indexAt(isFirst ? scale.endS : this.#cursor.step.start_s);
    const index = within(isFirst ? before : before + bySteps, lane.steps.length);
    const seat = within(isFirst ? 0 : this.#cursor.seat + bySeats, scale.rows);
    const step = lane.steps[index];
    this.#cursor = { step, seat };
    this.#resting = null;
    this.#bringIntoView(step);
    const row = rowAt(step, seat);
    this.app.view.point(row?.sequence_id ?? null);
    const found = { lane, isWhole: this.picture.isWhole, index, step, seat, row, unknown: null };
    requestAnimationFrame(() => this.#tellAt(found)); // the picture has moved by then
  }

  #bringIntoView(step) {
    const { scale } = this.picture;
    const { view, store } = this.app;
    if (view.isFollowing) view.moveTo(scale.endS);
    if (step.end_s > scale.endS || step.start_s < scale.startS) view.moveTo(Math.max(step.end_s + view.spanS / 4, Math.min(store.endS, view.spanS)));
  }

  #tellAt(found) {
    const { scale } = this.picture;
    const x = (scale.px(found.step.end_s) - scale.left) / scale.ratio;
    const y = (found.seat + 0.5) * (scale.row / scale.ratio);
    this.tip.tell(found, x + this.canvas.offsetLeft, y + this.canvas.offsetTop);
  }

  #open() {
    if (this.app.view.pointed !== null) this.app.view.choose(this.app.view.pointed);
  }
}

function rowAt(step, seat) {
  return step.rows.find((row) => row.seat === seat) ?? null;
}
