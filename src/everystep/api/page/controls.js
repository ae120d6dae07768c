// Time and files: follow or pause, move and zoom, open a recording, save what is seen; and the keys for it.

import { el, save, show } from "./dom.js";
import { svgOf, traceOf } from "./exports.js";
import { Player } from "./player.js";
import { RecordingError } from "./recorded_server.js";
import { readRecording } from "./recording.js";
import { seatLegend } from "./seat_legend.js";
import { stepsBetween } from "./seat_steps.js";
import { duration, translator } from "./words.js";

const ZOOM = 1.5;
const SLIDE_EVERY_MS = 200;
const OWN_KEYS = { " ": "button, input, a, summary", Home: "input", End: "input" }; // whose they are

const controlWords = translator({
  en: {
    follow: "Follow",
    pause: "Pause",
    play: "Play",
    speed: "Speed",
    time: "Time",
    out: "Zoom out",
    in: "Zoom in",
    open: "Open a recording…",
    servers: "Server of the recording",
    svg: "Save as SVG",
    trace: "Save as trace",
    steps: "Save steps",
    all: "All",
    allTitle: "Everything that is known",
    keysTitle: "Keys",
    keys: "Space: pause or go on. + −: zoom, 0: all. Home, End: first step, now. On the seats: drag, Ctrl and wheel, arrows, Enter.",
    reading: "reading {name}: {percent} %",
    unreadable: "{name} can't be shown: {problem}",
    nothing: "nothing is in view",
    at: "{time} s",
  },
  ko: {
    follow: "따라가기",
    pause: "일시 정지",
    play: "재생",
    speed: "속도",
    time: "시간",
    out: "축소",
    in: "확대",
    open: "기록 열기…",
    servers: "기록의 서버",
    svg: "SVG로 저장",
    trace: "트레이스로 저장",
    steps: "스텝 저장",
    all: "전체",
    allTitle: "알고 있는 모든 시간",
    keysTitle: "단축키",
    keys: "스페이스: 멈춤/계속. + −: 확대와 축소, 0: 전체. Home, End: 첫 스텝, 지금. 자리 그림에서는 끌기, Ctrl+휠, 화살표, Enter.",
    reading: "{name} 파일을 읽는 중: {percent} %",
    unreadable: "{name} 파일을 보여 줄 수 없습니다: {problem}",
    nothing: "보이는 것이 없습니다",
    at: "{time}초",
  },
});

export function mountControls(root, app) {
  new Controls(root, app);
}

class Controls {
  constructor(root, app) {
    this.app = app;
    this.player = new Player(app);
    this.go = controlButton("pause", () => this.toggle());
    this.speed = el("select", { name: "speed", on: { change: () => this.player.setSpeed(Number(this.speed.value)) } });
    show(this.speed, ...Player.SPEEDS.map((value) => el("option", { value: String(value), text: `${value}×`, selected: value === 1 })));
    this.slider = el("input", { type: "range", step: "any", "aria-label": controlWords("time"), on: { input: () => this.slide() } });
    this.at = el("output", { "aria-live": "off" });
    this.file = el("input", { type: "file", accept: ".jsonl,application/jsonl", hidden: true, on: { change: () => this.open(this.file.files[0]) } });
    this.servers = el("select", { name: "servers", hidden: true, "aria-label": controlWords("servers") });
    this.problem = el("p", { class: "problem", role: "alert" });
    const explained = el("div", { class: "explained" }, seatLegend(app), keysHelp());
    show(root, ...this.#parts(), this.problem, explained);
    this.#listen();
    this.draw();
  }

  #parts() {
    const speed = el("label", { class: "speed" }, el("span", { text: controlWords("speed") }), this.speed);
    const all = el("button", { type: "button", text: controlWords("all"), title: controlWords("allTitle"), on: { click: () => this.showAll() } });
    const zoom = el("span", { class: "zoom" }, sign("−", "out", () => this.zoom(1 / ZOOM)), sign("+", "in", () => this.zoom(ZOOM)), all);
    const files = el(
      "span",
      { class: "files" },
      controlButton("open", () => this.file.click()),
      this.servers,
      controlButton("svg", () => this.save("svg")),
      controlButton("trace", () => this.save("trace")),
      controlButton("steps", () => this.save("steps")),
      this.file,
    );
    return [el("div", { class: "bar" }, this.go, speed, zoom, el("span", { class: "slide" }, this.slider, this.at), files)];
  }

