// "Try it": some prompts at once to one lane, or to all lanes in turn, their texts as they come, and what it took.

import { coloursOf, shortName } from "./colours.js";
import { el, show } from "./dom.js";
import { kept } from "./kept.js";
import { ServerError } from "./server.js";
import { areShortened, NO_LIMITS, tokensAsked, variedPrompts } from "./try_prompts.js";
import { plainRun, tryConclusion, tryReport } from "./try_report.js";
import { TryRun } from "./try_run.js";
import { TrySight } from "./try_sight.js";
import { number, translator } from "./words.js";

const COUNTS = [1, 4, 16, 64];
const ALL = "*"; // no lane has this name
const ONE_LANES = new Set([200, 400, 422, 429, 503, 504]); // statuses after which another lane may do better; 200: within its stream
const SAMPLE = "The bus leaves every morning at seven, and";
const keptReport = kept("sessionStorage", "everystep.report"); // while the language changes

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
    shortened: "Shorter than usual: this model has room for {context} tokens.",
    refused: "{policy}: {why}. The server says: {problem}",
    lost: "{policy}: the connection broke before the end.",
    empty: "There is no prompt to send.",
    texts: "Texts of {policy}",
    open: "Life of {who}",
    causes: {
      400: "refused",
      401: "the API key isn't accepted",
      413: "refused",
      422: "refused",
      429: "the line is full",
      503: "not served now",
      504: "not done in time",
      other: "failed",
    },
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
    shortened: "평소보다 짧습니다. 이 모델의 문맥은 토큰 {context}개입니다.",
    refused: "{policy}: {why}. 서버의 말: {problem}",
    lost: "{policy}: 끝나기 전에 연결이 끊겼습니다.",
    empty: "보낼 프롬프트가 없습니다.",
    texts: "{policy}의 텍스트",
    open: "{who}의 일생",
    causes: {
      400: "거절되었습니다",
      401: "API 키가 받아들여지지 않았습니다",
      413: "거절되었습니다",
      422: "거절되었습니다",
      429: "대기열이 가득 찼습니다",
      503: "지금은 처리되지 않습니다",
      504: "제시간에 끝나지 않았습니다",
      other: "실패했습니다",
    },
  },
});

export function mountTry(root, app) {
  new TryPanel(root, app);
}

class TryPanel {
  #abort = null; // of what runs
  #runNumber = Math.floor(Date.now() / 1000) % 100_000; // no prompt is that of an earlier visit
  #offered = "";
  #lastFailure = null; // { error, policies, element }
  #reported = []; // runs that the report tells

