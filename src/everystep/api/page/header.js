// The top line: what serves, how it is, and how the page looks.

import { el, show } from "./dom.js";
import { kept } from "./kept.js";
import { LANGUAGES, language, number, speak, translator } from "./words.js";

const THEMES = ["auto", "light", "dark"];
const chosenTheme = kept("localStorage", "everystep.theme");

const headerWords = translator({
  en: {
    facts: "{model} · {runner} {precision} · {threads} · {blocks} blocks of {size} tokens · context {context}",
    threads: ({ count }) => (count === 1 ? "1 thread" : `${number(count)} threads`),
    elsewhere: "{model} · {runner} {precision} · context {context}",
    nothing: "no engine yet",
    connecting: "connecting",
    live: "live",
    starting: "not ready",
    away: "server away",
    locked: "locked",
    recording: "recording",
    language: "Language",
    theme: "Colours",
    auto: "as the system",
    light: "light",
    dark: "dark",
  },
  ko: {
    facts: "{model} · {runner} {precision} · {threads} · {size}토큰 블록 {blocks}개 · 문맥 {context}",
    threads: ({ count }) => `스레드 ${number(count)}개`,
    elsewhere: "{model} · {runner} {precision} · 문맥 {context}",
    nothing: "아직 엔진이 없습니다",
    connecting: "연결 중",
    live: "실시간",
    starting: "준비 중",
    away: "서버 응답 없음",
    locked: "잠김",
    recording: "기록 재생",
    language: "언어",
    theme: "색",
    auto: "시스템 설정",
    light: "밝게",
    dark: "어둡게",
  },
});

export function mountHeader(root, app) {
  applyTheme(theme());
  const facts = el("p", { class: "facts" });
  const state = el("span", { class: "state", role: "status" });
  show(
    root,
    el("h1", { text: "everystep" }),
    state,
    facts,
    el("div", { class: "choices" }, languageChoice(), themeChoice(app)),
  );
  const draw = () => {
    facts.textContent = factsLine(app.store.facts, app.live.state !== "locked");
    const name = stateName(app);
    state.textContent = headerWords(name);
    state.dataset.state = name;
  };
  const listen = () => {
    for (const event of ["reset", "figures"]) app.store.addEventListener(event, draw);
    draw();
  };
  app.live.addEventListener("state", draw);
  app.addEventListener("store", listen);
  listen();
}

/** `isKnown`: whether the server has said anything. */
function factsLine(facts, isKnown) {
  if (facts === null) return isKnown ? headerWords("nothing") : "";
  const { model, runner, precision, num_threads, num_blocks, block_size, max_model_len } = facts;
  const common = { model, runner, precision, context: number(max_model_len) };
  if (!num_threads) return headerWords("elsewhere", common); // a server elsewhere keeps threads and blocks to itself
  return headerWords("facts", { ...common, threads: headerWords("threads", { count: num_threads }), blocks: number(num_blocks), size: block_size });
}

function stateName(app) {
  if (!app.store.isLive) return "recording";
  if (app.live.state === "live" && app.store.figures?.is_ready === false) return "starting";
  return app.live.state;
}

function languageChoice() {
  const options = Object.entries(LANGUAGES).map(([tag, name]) =>
    el("option", { value: tag, text: name, lang: tag, selected: tag === language() }),
  );
  const select = el("select", { name: "language", on: { change: () => speak(select.value) } }, ...options);
  return el("label", {}, el("span", { text: headerWords("language") }), select);
}

function themeChoice(app) {
  const options = THEMES.map((one) =>
    el("option", { value: one, text: headerWords(one), selected: one === theme() }),
  );
  const change = () => {
    chosenTheme.set(select.value);
    applyTheme(select.value);
    app.dispatchEvent(new Event("theme"));
  };
  const select = el("select", { name: "theme", on: { change } }, ...options);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => app.dispatchEvent(new Event("theme")));
  return el("label", {}, el("span", { text: headerWords("theme") }), select);
}

/** The person's choice. */
function theme() {
  return THEMES.find((one) => one === chosenTheme.get()) ?? "auto";
}

function applyTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
}
