// What a run took, lane beside lane: seconds, tokens a second, who worked, who was held, what stood empty, the ratio.

import { el } from "./dom.js";
import { duration, number, translator } from "./words.js";

const reportWords = translator({
  en: {
    lane: "Lane",
    seconds: "Seconds",
    rate: "Tokens/s",
    first: "First token (median)",
    steps: "Steps",
    seats: "Seat-steps: working / held / empty",
    bar: "{working} % working, {held} % held, {empty} % empty",
    unknown: "not told",
    ratio: "{fast} was {ratio} times as fast as {slow}: the same prompts, the same tokens, the same machine.",
    same: "{fast} and {slow} took the same time.",
    rows: "Rows a step",
    costs: "An empty seat costs nothing: a step computes the rows that are there. A held one keeps somebody waiting.",
    use: "{policy}: {rows} rows shared a forward pass on average.",
    foreign: "{policy} had other requests in its batch meanwhile: {count} of the working seat-steps are theirs.",
    elsewhere: "Other lanes made {count} steps meanwhile: the seconds of {policy} hold those too.",
  },
  ko: {
    lane: "레인",
    seconds: "초",
    rate: "토큰/초",
    first: "첫 토큰(중앙값)",
    steps: "스텝",
    seats: "자리-스텝: 계산 / 점유 / 빈자리",
    bar: "계산 {working} %, 점유 {held} %, 빈자리 {empty} %",
    unknown: "알려지지 않음",
    ratio: "{fast} 레인은 {slow} 레인보다 {ratio}배 빨랐습니다. 프롬프트도, 토큰도, 기계도 같습니다.",
    same: "{fast} 레인과 {slow} 레인은 같은 시간이 걸렸습니다.",
    rows: "스텝당 행",
    costs: "빈자리는 비용이 들지 않습니다. 스텝은 앉아 있는 행만 계산합니다. 점유된 자리는 누군가를 기다리게 합니다.",
    use: "{policy}: 평균 {rows}개 행이 순전파 하나를 함께 썼습니다.",
    foreign: "그동안 {policy} 레인의 배치에는 다른 요청도 있었습니다. 계산한 자리-스텝 가운데 {count}개는 그 요청들의 것입니다.",
    elsewhere: "그동안 다른 레인들이 스텝 {count}개를 실행했으므로, {policy} 레인의 초에는 그 시간도 들어 있습니다.",
  },
});

/** What the report tells of a run, as plain data. */
export function plainRun({ policy, seconds, tokensPerS, medianFirstS, steps, seatSteps, foreign, stepsElsewhere }) {
  return { policy, seconds, tokensPerS, medianFirstS, steps, seatSteps, foreign, stepsElsewhere };
}

/** A table of runs that have ended, as plain runs, and what else ran meanwhile. */
export function tryReport(runs) {
  const names = ["lane", "seconds", "rate", "first", "steps", "rows", "seats"];
  const head = el("tr", {}, ...names.map((name) => el("th", { scope: "col", text: reportWords(name) })));
  const table = el("table", {}, el("thead", {}, head), el("tbody", {}, ...runs.map(row)));
  const notes = runs.flatMap(company).map((text) => el("p", { class: "company", text }));
  const costs = runs.some(({ seatSteps }) => seatSteps !== null) ? el("p", { class: "company", text: reportWords("costs") }) : null;
  return el("div", {}, el("div", { class: "scroll" }, table), costs, ...notes);
}

/** Whoever else had a share of the machine, as far as steps tell. */
function company({ policy, foreign, stepsElsewhere }) {
  const found = [];
  if (foreign) found.push(reportWords("foreign", { policy, count: number(foreign) }));
  if (stepsElsewhere) found.push(reportWords("elsewhere", { policy, count: number(stepsElsewhere) }));
  return found;
}

function row(run) {
  const cell = (text) => el("td", { text });
  return el(
    "tr",
    { "data-policy": run.policy },
    el("th", { scope: "row", text: run.policy }),
    cell(number(run.seconds, 2)),
    cell(number(run.tokensPerS, 1)),
    cell(run.medianFirstS === null ? "–" : duration(run.medianFirstS)),
    cell(run.seatSteps === null ? "–" : number(run.steps)),
    cell(run.seatSteps === null ? "–" : number(run.seatSteps.working / run.steps, 1)),
    el("td", {}, ...seatCells(run.seatSteps)),
  );
}

function seatCells(sums) {
  if (sums === null) return [el("span", { text: reportWords("unknown") })];
  const total = sums.working + sums.held + sums.empty;
  const percent = (name) => number((100 * sums[name]) / total);
  const words = { working: percent("working"), held: percent("held"), empty: percent("empty") };
  const parts = Object.keys(words).map((name) => el("i", { class: name, vars: { "--share": String(sums[name] / total) } }));
  return [
    el("span", { text: `${number(sums.working)} / ${number(sums.held)} / ${number(sums.empty)}` }),
    el("span", { class: "shares", role: "img", "aria-label": reportWords("bar", words) }, ...parts),
  ];
}

/** What follows from the runs, in one sentence; "" where nothing does. */
export function tryConclusion(runs) {
  if (!runs.length) return "";
  if (runs.length === 1) return useOf(runs[0]);
  const sorted = [...runs].sort((a, b) => a.seconds - b.seconds);
  const [fast, slow] = [sorted[0], sorted.at(-1)];
  const ratio = slow.seconds / fast.seconds;
  const names = { fast: fast.policy, slow: slow.policy, ratio: number(ratio, 1) };
  return reportWords(ratio < 1.05 ? "same" : "ratio", names);
}

function useOf({ policy, seatSteps, steps }) {
  return seatSteps === null ? "" : reportWords("use", { policy, rows: number(seatSteps.working / steps, 1) });
}
