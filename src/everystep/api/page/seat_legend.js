// What the pictures of seats mean, as small cells with a word beside each.

import { palette } from "./colours.js";
import { el, show } from "./dom.js";
import { translator } from "./words.js";

const SAMPLE_PLACE = 3;

const legendWords = translator({
  en: {
    prefill: "reads its prompt (prefill)",
    decode: "writes a token a step (decode)",
    ended: "ends",
    seated: "seated, between steps",
    held: "held: ended, keeps its seat",
    empty: "empty seat",
    colours: "one colour per request",
  },
  ko: {
    prefill: "프롬프트 읽기(프리필)",
    decode: "스텝마다 토큰 하나 쓰기(디코드)",
    ended: "끝남",
    seated: "앉아 있음, 스텝 사이",
    held: "점유: 끝났지만 자리를 차지함",
    empty: "빈 자리",
    colours: "요청마다 한 가지 색",
  },
});

/** A list that follows the theme. */
export function seatLegend(app) {
  const list = el("ul", { class: "legend" });
  const draw = () => {
    const { decode, prefill } = palette()[SAMPLE_PLACE];
    const entry = (kind) =>
      el("li", {}, el("span", { class: `cell ${kind}`, vars: { "--decode": decode, "--prefill": prefill } }), legendWords(kind));
    show(list, ...["prefill", "decode", "seated", "ended", "held", "empty"].map(entry), el("li", { text: legendWords("colours") }));
  };
  app.addEventListener("theme", draw);
  draw();
  return list;
}
