// The waiting line of a lane: who waits, why, and for how long, at the time that the view shows.

import { coloursOf, shortName } from "./colours.js";
import { el, show } from "./dom.js";
import { duration, number, translator } from "./words.js";

const SHOWN = 12; // rows; a line of hundreds is told as a number
const DRAW_EVERY_MS = 250;

const lineWords = translator({
  en: {
    title: ({ count }) => (count ? `Waiting: ${number(count)}` : "Nobody waits"),
    more: "and {count} more",
    round_running: ({ rows }) => `round running: ${rows} ${rows === 1 ? "row" : "rows"} still generating`,
    no_seat: ({ seats }) => `no seat free: all ${seats} taken`,
    no_blocks: "no block free: needs {needs}, {free} free",
    claimed_blocks: "needs {needs} blocks; the {free} free ones are kept for another lane, whose turn came first",
    preempted_blocks: "no block free: running sequences needed them",
    no_budget: "the token budget of this step is spent",
    behind: "behind {who}",
    unrecorded: "the recording doesn't say why",
  },
  ko: {
    title: ({ count }) => (count ? `대기: ${number(count)}` : "기다리는 요청이 없습니다"),
    more: "외 {count}개",
    round_running: "라운드 진행 중: {rows}개 행이 아직 생성 중입니다",
    no_seat: "빈 자리가 없습니다: {seats}자리가 모두 찼습니다",
    no_blocks: "빈 블록이 없습니다: {needs}개가 필요하고 {free}개가 비어 있습니다",
    claimed_blocks: "블록 {needs}개가 필요하며, 비어 있는 {free}개는 먼저 온 다른 레인의 몫입니다",
    preempted_blocks: "빈 블록이 없습니다: 실행 중인 시퀀스가 가져갔습니다",
    no_budget: "이번 스텝의 토큰 예산을 모두 썼습니다",
    behind: "{who} 뒤에서 기다립니다",
    unrecorded: "기록에 이유가 없습니다",
  },
});

/** Why a sequence waits, in words.  `waiting`: its row in `/steps`; `step`: that step; `seats`: of the lane. */
export function causeInWords(waiting, step, seats) {
  switch (waiting.why) {
    case "round_running":
      return lineWords("round_running", { rows: step.rows.filter((row) => row.phase !== "held").length });
    case "no_seat":
      return lineWords("no_seat", { seats });
    case "no_blocks":
      return blocksInWords(waiting.needs_blocks, step.blocks_total - step.blocks_used);
    case "no_budget":
      return lineWords("no_budget");
    case "behind":
      return lineWords("behind", { who: shortName(waiting.behind) });
    default:
      return lineWords("unrecorded");
  }
}

function blocksInWords(needs, free) {
  if (needs === undefined) return lineWords("preempted_blocks");
  return lineWords(free < needs ? "no_blocks" : "claimed_blocks", { needs: number(needs), free: number(free) });
}

export function mountLine(root, app, policy) {
  const title = el("h3", {});
  const list = el("ol", {});
  root.append(title, list);
  let drawn = "";
  const draw = () => {
    const rows = waitingAt(app, policy);
    const wanted = JSON.stringify(rows);
    if (wanted === drawn) return;
    drawn = wanted;
    title.textContent = lineWords("title", { count: rows.length });
    const more = rows.length - SHOWN;
    const rest = more > 0 ? [el("li", { class: "more", text: lineWords("more", { count: number(more) }) })] : [];
    show(list, ...rows.slice(0, SHOWN).map((row) => item(app, row)), ...rest);
  };
  // At a walking pace: the line may change with each of twenty steps a second, and nobody reads as fast.
  const timer = setInterval(() => (root.isConnected ? draw() : clearInterval(timer)), DRAW_EVERY_MS);
  draw();
}

/** `{ id, why, waited }` of each waiting sequence in the lane's step at the view's right edge. */
function waitingAt({ store, view }, policy) {
  const lane = store.lanes.get(policy);
  const step = lane?.steps[lane.indexAt(view.edgeS)];
  if (!step || isOver(step, store, view, lane)) return [];
  const sinceS = Math.max(0, Math.min(view.edgeS, store.isLive ? Infinity : store.endS) - step.start_s);
  return step.waiting.map((waiting) => ({
    id: waiting.sequence_id,
    why: causeInWords(waiting, step, lane.seats),
    waited: duration(waiting.waited_s + sinceS),
  }));
}

/** Whether the figures say that nobody waits there any more: who left in between, no step tells. */
function isOver(step, store, view, lane) {
  if (!store.isLive || !view.isFollowing || step !== lane.last) return false;
  return store.figures !== null && store.figures.lanes[lane.policy]?.num_waiting === 0 && store.figures.now_s > step.end_s;
}

function item(app, { id, why, waited }) {
  const open = el(
    "button",
    { type: "button", class: "plain", title: id, on: { click: () => app.view.choose(id) } },
    el("span", { class: "swatch", vars: { "--colour": coloursOf(id).decode } }),
    el("span", { class: "name", text: shortName(id) }),
  );
  return el("li", {}, open, el("span", { class: "why", text: why }), el("span", { class: "waited", text: waited }));
}
