// What is under the pointer, or under the keys' cursor, in words beside it.

import { shortName } from "./colours.js";
import { el } from "./dom.js";
import { duration, number, translator } from "./words.js";

const tipWords = translator({
  en: {
    seat: "seat {seat} · step {step} · {time}",
    prefill: "prefill: {tokens} new",
    decode: "decode: {tokens} new",
    held: "held: ended, its round runs on",
    context: "context {context}",
    finish: "ends here: {finish}",
    empty: "empty seat",
    between: "no step",
  },
  ko: {
    seat: "자리 {seat} · 스텝 {step} · {time}",
    prefill: "프리필: 새 토큰 {tokens}개",
    decode: "디코드: 새 토큰 {tokens}개",
    held: "점유: 끝났지만 라운드가 계속됩니다",
    context: "문맥 {context}",
    finish: "여기서 끝남: {finish}",
    empty: "빈 자리",
    between: "스텝 없음",
  },
});

/** `{ tell(found, xCss, yCss), hide() }`; `found`: `{ step, seat, row }`, each of which may be null. */
export function mountTip(root) {
  const tip = el("div", { class: "tip", role: "status", hidden: true });
  root.append(tip);
  return {
    tell({ step, seat, row }, xCss, yCss) {
      tip.hidden = false;
      tip.textContent = tipLines(step, seat, row).join("\n");
      const isRight = xCss > root.clientWidth / 2;
      tip.style.setProperty("--x", `${isRight ? xCss - tip.offsetWidth - 14 : xCss + 14}px`);
      tip.style.setProperty("--y", `${yCss + 14}px`);
    },
    hide() {
      tip.hidden = true;
    },
  };
}

function tipLines(step, seat, row) {
  if (step === null) return [tipWords("between")];
  const first = tipWords("seat", { seat, step: step.step, time: duration(step.end_s - step.start_s) });
  if (row === null) return [first, tipWords("empty")];
  const lines = [
    first,
    shortName(row.sequence_id),
    tipWords(row.phase, { tokens: number(row.new_tokens) }),
    tipWords("context", { context: number(row.context_tokens) }),
  ];
  return row.finish === null ? lines : [...lines, tipWords("finish", { finish: row.finish })];
}
