// A lane's seats over time: the canvas, when it is drawn, and what stands above it.

import { el, show } from "./dom.js";
import { paintWith, repaint } from "./frames.js";
import { Look, paintAxis, paintPointed, paintTile } from "./seat_paint.js";
import { steer } from "./seat_pointer.js";
import { SeatScale, ticks } from "./seat_scale.js";
import { SeatTiles } from "./seat_tiles.js";
import { mountTip } from "./seat_tip.js";
import { number, translator } from "./words.js";

const HEAD_EVERY_MS = 500;

const seatWords = translator({
  en: {
    static: "Static batching: a round runs until its last member ends; nobody looks at the queue meanwhile.",
    per_token: "Per-token batching: a fixed width, regrouped after every token.",
    continuous: "Continuous batching: a seat that frees is filled at the next step; prompts are read in chunks.",
    vllm: "vLLM schedules for itself; it tells when a request ran, but no steps.",
    other: "A policy of your own.",
    canvas: "Seats of {policy} over time. Arrow keys move from step to step and seat to seat, Enter tells a request's life.",
    counts: "{running} running · {waiting} waiting",
    shares: "seat-steps in view: {working} working, {held} held, {empty} empty",
    share: "{percent} %",
  },
  ko: {
    static: "정적 배칭: 라운드는 마지막 행이 끝날 때까지 돌고, 그동안 아무도 대기열을 보지 않습니다.",
    per_token: "토큰 단위 배칭: 고정된 폭의 배치를 토큰마다 다시 짭니다.",
    continuous: "연속 배칭: 빈 자리는 다음 스텝에 바로 채워지고, 프롬프트는 조각으로 나누어 읽습니다.",
    vllm: "vLLM은 스스로 스케줄링합니다. 요청이 언제 실행되었는지는 알려 주지만 스텝은 알려 주지 않습니다.",
    other: "직접 만든 정책입니다.",
    canvas: "{policy} 레인의 시간에 따른 자리. 화살표 키로 스텝과 자리를 옮기고 Enter로 요청의 일생을 봅니다.",
    counts: "실행 {running} · 대기 {waiting}",
    shares: "보이는 자리-스텝: 계산 {working}, 점유만 {held}, 빈자리 {empty}",
    share: "{percent} %",
  },
});

export function mountSeats(root, app, policy) {
  const canvas = el("canvas", { tabindex: "0", role: "img", "aria-label": seatWords("canvas", { policy }) });
  const counts = el("p", { class: "counts" });
  const kind = ["static", "per_token", "continuous", "vllm"].includes(policy) ? policy : "other";
  show(
    root,
    el("div", { class: "head" }, el("h2", { text: policy }), el("p", { class: "kind", text: seatWords(kind) }), counts),
    el("div", { class: "canvas" }, canvas),
  );
  const picture = new SeatPicture(canvas, app, policy);
  const tip = mountTip(root, app);
  steer(canvas, app, picture, tip);
  listen(root, app, picture);
  const timer = setInterval(() => {
    if (!root.isConnected) clearInterval(timer);
    else counts.textContent = countsLine(app, policy, picture);
  }, HEAD_EVERY_MS);
}

function listen(root, app, picture) {
  const { store, view } = app;
  const forget = () => {
    picture.forget();
    repaint();
  };
  for (const event of ["steps", "reset"]) store.addEventListener(event, event === "reset" ? forget : repaint);
  for (const event of ["move", "point"]) view.addEventListener(event, repaint);
  app.addEventListener("theme", forget);
  new ResizeObserver(repaint).observe(root);
  paintWith(root, () => picture.paint());
}

/** What is on one canvas, and where. */
class SeatPicture {
  #tiles = new SeatTiles();
  #look = null;

  constructor(canvas, app, policy) {
    this.canvas = canvas;
    this.app = app;
    this.store = app.store; // of its section; a section is made anew with another store
    this.policy = policy;
    this.scale = null;
  }

  get lane() {
    return this.store.lanes.get(this.policy);
  }

  forget() {
    this.#tiles.clear();
    this.#look = null;
  }

  paint() {
    const { lane, app } = this;
    if (lane === undefined) return;
    const scale = this.#fit(lane);
    if (this.#look === null || this.#look.ratio !== scale.ratio) this.#look = new Look(scale.ratio);
    const look = this.#look;
    const context = this.canvas.getContext("2d");
    const wholeUntilPx = lane.last === null ? -Infinity : scale.px(lane.last.end_s);
    this.#tiles.paint(context, scale, look, wholeUntilPx, (piece, tile) => paintTile(piece, scale, look, lane, tile));
    paintAxis(context, scale, look, ticks(scale));
    if (app.view.pointed !== null) paintPointed(context, scale, look, lane, app.view.pointed);
    if (app.view.isFollowing && this.store.isLive && this.#isMoving(lane, scale)) repaint();
  }

  /** Whether something that is shown moves to the left as time goes by. */
  #isMoving(lane, scale) {
    return lane.last !== null && lane.last.end_s > scale.startS;
  }

  #fit(lane) {
    const { view } = this.app;
    const ratio = devicePixelRatio;
    const widthCss = this.canvas.parentElement.clientWidth;
    const edgeS = this.store.isLive ? view.edgeS : Math.min(view.edgeS, this.store.endS);
    const scale = new SeatScale({ widthCss, seats: lane.seats, pxPerS: view.pxPerS, edgeS, ratio });
    if (this.canvas.width !== scale.width || this.canvas.height !== scale.height) {
      this.canvas.width = scale.width;
      this.canvas.height = scale.height;
      this.canvas.style.setProperty("--height", `${scale.heightCss}px`);
    }
    this.scale = scale;
    return scale;
  }
}

function countsLine(app, policy, picture) {
  const figures = app.store.isLive ? app.store.figures?.lanes[policy] : undefined;
  const parts = [];
  if (figures) parts.push(seatWords("counts", { running: number(figures.num_running), waiting: number(figures.num_waiting) }));
  const sums = seatStepsIn(picture.lane, picture.scale);
  const total = sums.working + sums.held + sums.empty;
  if (total) {
    const share = (count) => seatWords("share", { percent: number((100 * count) / total) });
    parts.push(seatWords("shares", { working: share(sums.working), held: share(sums.held), empty: share(sums.empty) }));
  }
  return parts.join(" · ");
}

/** Seats times steps of the part of time that is shown. */
function seatStepsIn(lane, scale) {
  const sums = { working: 0, held: 0, empty: 0 };
  if (lane === undefined || scale === null) return sums;
  for (let i = Math.max(0, lane.indexAt(scale.startS)); i < lane.steps.length; i++) {
    const step = lane.steps[i];
    if (step.start_s >= scale.endS) break;
    if (step.end_s <= scale.startS) continue;
    const held = step.rows.filter((row) => row.phase === "held").length;
    sums.held += held;
    sums.working += step.rows.length - held;
    sums.empty += lane.seats - step.rows.length;
  }
  return sums;
}
