// The waiting line of a lane: who waits, why, and for how long, at the time that the view shows.

import { coloursOf, shortName } from "./colours.js";
import { el } from "./dom.js";
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
    arriving: ({ count }) => `${number(count)} came since the last step; the next one says why`,
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
    arriving: ({ count }) => `마지막 스텝 뒤에 ${number(count)}개가 왔으며, 이유는 다음 스텝이 알려 줍니다`,
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
  const line = new WaitingLine(root, app, policy);
  // At a walking pace: the line may change with each of twenty steps a second, and nobody reads as fast.
  const timer = setInterval(() => (root.isConnected ? line.draw() : clearInterval(timer)), DRAW_EVERY_MS);
  line.draw();
}

class WaitingLine {
  #items = new Map(); // sequence id → its element: one that is pointed at, or has the focus, stays the same
  #title = el("h3", {});
  #list = el("ol", {});
  #rest = el("li", { class: "more" });

  constructor(root, app, policy) {
    this.app = app;
    this.policy = policy;
    root.append(this.#title, this.#list);
  }

  draw() {
    const { shown, numMore, numArriving } = waitingNow(this.app, this.policy);
    setText(this.#title, lineWords("title", { count: shown.length + numMore + numArriving }));
    const ids = new Set(shown.map(({ id }) => id));
    for (const id of this.#items.keys()) if (!ids.has(id)) this.#items.delete(id);
    const elements = shown.map((row) => this.#item(row));
    setText(this.#rest, restInWords(numMore, numArriving));
    if (this.#rest.textContent !== "") elements.push(this.#rest);
    place(this.#list, elements);
  }

  #item(row) {
    if (!this.#items.has(row.id)) this.#items.set(row.id, makeItem(this.app, row.id));
    const element = this.#items.get(row.id);
    setText(element.children[1], row.why);
    setText(element.children[2], row.waited);
    return element;
  }
}

/** What stands below the rows: how many more there are, and how many no step has seen yet. */
function restInWords(numMore, numArriving) {
  const parts = [];
  if (numMore > 0) parts.push(lineWords("more", { count: number(numMore) }));
  if (numArriving > 0) parts.push(lineWords("arriving", { count: numArriving }));
  return parts.join(" · ");
}

/** Of the lane's step at the view's right edge: `{ id, why, waited }` of its first, and how many aren't shown. */
function waitingNow(app, policy) {
  const { store, view } = app;
  const lane = store.lanes.get(policy);
  const step = lane?.steps[lane.indexAt(view.edgeS)];
  const told = toldSince(step, store, view, lane);
  const line = told === 0 ? [] : (lane?.waitingAt(view.edgeS) ?? []);
  const sinceS = step ? Math.max(0, Math.min(view.edgeS, latestS(app)) - step.start_s) : 0;
  const shown = line.slice(0, SHOWN).map((waiting) => ({
    id: waiting.sequence_id,
    why: causeInWords(waiting, step, lane.seats),
    waited: duration(waiting.waited_s + sinceS),
  }));
  return { shown, numMore: line.length - shown.length, numArriving: Math.max(0, (told ?? 0) - line.length) };
}

/** How many the figures say are waiting, where they are newer than the lane's last step; else `null`. */
function toldSince(step, store, view, lane) {
  if (!store.isLive || !view.isFollowing || store.figures === null || lane === undefined) return null;
  if (step !== undefined && (step !== lane.last || store.figures.now_s <= step.end_s)) return null;
  return store.figures.lanes[lane.policy]?.num_waiting ?? null;
}

/** Until when anything is known: nobody is said to wait on while the server doesn't answer. */
function latestS({ store, live }) {
  if (!store.isLive) return store.endS;
  return live.state === "live" ? Infinity : (store.figures?.now_s ?? 0);
}

function makeItem(app, id) {
  const open = el(
    "button",
    { type: "button", class: "plain", title: id, on: { click: () => app.view.choose(id) } },
    el("span", { class: "swatch", vars: { "--colour": coloursOf(id).decode } }),
    el("span", { class: "name", text: shortName(id) }),
  );
  return el("li", {}, open, el("span", { class: "why" }), el("span", { class: "waited" }));
}

function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** The children of `list`, in order; those that are there already aren't moved, as a moved one loses the focus. */
function place(list, elements) {
  const wanted = new Set(elements);
  for (const child of [...list.children]) if (!wanted.has(child)) child.remove();
  elements.forEach((element, i) => {
    if (list.children[i] !== element) list.insertBefore(element, list.children[i] ?? null);
  });
}
