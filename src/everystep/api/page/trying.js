// "Try it": some prompts at once to one lane, or to all lanes in turn, their texts as they come, and what it took.

import { coloursOf } from "./colours.js";
import { el, show } from "./dom.js";
import { tokensAsked, variedPrompts } from "./try_prompts.js";
import { tryReport } from "./try_report.js";
import { TryRun } from "./try_run.js";
import { number, translator } from "./words.js";

const COUNTS = [1, 4, 16, 64];
const ALL = "*"; // no lane has this name
const SAMPLE = "The bus leaves every morning at seven, and";

const tryWords = translator({
  en: {
    title: "Try it",
    intro: "Send some prompts of varied lengths at once and watch them take their seats below. Each lane gets the same work.",
    prompt: "Prompt",
    lane: "Lane",
    all: "all lanes in turn",
    count: "Prompts at once",
    send: "Send",
    stop: "Stop",
    sending: "{policy}: {done} of {asked} tokens",
    stopped: "stopped",
    failed: "{policy}: {problem}",
    texts: "Texts of {policy}",
  },
  ko: {
    title: "직접 해 보기",
    intro: "길이가 다른 프롬프트 여러 개를 한꺼번에 보내고, 아래에서 자리에 앉는 모습을 지켜보세요. 모든 레인이 같은 일을 받습니다.",
    prompt: "프롬프트",
    lane: "레인",
    all: "모든 레인을 차례로",
    count: "동시에 보낼 개수",
    send: "보내기",
    stop: "멈추기",
    sending: "{policy}: 토큰 {asked}개 중 {done}개",
    stopped: "멈췄습니다",
    failed: "{policy}: {problem}",
    texts: "{policy}의 텍스트",
  },
});

export function mountTry(root, app) {
  new TryPanel(root, app);
}

class TryPanel {
  #abort = null; // of what runs
  #runNumber = Math.floor(Date.now() / 1000) % 100_000; // no prompt is that of an earlier visit

  constructor(root, app) {
    this.app = app;
    this.prompt = el("textarea", { rows: "2", maxlength: "2000", name: "prompt" });
    this.prompt.value = SAMPLE;
    this.lane = el("select", { name: "lane" });
    this.counts = COUNTS.map((count) => this.#countChoice(count));
    this.send = el("button", { class: "main", text: tryWords("send") });
    this.stop = el("button", { type: "button", text: tryWords("stop"), disabled: true, on: { click: () => this.#abort?.abort() } });
    this.progress = el("p", { class: "progress", role: "status" });
    this.report = el("div", { class: "report" });
    this.texts = el("div", { class: "texts" });
    show(root, el("h2", { text: tryWords("title") }), el("p", { class: "intro", text: tryWords("intro") }), this.#form(), this.progress, this.report, this.texts);
    app.liveStore.addEventListener("reset", () => this.#offerLanes());
    this.#offerLanes();
  }

  #form() {
    const submit = (event) => {
      event.preventDefault();
      this.#start();
    };
    const keydown = (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !this.send.disabled) this.#start();
    };
    return el(
      "form",
      { on: { submit, keydown } },
      el("label", { class: "prompt" }, el("span", { text: tryWords("prompt") }), this.prompt),
      el("label", {}, el("span", { text: tryWords("lane") }), this.lane),
      el("fieldset", {}, el("legend", { text: tryWords("count") }), ...this.counts),
      el("div", { class: "buttons" }, this.send, this.stop),
    );
  }

  #countChoice(count) {
    const input = el("input", { type: "radio", name: "count", value: String(count), checked: count === 16 });
    return el("label", { class: "count" }, input, el("span", { text: String(count) }));
  }

  /** Lanes of the live server, those that vLLM serves too. */
  #offerLanes() {
    const chosen = this.lane.value || ALL;
    const policies = Object.keys(this.app.liveStore.figures?.lanes ?? {});
    const names = policies.length ? policies : [...this.app.liveStore.lanes.keys()];
    show(
      this.lane,
      el("option", { value: ALL, text: tryWords("all") }),
      ...names.map((policy) => el("option", { value: policy, text: policy })),
    );
    this.lane.value = names.includes(chosen) ? chosen : ALL;
  }

  get #policies() {
    const all = [...this.lane.options].map((option) => option.value).filter((value) => value !== ALL);
    return this.lane.value === ALL ? all : [this.lane.value];
  }

  async #start() {
    const count = Number(this.counts.map((label) => label.firstChild).find((input) => input.checked).value);
    const prompts = variedPrompts(this.prompt.value, count, ++this.#runNumber);
    const runs = [];
    this.#abort = new AbortController();
    this.#enable(false);
    show(this.report);
    this.app.show(this.app.liveStore);
    this.app.view.moveTo(null);
    try {
      for (const policy of this.#policies) {
        const run = new TryRun(this.app, policy, prompts);
        await this.#watch(run);
        runs.push(run);
        show(this.report, tryReport(runs));
      }
      this.progress.textContent = "";
    } catch (error) {
      const policy = this.#policies[runs.length];
      const isStopped = this.#abort.signal.aborted;
      this.progress.textContent = isStopped ? tryWords("stopped") : tryWords("failed", { policy, problem: error.message });
    } finally {
      this.#enable(true);
    }
  }

  #enable(isFree) {
    this.send.disabled = !isFree;
    this.stop.disabled = isFree;
  }

  /** The texts as they come: each changes its own element and nothing else. */
  async #watch(run) {
    const asked = tokensAsked(run.prompts);
    const bodies = run.prompts.map(() => el("span", {}));
    const cards = bodies.map((body) => el("li", {}, el("span", { class: "swatch" }), body));
    show(this.texts, el("h3", { text: tryWords("texts", { policy: run.policy }) }), el("ol", {}, ...cards));
    await run.run(this.#abort.signal, (index) => {
      if (index === null) cards.forEach((card, i) => this.#paint(card, run.sequenceId(i)));
      else bodies[index].textContent = run.texts[index];
      this.progress.textContent = tryWords("sending", { policy: run.policy, done: number(run.tokens), asked: number(asked) });
    });
  }

  #paint(card, sequenceId) {
    card.firstChild.style.setProperty("--colour", coloursOf(sequenceId).decode);
    card.addEventListener("pointerenter", () => this.app.view.point(sequenceId));
    card.addEventListener("pointerleave", () => this.app.view.point(null));
  }
}
