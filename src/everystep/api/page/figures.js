// Live figures as small charts: how fast, how many, how long, how full.  One point a second, from `/figures`.

import { FigureHistory, laneColour, panels } from "./figure_history.js";
import { el, show } from "./dom.js";
import { number, translator } from "./words.js";

const PLOT_CSS_PX = 108;

const figureWords = translator({
  en: {
    title: "Figures",
    note: "of the last {seconds} s, once a second; of times the median, p50, is solid and p95 dashed",
    tokens: "Tokens/s",
    running: "Running",
    waiting: "Waiting",
    ttft: "Time to first token, ms: p50 / p95",
    itl: "Between tokens, ms: p50 / p95",
    cache: "KV blocks in use, %",
    hits: "Prefix hits, tokens/s",
    preemptions: "Preemptions/s",
    none: "–",
    ago: "{seconds} s ago",
  },
  ko: {
    title: "지표",
    note: "최근 {seconds}초 기준, 1초마다 갱신. 시간은 중앙값(p50)이 실선, p95가 점선",
    tokens: "토큰/초",
    running: "실행 중",
    waiting: "대기 중",
    ttft: "첫 토큰까지, ms: p50 / p95",
    itl: "토큰 사이, ms: p50 / p95",
    cache: "사용 중인 KV 블록, %",
    hits: "프리픽스 적중, 토큰/초",
    preemptions: "선점/초",
    none: "–",
    ago: "{seconds}초 전",
  },
});

export function mountFigures(root, app) {
  new Figures(root, app);
}

class Figures {
  #history = new FigureHistory();
  #charts = [];
  #policies = "";

  constructor(root, app) {
    Object.assign(this, { root, app });
    this.note = el("p", { class: "note" });
    this.legend = el("p", { class: "legend" });
    this.grid = el("div", { class: "grid" });
    const title = el("h2", { id: "figures-title", text: figureWords("title") });
    root.setAttribute("aria-labelledby", "figures-title");
    show(root, el("div", { class: "head" }, title, this.note, this.legend), this.grid);
    app.liveStore.addEventListener("figures", () => this.#take(app.liveStore.figures));
    app.addEventListener("store", () => (root.hidden = !app.store.isLive)); // a recording has no such figures
    app.addEventListener("theme", () => this.#build());
    new ResizeObserver(() => this.#fit()).observe(this.grid);
  }

  #take(figures) {
    this.#history.add(figures);
    const policies = Object.keys(figures.lanes).join();
    if (policies !== this.#policies) {
      this.#policies = policies;
      this.note.textContent = figureWords("note", { seconds: figures.window_s });
      this.#build();
    }
    for (const chart of this.#charts) chart.draw(this.#history);
  }

  #build() {
    if (this.#policies === "") return;
    const policies = this.#policies.split(",");
    for (const chart of this.#charts) chart.end();
    show(this.grid);
    const key = (policy) => el("span", { class: "key" }, laneSwatch(policy), policy);
    show(this.legend, ...policies.map(key));
    this.#charts = panels(policies).map((panel) => new Chart(this.grid, panel));
    this.#fit();
  }

  #fit() {
    for (const chart of this.#charts) chart.fit();
  }
}

function laneSwatch(policy) {
  return el("span", { class: "swatch", vars: { "--colour": laneColour(policy) } });
}

/** One panel: its name, what it is now, lane by lane, and its curves. */
class Chart {
  #told = "";

  constructor(parent, panel) {
    this.panel = panel;
    this.when = el("span", { class: "when" });
    this.values = el("ul", { class: "values" });
    this.place = el("div", { class: "plot" });
    const caption = el("figcaption", {}, el("span", { text: figureWords(panel.name) }), this.when);
    parent.append(el("figure", { "data-name": panel.name }, caption, this.values, this.place));
    this.plot = new uPlot(this.#options(), [[], ...panel.series.map(() => [])], this.place);
  }

  draw(history) {
    const data = [history.times, ...this.panel.series.map(({ of }) => history.values(of))];
    this.plot.setData(data);
    this.#tell(this.plot.cursor.idx ?? null);
  }

  fit() {
    const width = this.place.clientWidth;
    if (width) this.plot.setSize({ width, height: PLOT_CSS_PX });
  }

  end() {
    this.plot.destroy();
  }

  #options() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--rule"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    return {
      width: 240,
      height: PLOT_CSS_PX,
      legend: { show: false },
      cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [
        { ...axis, size: 18, gap: 2, space: 70, values: (_, ticks) => ticks.map((atS) => `${number(atS)} s`) },
        { ...axis, size: 40, gap: 4, space: 26, values: (_, ticks) => ticks.map((value) => number(value, value < 10 ? 2 : 0)) },
      ],
      series: [{}, ...this.panel.series.map(({ colour: stroke, isDashed }) => ({
        stroke: stroke ?? colour("--accent"), width: 1.5, dash: isDashed ? [3, 3] : undefined, points: { show: false }, spanGaps: false,
      }))],
      hooks: { setCursor: [(plot) => this.#tell(plot.cursor.idx ?? null)] },
    };
  }

  /** The values at a point, under the cursor; `null`: the newest. */
  #tell(index) {
    const times = this.plot?.data[0] ?? [];
    const at = index ?? times.length - 1;
    const words = this.#valuesAt(at);
    const when = index === null ? "" : figureWords("ago", { seconds: number(times.at(-1) - times[at]) });
    const told = JSON.stringify([when, words]);
    if (told === this.#told) return;
    this.#told = told;
    this.when.textContent = when;
    show(this.values, ...words.map(([policy, value]) => valueItem(policy, value)));
  }

  /** `[policy, value in words]` for each lane, p50 before p95. */
  #valuesAt(at) {
    const found = new Map();
    this.panel.series.forEach(({ policy = null }, i) => {
      if (!found.has(policy)) found.set(policy, []);
      const value = this.plot?.data[i + 1][at];
      if (value != null) found.get(policy).push(figureNumber(value));
    });
    return [...found].map(([policy, values]) => [policy, values.length ? values.join(" / ") : figureWords("none")]);
  }
}

/** A lane's value: its colour for those who see it, its name for those who hear it. */
function valueItem(policy, value) {
  if (policy === null) return el("li", { text: value });
  return el("li", { title: policy, "data-policy": policy }, laneSwatch(policy), el("span", { class: "heard", text: `${policy}: ` }), value);
}

function figureNumber(value) {
  return number(value, value < 10 ? 1 : 0);
}