  constructor(root, app) {
    this.app = app;
    this.prompt = el("textarea", { rows: "1", maxlength: "2000", name: "prompt" });
    this.prompt.value = SAMPLE;
    this.lane = el("select", { name: "lane" });
    this.counts = COUNTS.map((count) => this.#countChoice(count));
    this.send = el("button", { class: "main", text: tryWords("send"), disabled: true }); // until the lanes are known
    this.stop = el("button", { type: "button", text: tryWords("stop"), disabled: true, on: { click: () => this.#abort?.abort() } });
    this.progress = el("p", { class: "progress" });
    this.problems = el("div", { class: "problems", role: "alert" });
    this.report = el("div", { class: "report" });
    this.conclusion = el("p", { class: "ratio", role: "status" });
    this.texts = el("div", { class: "texts" });
    const title = el("h2", { id: "try-title", text: tryWords("title") });
    root.setAttribute("aria-labelledby", "try-title");
    const head = el("div", { class: "head" }, title, el("p", { class: "intro", text: tryWords("intro") }), this.progress);
    const told = el("div", { class: "told" }, this.report, this.conclusion);
    this.sides = el("div", { class: "sides", hidden: true }, told, this.texts); // shown with the first run, and then for good
    show(root, head, this.#form(), this.problems, this.sides);
    for (const event of ["reset", "figures"]) app.liveStore.addEventListener(event, () => this.#offerLanes());
    this.#offerLanes();
    document.addEventListener("speak", () => keptReport.set(JSON.stringify(this.#reported)));
    this.#tellReport(JSON.parse(keptReport.get() ?? "[]"));
    keptReport.set(null);
  }

  /** Of the runs so far. */
  #tellReport(runs) {
    this.#reported = runs;
    show(this.report, runs.length ? tryReport(runs) : null);
    this.conclusion.textContent = tryConclusion(runs);
    if (runs.length) this.sides.hidden = false;
  }

  #form() {
    const submit = (event) => {
      event.preventDefault();
      this.#start();
    };
    const keydown = (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.isComposing) this.#start();
    };
    return el(
      "form",
      { on: { submit, keydown } },
      el("label", { class: "prompt" }, el("span", { text: tryWords("prompt") }), this.prompt),
      el("label", {}, el("span", { text: tryWords("lane") }), this.lane),
      el("fieldset", {}, el("legend", { text: tryWords("count") }), el("div", { class: "counts" }, ...this.counts)),
      el("div", { class: "buttons" }, this.send, this.stop),
    );
  }

  #countChoice(count) {
    const input = el("input", { type: "radio", name: "count", value: String(count), checked: count === 16 });
    return el("label", { class: "count" }, input, el("span", { text: String(count) }));
  }

  /** Lanes of the live server, those that vLLM serves too.  A choice, and a list that is open, stay as they are. */
  #offerLanes() {
    const policies = Object.keys(this.app.liveStore.figures?.lanes ?? {});
    const names = policies.length ? policies : [...this.app.liveStore.lanes.keys()];
    if (!names.length || names.join() === this.#offered) return;
    this.#offered = names.join();
    const chosen = this.lane.value || ALL;
    show(
      this.lane,
      el("option", { value: ALL, text: tryWords("all") }),
      ...names.map((policy) => el("option", { value: policy, text: policy })),
    );
    this.lane.value = names.includes(chosen) ? chosen : ALL;
    this.#enable();
  }

  get #policies() {
    const all = [...this.lane.options].map((option) => option.value).filter((value) => value !== ALL);
    return this.lane.value === ALL ? all : [this.lane.value];
  }

  /** One run at a time: two would be each other's company. */
  async #start() {
    if (this.#abort !== null || this.#offered === "") return;
    show(this.problems);
    if (this.prompt.value.trim() === "") return this.#tellProblem(tryWords("empty"));
    this.#abort = new AbortController();
    this.#enable();
    this.#tellReport([]);
    show(this.texts);
    this.sides.hidden = false;
    this.app.show(this.app.liveStore);
    this.app.view.follow();
    const sight = new TrySight(this.sides);
    sight.begin();
    try {
      await this.#runAll(this.#policies);
    } finally {
      sight.end();
      this.#abort = null;
      this.#enable();
    }
  }

  async #runAll(policies) {
    const { signal } = this.#abort;
    const runs = [];
    try {
      const prompts = await this.#makePrompts(signal);
      for (const policy of policies) {
        const run = new TryRun(this.app, policy, prompts);
        if (!(await this.#isRunWell(run, signal))) continue;
        runs.push(run);
        this.#tellReport(runs.map(plainRun));
      }
      this.progress.textContent = "";
      this.#showRuns(runs);
    } catch {
      this.progress.textContent = signal.aborted ? tryWords("stopped") : ""; // else it was told
    }
  }

  /** Lanes came one after the other: the first may be out of view by now.  Who looked elsewhere meanwhile stays there. */
  #showRuns(runs) {
    const spans = runs.map(({ span }) => span).filter((span) => span !== null);
    if (spans.length < 2 || !this.app.view.isFollowing) return;
    this.app.view.showAll(Math.min(...spans.map(({ fromS }) => fromS)), Math.max(...spans.map(({ toS }) => toS)));
  }

  /** `false` where the lane refused, which was told.  Throws where no other lane would do better. */
  async #isRunWell(run, signal) {
    try {
      await this.#watch(run, signal);
      return true;
    } catch (error) {
      if (signal.aborted) throw error;
      this.#tellFailure(run.policy, error);
      if (!(error instanceof ServerError && ONE_LANES.has(error.status))) throw error;
      return false;
    }
  }

  /** Lanes that refuse for the same reason are told in one line. */
  #tellFailure(policy, error) {
    const last = this.#lastFailure;
    const isSame = last !== null && last.element.isConnected && last.error.status === error.status && last.error.message === error.message;
    if (isSame) last.policies.push(policy);
    else this.#lastFailure = { error, policies: [policy], element: this.problems.appendChild(el("p", {})) };
    const { policies, element } = this.#lastFailure;
    element.textContent = failureInWords(policies.join(", "), error);
  }

  #tellProblem(text) {
    this.problems.append(el("p", { text }));
  }

  /** As long as the model has room for. */
  async #makePrompts(signal) {
    const [text, count] = [this.prompt.value, Number(this.counts.map((label) => label.firstChild).find((input) => input.checked).value)];
    const limits = await this.#limitsFor(text, signal);
    if (areShortened(count, limits)) this.#tellProblem(tryWords("shortened", { context: number(limits.context) }));
    return variedPrompts(text, count, ++this.#runNumber, limits);
  }

  async #limitsFor(text, signal) {
    const { max_model_len, num_blocks, block_size } = this.app.liveStore.facts ?? {};
    if (!max_model_len) return NO_LIMITS;
    try {
      const { count } = await this.app.server.json("/tokenize", { body: { prompt: text }, signal });
      return { context: Math.min(max_model_len, num_blocks ? num_blocks * block_size : Infinity), textTokens: count };
    } catch (error) {
      if (signal.aborted) throw error;
      return NO_LIMITS; // whoever can't say that will say why of the prompts themselves
    }
  }

