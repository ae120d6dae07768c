// What the person must know now: the server is away, the engine isn't ready, the worker was replaced, a key is wanted.

import { el, show } from "./dom.js";
import { ServerError } from "./server.js";
import { number, translator } from "./words.js";

const KEY_LETTERS = /^[\x21-\x7e]+$/; // a header holds no others

const noticeWords = translator({
  en: {
    away: "The server doesn't answer. Trying again until it does; what was seen stays.",
    strange: "Something answers in the server's place, with status {status}: {said}. Trying again; what was seen stays.",
    unready: "No request would be served now: {reason}",
    renewed: "Another server answers at this address now; what is shown begins with it.",
    replaced: ({ count }) =>
      count === 1 ? "The worker ended and was replaced." : `The worker ended and was replaced, ${number(count)} times by now.`,
    skipped: ({ count }) =>
      count === 1
        ? "One step was passed over, as this page took them in too slowly: it is missing below."
        : `${number(count)} steps were passed over, as this page took them in too slowly: they are missing below.`,
    dismiss: "Dismiss",
    ask: "This server wants an API key. It is kept for this tab alone.",
    key: "API key",
    open: "Open",
    wrong: "the API key isn't accepted",
    letters: "A key has no spaces, and letters, digits and signs of ASCII only.",
    recording: "You are looking at a recording: {name}",
    cut: "You are looking at a recording: {name}. Its last line is cut: its server was killed, or the file is a part.",
    back: "Back to the live server",
  },
  ko: {
    away: "서버가 응답하지 않습니다. 응답할 때까지 다시 시도하며, 지금까지 본 내용은 그대로 남습니다.",
    strange: "서버 대신 다른 것이 상태 {status}(으)로 응답합니다: {said}. 다시 시도하며, 지금까지 본 내용은 그대로 남습니다.",
    unready: "지금은 요청을 처리할 수 없습니다: {reason}",
    renewed: "이제 이 주소에서 다른 서버가 응답합니다. 화면은 그 서버부터 다시 시작합니다.",
    replaced: ({ count }) => `워커가 종료되어 새 워커로 교체되었습니다(지금까지 ${number(count)}번).`,
    skipped: ({ count }) => `페이지가 제때 받지 못해 스텝 ${number(count)}개를 건너뛰었습니다. 아래 그림에는 빠져 있습니다.`,
    dismiss: "닫기",
    ask: "이 서버는 API 키가 필요합니다. 키는 이 탭에만 보관됩니다.",
    key: "API 키",
    open: "열기",
    wrong: "API 키가 받아들여지지 않았습니다",
    letters: "키는 공백 없이 ASCII 글자, 숫자, 기호로만 이루어집니다.",
    recording: "기록을 보고 있습니다: {name}",
    cut: "기록을 보고 있습니다: {name}. 마지막 줄이 잘려 있습니다. 서버가 강제 종료되었거나 파일의 일부입니다.",
    back: "실시간 서버로 돌아가기",
  },
});

export function mountNotices(root, app) {
  const board = new NoticeBoard(root, app);
  app.live.addEventListener("state", () => board.draw());
  app.addEventListener("store", () => board.draw());
  for (const event of ["figures", "gap", "reset"]) app.liveStore.addEventListener(event, () => board.draw());
  board.draw();
}

class NoticeBoard {
  #seenServer = null;
  #seenRestarts = 0;
  #dismissedRestarts = 0;
  #numServers = 0; // others that came in the place of the first
  #dismissedServers = 0;
  #dismissedSteps = 0; // of those that were passed over
  #shown = new Map(); // what a notice says → its element

  constructor(root, app) {
    this.root = root;
    this.app = app;
    this.root.setAttribute("aria-live", "polite");
  }

  /** Only what changed is made anew: a half typed key stays, and nothing is read out twice. */
  draw() {
    const notices = new Map([...this.#notices()].map((notice) => [JSON.stringify(notice), notice]));
    for (const [said, element] of this.#shown) {
      if (notices.has(said)) continue;
      element.remove();
      this.#shown.delete(said);
    }
    for (const [said, notice] of notices) if (!this.#shown.has(said)) this.#add(said, notice);
  }

  #add(said, notice) {
    const element = this.#made(notice);
    this.#shown.set(said, element);
    this.root.append(element);
    if (notice.kind === "key") element.querySelector("input").focus();
  }

  *#notices() {
    const { live, liveStore, store } = this.app;
    if (live.state === "locked") yield { kind: "key", isWrong: live.error !== null };
    if (live.state === "away") yield awayNotice(live.error);
    const figures = liveStore.figures;
    if (live.state === "live" && figures?.is_ready === false) yield { kind: "unready", reason: figures.reason };
    const count = figures === null ? 0 : this.#restartsSeen(figures);
    if (count > this.#dismissedRestarts && figures.is_ready) yield { kind: "replaced", count };
    if (this.#numServers > this.#dismissedServers) yield { kind: "renewed", count: this.#numServers };
    const skipped = liveStore.numSkipped;
    if (skipped < this.#dismissedSteps) this.#dismissedSteps = 0; // another server's
    if (skipped > this.#dismissedSteps) yield { kind: "skipped", count: skipped };
    if (!store.isLive) yield { kind: store.isCut ? "cut" : "recording", name: store.name };
  }

  /** Those since the page was opened: what came before is nobody's news. */
  #restartsSeen({ server_id, num_worker_restarts }) {
    if (server_id !== this.#seenServer) {
      if (this.#seenServer !== null) this.#numServers += 1;
      this.#seenServer = server_id;
      this.#seenRestarts = num_worker_restarts;
      this.#dismissedRestarts = 0;
    }
    return num_worker_restarts - this.#seenRestarts;
  }

  #made(notice) {
    const { kind } = notice;
    if (kind === "key") return this.#keyForm(notice.isWrong);
    const words = el("span", { text: noticeWords(kind, notice) });
    if (kind === "replaced" || kind === "renewed" || kind === "skipped") return box(kind, words, button("dismiss", () => this.#dismiss(kind, notice.count)));
    if (kind === "recording" || kind === "cut") return box(kind, words, button("back", () => this.app.show(this.app.liveStore)));
    return box(kind, words);
  }

  #dismiss(kind, count) {
    if (kind === "replaced") this.#dismissedRestarts = count;
    else if (kind === "renewed") this.#dismissedServers = count;
    else this.#dismissedSteps = count;
    this.draw();
  }

  #keyForm(isWrong) {
    const problem = el("p", { class: "problem", role: "alert", text: isWrong ? noticeWords("wrong") : "" });
    const input = el("input", { type: "password", name: "key", required: true, autocomplete: "off", spellcheck: "false" });
    const submit = (event) => {
      event.preventDefault();
      const key = input.value.trim();
      if (KEY_LETTERS.test(key)) this.app.live.tryKey(key);
      else problem.textContent = noticeWords("letters");
    };
    return el(
      "form",
      { class: "notice key", on: { submit } },
      el("p", { text: noticeWords("ask") }),
      el("label", {}, el("span", { text: noticeWords("key") }), input),
      el("button", { text: noticeWords("open") }),
      problem,
    );
  }
}

/** A proxy or another program that answers isn't a server that is away. */
function awayNotice(error) {
  if (!(error instanceof ServerError)) return { kind: "away" };
  return { kind: "strange", status: error.status, said: error.message };
}

function box(kind, ...children) {
  return el("div", { class: `notice ${kind}` }, ...children);
}

function button(words, click) {
  return el("button", { type: "button", text: noticeWords(words), on: { click } });
}
