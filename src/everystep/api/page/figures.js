// Live figures as small charts: how fast, how many, how long, how full.  One point a second, from `/figures`.

import { FigureHistory, LANE_COLOURS, panels } from "./figure_history.js";
import { el, show } from "./dom.js";
import { number, translator } from "./words.js";

const PLOT_CSS_PX = 108;

const figureWords = translator({
  en: {
    title: "Figures",
    note: "of the last {seconds} s, once a second; p50 solid, p95 dashed",
    tokens: "Tokens/s",
    running: "Running",
    waiting: "Waiting",
    ttft: "TTFT, ms",
    itl: "ITL, ms",
    cache: "KV blocks in use, %",
    hits: "Prefix hits, tokens/s",
    preemptions: "Preemptions/s",
    none: "–",
    ago: "{seconds} s ago",
  },
  ko: {
    title: "지표",
    note: "최근 {seconds}초 기준, 1초마다 갱신. p50은 실선, p95는 점선",
    tokens: "토큰/초",
    running: "실행 중",
    waiting: "대기 중",
    ttft: "TTFT, ms",
    itl: "ITL, ms",
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
    show(root, el("div", { class: "head" }, el("h2", { text: figureWords("title") }), this.note, this.legend), this.grid);
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
    const key = (policy) =>
      el("span", { class: "key" }, el("span", { class: "swatch", vars: { "--colour": LANE_COLOURS[policy] ?? "gray" } }), policy);
    show(this.legend, ...policies.map(key));
    this.#charts = panels(policies).map((panel) => new Chart(this.grid, panel));
    this.#fit();
  }

  #fit() {
    for (const chart of this.#charts) chart.fit();
  }
}

/** One panel: its name, what it is now, and its curves. */
class Chart {
  constructor(parent, panel) {
    this.panel = panel;
    this.now = el("span", { class: "now" });
    this.place = el("div", { class: "plot" });
    parent.append(el("figure", {}, el("figcaption", {}, el("span", { text: figureWords(panel.name) }), this.now), this.place));
    this.plot = new uPlot(this.#options(), [[], ...panel.series.map(() => [])], this.place);
  }

  draw(history) {
    const data = [history.times, ...this.panel.series.map(({ of }) => history.values(of))];
    this.plot.setData(data);
    this.#tell(data, data[0].length - 1);
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
        { ...axis, size: 40, gap: 4, space: 26, values: (_, ticks) => ticks.map((value) => number(value, value < 10 ? 1 : 0)) },
      ],
      series: [{}, ...this.panel.series.map(({ colour: stroke, isDashed }) => ({
        stroke: stroke ?? colour("--accent"), width: 1.5, dash: isDashed ? [3, 3] : undefined, points: { show: false }, spanGaps: false,
      }))],
      hooks: { setCursor: [(plot) => this.#tell(plot.data, plot.cursor.idx ?? plot.data[0].length - 1)] },
    };
  }

  /** The values under the cursor, else the newest. */
  #tell(data, index) {
    const values = data.slice(1).map((series) => series[index]);
    this.now.textContent = values.every((value) => value == null)
      ? figureWords("none")
      : values.filter((value) => value != null).map((value) => number(value, value < 10 ? 1 : 0)).join(" · ");
  }
}