  #enable() {
    this.send.disabled = this.#abort !== null || this.#offered === "";
    this.stop.disabled = this.#abort === null;
  }

  /** The texts as they come: each changes its own element and nothing else. */
  async #watch(run, signal) {
    const asked = tokensAsked(run.prompts);
    const bodies = run.prompts.map(() => el("span", { class: "text" }));
    const cards = bodies.map((body) => el("li", {}, el("button", { type: "button", class: "plain", disabled: true }, el("span", { class: "swatch" })), body));
    show(this.texts, el("h3", { text: tryWords("texts", { policy: run.policy }) }), el("ol", {}, ...cards));
    await run.run(signal, (index) => {
      if (index === null) cards.forEach((card, i) => this.#name(card, run.sequenceId(i)));
      else bodies[index].textContent = run.texts[index];
      this.progress.textContent = tryWords("sending", { policy: run.policy, done: number(run.tokens), asked: number(asked) });
    });
  }

  /** Now that its id is known: the card has its colour, points at its seat, and opens its life. */
  #name(card, sequenceId) {
    const { view } = this.app;
    const button = card.firstChild;
    button.disabled = false;
    button.title = tryWords("open", { who: shortName(sequenceId) });
    button.firstChild.style.setProperty("--colour", coloursOf(sequenceId).decode);
    button.addEventListener("click", () => view.choose(sequenceId));
    for (const event of ["pointerenter", "focusin"]) card.addEventListener(event, () => view.point(sequenceId));
    for (const event of ["pointerleave", "focusout"]) card.addEventListener(event, () => view.point(null));
  }
}

function failureInWords(policy, error) {
  if (!(error instanceof ServerError)) return tryWords("lost", { policy });
  const causes = tryWords("causes");
  return tryWords("refused", { policy, why: causes[error.status] ?? causes.other, problem: error.message });
}
