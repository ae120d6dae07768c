// What is under the pointer, or under the keys' cursor, in words beside it.

import { shortName } from "./colours.js";
import { el } from "./dom.js";
import { tokensSoFar } from "./seat_known.js";
import { duration, number, translator } from "./words.js";

const APART_CSS_PX = 14; // from the pointer

const tipWords = translator({
  en: {
    seat: "seat {seat} · step {step} · {time}",
    prefill: "prefill: {tokens} new",
    decode: "decode: {tokens} new",
    held: "held: ended, its round runs on",
    context: "context {context}",
    given: ({ count }) => `${number(count)} ${count === 1 ? "token" : "tokens"} so far`,
    givenAtLeast: ({ count }) => `at least ${number(count)} ${count === 1 ? "token" : "tokens"} so far`,
    finish: "ends here: {finish}",
    empty: "empty seat",
    between: "no step of this lane",
    seated: "seated, between two steps of its lane",
    skipped: "steps {first} to {last} didn't come: this page took them too slowly",
    forgotten: "before the first step that is known here",
    again: "tap again for its life",
  },
  ko: {
    seat: "자리 {seat} · 스텝 {step} · {time}",
    prefill: "프리필: 새 토큰 {tokens}개",
    decode: "디코드: 새 토큰 {tokens}개",
    held: "점유: 끝났지만 라운드가 계속됩니다",
    context: "문맥 {context}",
    given: ({ count }) => `지금까지 토큰 ${number(count)}개`,
    givenAtLeast: ({ count }) => `지금까지 토큰 ${number(count)}개 이상`,
    finish: "여기서 끝남: {finish}",
    empty: "빈 자리",
    between: "이 레인의 스텝이 없음",
    seated: "앉아 있음, 이 레인의 두 스텝 사이",
    skipped: "스텝 {first}~{last}은(는) 오지 않았습니다. 이 페이지가 제때 받지 못했습니다",
    forgotten: "여기서 아는 첫 스텝보다 이전입니다",
    again: "한 번 더 누르면 일생을 봅니다",
  },
});

/**
 * `{ tell(found, xCss, yCss), hide() }`; `found`: `{ lane, index, step, seat, row, unknown, isWhole }`, of which step, seat, row
 * and unknown may be null; `isTouch`: a finger has no hover.
 */
export function mountTip(root) {
  const tip = el("div", { class: "tip", role: "status", hidden: true });
  root.append(tip);
  return {
    tell(found, xCss, yCss, { isTouch = false } = {}) {
      const words = tipLines(found, isTouch).join("\n");
      if (tip.textContent !== words) tip.textContent = words;
      tip.hidden = false;
      const wanted = xCss > root.clientWidth / 2 ? xCss - tip.offsetWidth - APART_CSS_PX : xCss + APART_CSS_PX;
      tip.style.setProperty("--x", `${Math.max(0, Math.min(wanted, root.clientWidth - tip.offsetWidth))}px`);
      tip.style.setProperty("--y", `${yCss + APART_CSS_PX}px`);
    },
    hide() {
      tip.hidden = true;
    },
  };
}

function tipLines({ lane, index, step, seat, row, unknown, isWhole }, isTouch) {
  if (unknown !== null) return [tipWords(unknown.first === null ? "forgotten" : "skipped", unknown)];
  if (step === null) return row === null ? [tipWords("between")] : [shortName(row.sequence_id), tipWords("seated")];
  const first = tipWords("seat", { seat, step: step.step, time: duration(step.end_s - step.start_s) });
  if (row === null) return [first, tipWords("empty")];
  const given = tokensSoFar(lane, index, row.sequence_id, isWhole);
  const sums = [tipWords("context", { context: number(row.context_tokens) })];
  if (given !== null) sums.unshift(tipWords(given.isLeast ? "givenAtLeast" : "given", given));
  return [
    first,
    shortName(row.sequence_id),
    tipWords(row.phase, { tokens: number(row.new_tokens) }),
    sums.join(" · "),
    ...(row.finish === null ? [] : [tipWords("finish", { finish: row.finish })]),
    ...(isTouch ? [tipWords("again")] : []),
  ];
}
