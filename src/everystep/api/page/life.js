// One request's life, in a dialog: when it came, what it waited for, where it sat, what it gave.

import { coloursOf, shortName } from "./colours.js";
import { el, show } from "./dom.js";
import { ServerError } from "./server.js";
import { duration, number, translator } from "./words.js";

const TELL_EVERY_MS = 1_000;

const lifeWords = translator({
  en: {
    title: "Request {id}",
    close: "Close",
    lane: "Lane",
    place: "Number",
    siblings: "{place} of {count} in its request",
    arrival: "Arrived",
    at: "{time} after the server's start",
    prompt: "Prompt",
    output: "Output",
    tokens: "{count} tokens",
    ttft: "First token after",
    e2e: "In all",
    seats: "Seats",
    steps: "Steps",
    computed: ({ count, held }) => (held ? `${number(count)}, and ${number(held)} held` : number(count)),
    preempted: "Preempted",
    times: ({ count }) => (count === 1 ? "once" : `${number(count)} times`),
    finish: "End",
    state: "State",
    running: "running",
    waiting: "waiting",
    finished: "finished",
    waited: "Waited for",
    nothing: "nothing: it sat down at once",
    since: "{duration} from {time}",
    forgotten: "The server remembers no such request any more; this is what the steps on this page say.",
    unknown: "Neither the server nor the steps on this page know it any more.",
    failed: "It can't be asked for: {problem}",
    causes: {
      arriving: "the next step",
      forgotten: "(before the oldest step that is remembered)",
      round_running: "the running round to end",
      no_seat: "a seat",
      no_blocks: "blocks of KV cache",
      no_budget: "the token budget",
      behind: "its turn",
    },
  },
  ko: {
    title: "요청 {id}",
    close: "닫기",
    lane: "레인",
    place: "순번",
    siblings: "요청의 {count}개 중 {place}번째",
    arrival: "도착",
    at: "서버 시작 {time} 후",
    prompt: "프롬프트",
    output: "출력",
    tokens: "토큰 {count}개",
    ttft: "첫 토큰까지",
    e2e: "전체",
    seats: "자리",
    steps: "스텝",
    computed: ({ count, held }) => (held ? `${number(count)}, 자리만 차지 ${number(held)}` : number(count)),
    preempted: "선점됨",
    times: ({ count }) => `${number(count)}번`,
    finish: "종료",
    state: "상태",
    running: "실행 중",
    waiting: "대기 중",
    finished: "끝남",
    waited: "기다린 이유",
    nothing: "없음: 바로 자리에 앉았습니다",
    since: "{time}부터 {duration}",
    forgotten: "서버가 이 요청을 더 이상 기억하지 않습니다. 이 페이지에 있는 스텝으로 보여 줍니다.",
    unknown: "서버도 이 페이지의 스텝도 이 요청을 더 이상 알지 못합니다.",
    failed: "물어볼 수 없습니다: {problem}",
    causes: {
      arriving: "다음 스텝",
      forgotten: "(기억하는 가장 오래된 스텝 이전)",
      round_running: "진행 중인 라운드의 끝",
      no_seat: "자리",
      no_blocks: "KV 캐시 블록",
      no_budget: "토큰 예산",
      behind: "차례",
    },
  },
});

export function mountLife(root, app) {
  const close = () => root.close();
  const body = el("div", {});
  root.setAttribute("aria-labelledby", "life-title");
  root.append(body, el("button", { type: "button", class: "close", text: lifeWords("close"), on: { click: close } }));
  root.addEventListener("close", () => app.view.choose(null));
  root.addEventListener("click", (event) => event.target === root && close()); // beside the box, on its backdrop
  app.view.addEventListener("choose", () => tellUntilClosed(root, body, app, app.view.chosen));
}

/** A life that goes on is told anew each second. */
async function tellUntilClosed(root, body, app, id) {
  while (id !== null) {
    const { sequence, note } = await lifeOf(app, id);
    if (app.view.chosen !== id) return; // another one was chosen meanwhile, or none
    show(body, ...contents(id, sequence, note));
    if (!root.open) root.showModal();
    if (sequence === null || sequence.finish !== null || !app.store.isLive) return;
    await new Promise((resolve) => setTimeout(resolve, TELL_EVERY_MS));
    if (app.view.chosen !== id) return;
  }
}