  #listen() {
    document.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("dragover", (event) => event.preventDefault());
    document.addEventListener("drop", (event) => {
      event.preventDefault();
      if (event.dataTransfer.files.length) this.open(event.dataTransfer.files[0]);
    });
    this.app.view.addEventListener("move", () => this.draw());
    this.app.addEventListener("store", () => this.draw());
    this.servers.addEventListener("change", () => this.show(this.recorded[Number(this.servers.value)]));
    setInterval(() => this.draw(), SLIDE_EVERY_MS);
  }

  draw() {
    const { store, view } = this.app;
    const isGoing = store.isLive ? view.isFollowing : this.player.isPlaying;
    this.go.textContent = controlWords(isGoing ? "pause" : store.isLive ? "follow" : "play");
    this.speed.parentElement.hidden = store.isLive;
    this.servers.hidden = store.isLive || this.recorded === undefined || this.recorded.length < 2;
    this.slider.min = store.startS;
    this.slider.max = Math.max(store.endS, store.isLive ? view.nowS : 0, store.startS + 0.001);
    this.slider.value = view.edgeS;
    this.at.textContent = controlWords("at", { time: view.edgeS.toFixed(2) });
    this.slider.setAttribute("aria-valuetext", duration(Math.max(0, view.edgeS)));
  }

  toggle() {
    const { store, view } = this.app;
    if (!store.isLive) this.player.toggle();
    else view.moveTo(view.isFollowing ? view.nowS : null);
    this.draw();
  }

  zoom(factor) {
    const { view } = this.app;
    view.zoom(factor);
  }

  /** Live it goes on following, if it did. */
  showAll() {
    const { store, view } = this.app;
    const isFollowing = store.isLive && view.isFollowing;
    view.showAll(store.startS, isFollowing ? view.nowS : store.endS, { isFollowing });
  }

  slide() {
    const { store, view } = this.app;
    const isAtEnd = Number(this.slider.value) >= Number(this.slider.max);
    this.player.stop();
    view.moveTo(store.isLive && isAtEnd ? null : Number(this.slider.value));
  }

  /** Where keys mean something else, they go on meaning it. */
  key(event) {
    const isText = event.target.closest("input:not([type=range], [type=radio]), textarea, select, dialog") !== null;
    const isOwn = event.key in OWN_KEYS && event.target.closest(OWN_KEYS[event.key]) !== null;
    if (isText || isOwn || event.ctrlKey || event.metaKey || event.altKey) return;
    const { store, view } = this.app;
    const acts = {
      " ": () => this.toggle(),
      "+": () => this.zoom(ZOOM),
      "=": () => this.zoom(ZOOM),
      "-": () => this.zoom(1 / ZOOM),
      0: () => this.showAll(),
      Home: () => view.moveTo(store.startS + view.spanS),
      End: () => view.moveTo(store.isLive ? null : store.endS),
    };
    if (!(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  }

  async open(file) {
    const { name } = file;
    const tell = (words, values) => (this.problem.textContent = controlWords(words, { name, ...values }));
    this.file.value = ""; // the same file may be opened again
    this.opening = file; // the last one wins
    try {
      const recorded = await readRecording(file, (share) => tell("reading", { percent: Math.round(100 * share) }));
      if (this.opening !== file) return;
      this.recorded = recorded;
    } catch (error) {
      tell("unreadable", { problem: error instanceof RecordingError ? error.message : String(error) });
      return;
    }
    show(this.servers, ...this.recorded.map((store, i) => el("option", { value: String(i), text: store.name })));
    this.servers.value = String(this.recorded.length - 1);
    this.show(this.recorded.at(-1));
  }

  /** All of it first, as wide as it goes. */
  show(store) {
    const { app } = this;
    this.problem.textContent = "";
    app.show(store);
    app.view.showAll(store.startS, store.endS);
  }

  save(kind) {
    const { store, view } = this.app;
    const toS = Math.min(view.edgeS, store.endS);
    const fromS = Math.max(store.startS, view.edgeS - view.spanS);
    const lanes = [...store.lanes.values()].filter((lane) => stepsBetween(lane, fromS, toS).length);
    this.problem.textContent = lanes.length ? "" : controlWords("nothing");
    if (!lanes.length) return;
    if (kind === "svg") save("everystep-seats.svg", svgOf(lanes, fromS, toS), "image/svg+xml");
    if (kind === "trace") save("everystep-trace.json", traceOf(lanes, fromS, toS), "application/json");
    if (kind === "steps") save("everystep-steps.json", stepsText(lanes, fromS, toS), "application/json");
  }
}

function keysHelp() {
  const title = el("summary", { text: controlWords("keysTitle") });
  return el("details", { class: "keys" }, title, el("p", { text: controlWords("keys") }));
}

/** In the shape of `/steps`. */
function stepsText(lanes, fromS, toS) {
  const steps = lanes.flatMap((lane) => stepsBetween(lane, fromS, toS)).sort((a, b) => a.step - b.step);
  return JSON.stringify({ steps, next: steps.at(-1).step });
}

function controlButton(words, click) {
  return el("button", { type: "button", text: controlWords(words), on: { click } });
}

function sign(text, words, click) {
  return el("button", { type: "button", text, "aria-label": controlWords(words), title: controlWords(words), on: { click } });
}
