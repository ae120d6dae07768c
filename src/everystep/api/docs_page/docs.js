// The API's page: asks for the key where one is wanted, fetches the description with it, and hands it to Swagger UI,
// whose requests get the key too.  Ignorant of what is described.

import { el, show } from "./dom.js";
import { Server, ServerError } from "./server.js";
import { language, translator } from "./words.js";

const docsWords = translator({
  en: {
    live: "The live page",
    note: "What you execute here is sent with your key. The curl commands below leave it out: add -H 'Authorization: Bearer KEY'.",
    ask: "This server wants an API key. It is kept for this tab alone.",
    key: "API key",
    open: "Open",
    away: "The description can't be read: {reason}",
    again: "Try again",
  },
  ko: {
    live: "실시간 페이지",
    note: "여기서 실행하는 요청에는 입력하신 키가 함께 전송됩니다. 아래 curl 명령에는 키가 빠져 있으므로 -H 'Authorization: Bearer KEY'를 추가해야 합니다.",
    ask: "이 서버는 API 키가 필요합니다. 키는 이 탭에만 보관됩니다.",
    key: "API 키",
    open: "열기",
    away: "API 설명을 읽을 수 없습니다: {reason}",
    again: "다시 시도",
  },
});

class DocsPage {
  #server = new Server();
  #frame = el("header", { id: "frame" });
  #state = el("div", { id: "state", "aria-live": "polite" });
  #root = el("main", { id: "swagger-ui" });

  constructor(body) {
    body.append(this.#frame, this.#state, this.#root);
  }

  /** Until the description is there, or the person is asked for something. */
  async open() {
    try {
      const spec = await this.#server.json("/openapi.json");
      show(this.#state);
      this.#drawFrame();
      this.#draw(spec);
    } catch (error) {
      if (error instanceof ServerError && error.status === 401) this.#askForKey(this.#server.key === null ? "" : error.message);
      else this.#say(error.message);
    }
  }

  #drawFrame() {
    const note = this.#server.key === null ? null : el("p", { text: docsWords("note") });
    show(this.#frame, el("a", { href: "/", text: docsWords("live") }), note);
  }

  #draw(spec) {
    window.SwaggerUIBundle({
      spec,
      domNode: this.#root,
      deepLinking: true, // an operation has an address, behind the #
      docExpansion: "list",
      displayRequestDuration: true,
      defaultModelsExpandDepth: 0,
      validatorUrl: null, // else it asks its makers' server
      showMutatedRequest: false, // the key isn't shown on the screen
      requestInterceptor: (request) => this.#withKey(request),
    });
  }

  /** Only to this server. */
  #withKey(request) {
    const isOurs = new URL(request.url, location.href).origin === location.origin;
    if (isOurs && this.#server.key !== null) request.headers.Authorization = `Bearer ${this.#server.key}`;
    return request;
  }

  #askForKey(problem) {
    const input = el("input", { type: "password", name: "key", required: true, autocomplete: "off", spellcheck: "false" });
    const submit = (event) => {
      event.preventDefault();
      this.#server.key = input.value.trim();
      this.open();
    };
    const form = el(
      "form",
      { on: { submit } },
      el("p", { text: docsWords("ask") }),
      el("label", {}, el("span", { text: docsWords("key") }), input),
      el("button", { text: docsWords("open") }),
      problem ? el("p", { class: "problem", role: "alert", text: problem }) : null,
    );
    show(this.#state, form);
    input.focus();
  }

  #say(reason) {
    const again = el("button", { type: "button", text: docsWords("again"), on: { click: () => this.open() } });
    show(this.#state, el("p", { class: "problem", role: "alert", text: docsWords("away", { reason }) }), again);
  }
}

/** As the person's system is, and as it changes. */
function followTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", follow);
  follow();
}

document.documentElement.lang = language();
followTheme();
new DocsPage(document.body).open();
