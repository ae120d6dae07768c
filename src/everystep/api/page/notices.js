// What the person must know now: the server is away, the engine isn't ready, the worker was replaced, a key is wanted.

import { el, show } from "./dom.js";
import { number, translator } from "./words.js";

const noticeWords = translator({
  en: {
    away: "The server doesn't answer. Trying again until it does; what was seen stays.",
    unready: "No request would be served now: {reason}",
    replaced: ({ count }) =>
      count === 1 ? "The worker ended and was replaced." : `The worker ended and was replaced, ${number(count)} times by now.`,
    dismiss: "Dismiss",
    ask: "This server wants an API key. It is kept for this tab alone.",
    key: "API key",
    open: "Open",
    recording: "You are looking at a recording: {name}",
    back: "Back to the live server",
  },
  ko: {
    away: "서버가 응답하지 않습니다. 응답할 때까지 다시 시도하며, 지금까지 본 내용은 그대로 남습니다.",
    unready: "지금은 요청을 처리할 수 없습니다: {reason}",
    replaced: ({ count }) => `워커가 종료되어 새 워커로 교체되었습니다(지금까지 ${number(count)}번).`,
    dismiss: "닫기",
    ask: "이 서버는 API 키가 필요합니다. 키는 이 탭에만 보관됩니다.",
    key: "API 키",
    open: "열기",
    recording: "기록을 보고 있습니다: {name}",
    back: "실시간 서버로 돌아가기",
  },
});

export function mountNotices(root, app) {
  const board = new NoticeBoard(root, app);
  app.live.addEventListener("state", () => board.draw());
  app.addEventListener("store", () => board.draw());
  app.liveStore.addEventListener("figures", () => board.draw());
  board.draw();
}

class NoticeBoard {
  #seenServer = null;
  #seenRestarts = 0;
  #dismissedRestarts = 0;
  #shown = "";

  constructor(root, app) {
    this.root = root;
    this.app = app;
    this.root.setAttribute("aria-live", "polite");
  }

  /** Only what changed is made anew: a half typed key stays, and nothing is read out twice. */
  draw() {
    const notices = [...this.#notices()];
    const wanted = JSON.stringify(notices);
    if (wanted === this.#shown) return;
    this.#shown = wanted;
    show(this.root, ...notices.map((notice) => this.#made(notice)));
    this.root.querySelector("input")?.focus();
  }

  *#notices() {
    const { live, liveStore, store } = this.app;
    if (live.state === "locked") yield { kind: "key", problem: live.problem };
    if (live.state === "away") yield { kind: "away" };
    const figures = liveStore.figures;
    if (live.state === "live" && figures?.is_ready === false) yield { kind: "unready", reason: figures.reason };
    const count = figures === null ? 0 : this.#restartsSeen(figures);
    if (count > this.#dismissedRestarts) yield { kind: "replaced", count };
    if (!store.isLive) yield { kind: "recording", name: store.name };
  }

  /** Those since the page was opened: what came before is nobody's news. */
  #restartsSeen({ server_id, num_worker_restarts }) {
    if (server_id !== this.#seenServer) {
      this.#seenServer = server_id;
      this.#seenRestarts = num_worker_restarts;
      this.#dismissedRestarts = 0;
    }
    return num_worker_restarts - this.#seenRestarts;
  }

  #made(notice) {
    const { kind } = notice;
    if (kind === "key") return this.#keyForm(notice.problem);
    const words = el("span", { text: noticeWords(kind, notice) });
    if (kind === "replaced") return box(kind, words, button("dismiss", () => this.#dismiss(notice.count)));
    if (kind === "recording") return box(kind, words, button("back", () => this.app.show(this.app.liveStore)));
    return box(kind, words);
  }

  #dismiss(count) {
    this.#dismissedRestarts = count;
    this.draw();
  }

  #keyForm(problem) {
    const input = el("input", { type: "password", name: "key", required: true, autocomplete: "off", spellcheck: "false" });
    const submit = (event) => {
      event.preventDefault();
      this.app.live.tryKey(input.value.trim());
    };
    return el(
      "form",
      { class: "notice key", on: { submit } },
      el("p", { text: noticeWords("ask") }),
      el("label", {}, el("span", { text: noticeWords("key") }), input),
      el("button", { text: noticeWords("open") }),
      problem ? el("p", { class: "problem", role: "alert", text: problem }) : null,
    );
  }
}

function box(kind, ...children) {
  return el("div", { class: `notice ${kind}` }, ...children);
}

function button(words, click) {
  return el("button", { type: "button", text: noticeWords(words), on: { click } });
}
