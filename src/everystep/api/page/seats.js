// A lane's seats over time: when its picture is drawn, and what stands above it.

import { el, show } from "./dom.js";
import { paintWith, repaint } from "./frames.js";
import { SeatPicture } from "./seat_picture.js";
import { steer } from "./seat_pointer.js";
import { seatStepsOf, stepsBetween } from "./seat_steps.js";
import { mountTip } from "./seat_tip.js";
import { number, translator } from "./words.js";

const HEAD_EVERY_MS = 500;

const seatWords = translator({
  en: {
    static: "A round runs until its last member ends.",
    per_token: "A few seats, refilled after every token.",
    continuous: "Many seats, each refilled at the next step.",
    vllm: "vLLM schedules for itself; it tells when a request ran, but no steps.",
    other: "A policy of your own.",
    canvas: "Seats of {policy} over time. Arrow keys move from step to step and seat to seat, Enter tells a request's life.",
    counts: "{running} running · {waiting} waiting",
    shares: "seat-steps in view: {working} working, {held} held, {empty} empty",
    share: "{percent} %",
    shownTitle: "The others were never used.",
    shown: "{shown} of {seats} seats shown",
    skipped: "not received",
    forgotten: "not known here",
  },
  ko: {
    static: "라운드는 마지막 요청이 끝날 때까지 돕니다.",
    per_token: "몇 안 되는 자리를 토큰마다 다시 채웁니다.",
    continuous: "많은 자리를 다음 스텝에 바로 채웁니다.",
    vllm: "vLLM은 스스로 스케줄링합니다. 요청이 언제 실행되었는지는 알려 주지만 스텝은 알려 주지 않습니다.",
    other: "직접 만든 정책입니다.",
    canvas: "{policy} 레인의 시간에 따른 자리. 화살표 키로 스텝과 자리를 옮기고 Enter로 요청의 일생을 봅니다.",
    counts: "실행 {running} · 대기 {waiting}",
    shares: "보이는 자리-스텝: 계산 {working}, 점유만 {held}, 빈자리 {empty}",
    share: "{percent} %",
    shownTitle: "나머지는 쓰인 적이 없습니다.",
    shown: "{seats}자리 중 {shown}자리 표시",
    skipped: "받지 못함",
    forgotten: "여기서는 알 수 없음",
  },
});

/** `signal` ends what it listens to: its section goes when another store, or other lanes, are shown. */
export function mountSeats(root, app, policy, signal) {
  const canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": seatWords("canvas", { policy }) });
  const counts = el("p", { class: "counts", title: seatWords("shownTitle") });
  const kind = ["static", "per_token", "continuous", "vllm"].includes(policy) ? policy : "other";
  show(
    root,
    el("div", { class: "head" }, el("h2", { text: policy }), el("p", { class: "kind", text: seatWords(kind) }), counts),
    el("div", { class: "canvas" }, canvas),
  );
  const picture = new SeatPicture(canvas, app, policy, ({ first }) => seatWords(first === null ? "forgotten" : "skipped"));
  const tip = mountTip(root);
  picture.onPaint = steer(canvas, app, picture, tip);
  listen(root, app, picture, signal);
  const timer = setInterval(() => {
    if (!root.isConnected) return clearInterval(timer);
    const words = countsLine(app, policy, picture);
    if (counts.textContent !== words) counts.textContent = words;
    if (app.view.isFollowing) repaint(); // where nothing moves, time does
  }, HEAD_EVERY_MS);
}

function listen(root, app, picture, signal) {
  const { store, view } = app;
  const on = (target, event, act) => target.addEventListener(event, () => (act(), repaint()), { signal });
  on(store, "steps", () => {});
  on(store, "gap", () => {});
  on(store, "reset", () => picture.forget());
  on(view, "move", () => picture.moved());
  on(view, "point", () => {});
  on(app, "theme", () => picture.recolour());
  new ResizeObserver(([{ contentRect }]) => {
    picture.widthCss = Math.floor(contentRect.width);
    repaint();
  }).observe(picture.canvas.parentElement);
  paintWith(root, () => picture.paint());
}

function countsLine(app, policy, picture) {
  const isTold = app.store.isLive && app.live.state === "live"; // what an absent server last said isn't so any more
  const figures = isTold ? app.store.figures?.lanes[policy] : undefined;
  const parts = [];
  if (figures) parts.push(seatWords("counts", { running: number(figures.num_running), waiting: number(figures.num_waiting) }));
  const sums = seatStepsIn(picture.lane, picture.scale);
  const total = sums.working + sums.held + sums.empty;
  if (total) {
    const share = (count) => seatWords("share", { percent: number((100 * count) / total) });
    parts.push(seatWords("shares", { working: share(sums.working), held: share(sums.held), empty: share(sums.empty) }));
  }
  const seats = picture.lane?.seats ?? 0;
  if (picture.numRows && picture.numRows < seats) parts.push(seatWords("shown", { shown: number(picture.numRows), seats: number(seats) }));
  return parts.join(" · ");
}

/** Of the part of time that is shown. */
function seatStepsIn(lane, scale) {
  if (lane === undefined || scale === null) return seatStepsOf([], 0);
  return seatStepsOf(stepsBetween(lane, scale.startS, scale.endS), lane.seats);
}