/** What `/requests/{id}` says of the sequence; of a recording's, and of one long gone, what the steps say. */
async function lifeOf(app, sequenceId) {
  const fromSteps = readFromSteps(app.store, sequenceId);
  if (!app.store.isLive && fromSteps !== null) return { sequence: fromSteps, note: null };
  const requestId = fromSteps?.request_id ?? sequenceId.slice(0, sequenceId.lastIndexOf("-")); // of its index
  try {
    return { sequence: sequenceOf(await app.server.json(`/requests/${encodeURIComponent(requestId)}`), sequenceId), note: null };
  } catch (error) {
    if (error.status !== 404) return { sequence: fromSteps, note: lifeWords("failed", { problem: error.message }) };
    return { sequence: fromSteps, note: lifeWords(fromSteps === null ? "unknown" : "forgotten") };
  }
}

function sequenceOf(life, sequenceId) {
  const index = life.sequences.findIndex((one) => one.sequence_id === sequenceId);
  if (index < 0) throw new ServerError(404, "not_found", sequenceId);
  const { policy, arrival_s } = life;
  return { ...life.sequences[index], policy, arrival_s, place: index + 1, num_siblings: life.sequences.length };
}

/** In the shape of `/requests/{id}`, as far as steps tell; `null` where no step knows of it. */
function readFromSteps(store, sequenceId) {
  for (const lane of store.lanes.values()) {
    const life = { policy: lane.policy, queue: null, seats: [], num_steps: 0, num_held_steps: 0, finish: null, prompt_tokens: null };
    let found = false;
    for (const step of lane.steps) {
      const row = step.rows.find((one) => one.sequence_id === sequenceId);
      const waiting = step.waiting.find((one) => one.sequence_id === sequenceId);
      if (!row && !waiting) continue;
      found = true;
      life.request_id = (row ?? waiting).request_id;
      if (waiting) life.arrival_s ??= step.start_s - waiting.waited_s;
      if (row) sit(life, row, step);
    }
    if (found) return life;
  }
  return null;
}

function sit(life, row, step) {
  if (life.seats.at(-1) !== row.seat) life.seats.push(row.seat);
  if (row.phase === "held") life.num_held_steps += 1;
  else life.num_steps += 1;
  life.finish ??= row.finish;
  if (row.finish !== null && life.arrival_s !== undefined) life.e2e_s = step.end_s - life.arrival_s;
}

function contents(id, sequence, note) {
  const swatch = el("span", { class: "swatch", vars: { "--colour": coloursOf(id).decode } });
  const title = el("h2", { id: "life-title", title: id }, swatch, ` ${lifeWords("title", { id: shortName(id) })}`);
  const facts = sequence === null ? [] : Object.entries(factsOf(sequence));
  const rows = facts.flatMap(([key, words]) => [el("dt", { text: lifeWords(key) }), el("dd", { text: words })]);
  return [
    title,
    note === null ? null : el("p", { class: "note", text: note }),
    el("dl", {}, ...rows),
    sequence === null ? null : queueList(sequence),
  ];
}

/** Key of the words → value in words; what isn't known is left out. */
function factsOf(sequence) {
  const tokens = (count) => lifeWords("tokens", { count: number(count) });
  const facts = { lane: sequence.policy, ...stateOf(sequence) };
  if (sequence.num_siblings > 1) {
    facts.place = lifeWords("siblings", { place: number(sequence.place), count: number(sequence.num_siblings) });
  }
  if (sequence.arrival_s !== undefined) facts.arrival = lifeWords("at", { time: duration(sequence.arrival_s) });
  if (sequence.prompt_tokens !== null) facts.prompt = tokens(sequence.prompt_tokens);
  if (sequence.output_tokens !== undefined) facts.output = tokens(sequence.output_tokens);
  if (sequence.ttft_s != null) facts.ttft = duration(sequence.ttft_s);
  if (sequence.e2e_s != null) facts.e2e = duration(sequence.e2e_s);
  if (sequence.seats.length) facts.seats = sequence.seats.join(", ");
  facts.steps = lifeWords("computed", { count: sequence.num_steps, held: sequence.num_held_steps });
  if (sequence.num_preemptions) facts.preempted = lifeWords("times", { count: sequence.num_preemptions });
  return facts;
}

/** How it ended, else where it is. */
function stateOf({ finish, state, num_steps }) {
  if (finish !== null) return { finish };
  return { state: lifeWords(state ?? (num_steps ? "running" : "waiting")) };
}

/** The causes of its waiting, each with how long.  Steps alone know of none that the server has forgotten. */
function queueList({ queue }) {
  if (queue === null) return null;
  if (!queue.length) return el("p", { text: `${lifeWords("waited")}: ${lifeWords("nothing")}` });
  const names = lifeWords("causes");
  const items = queue.map(({ why, from_s, duration_s }) =>
    el("li", { text: `${names[why] ?? why}: ${lifeWords("since", { duration: duration(duration_s), time: duration(from_s) })}` }),
  );
  return el("div", {}, el("h3", { text: lifeWords("waited") }), el("ol", {}, ...items));
}
