// Ten minutes of `/figures`, and which curves are drawn of them.

const MAX_POINTS = 600;

/** Of the Okabe and Ito set, as the requests' colours. */
export const LANE_COLOURS = { static: "#d55e00", per_token: "#56b4e9", continuous: "#009e73", vllm: "#cc79a7" };

export class FigureHistory {
  #points = [];

  /** Another server's figures begin anew. */
  add(figures) {
    const last = this.#points.at(-1);
    if (last !== undefined && last.server_id !== figures.server_id) this.#points = [];
    if (last !== undefined && last.server_id === figures.server_id && figures.now_s <= last.now_s) return;
    this.#points.push({ ...figures, before: this.#points.at(-1)?.totals ?? null, sinceS: figures.now_s - (this.#points.at(-1)?.now_s ?? 0) });
    if (this.#points.length > MAX_POINTS) this.#points.shift();
  }

  /** Seconds of the server's clock. */
  get times() {
    return this.#points.map(({ now_s }) => now_s);
  }

  /** `of(point)` for each; null is a gap. */
  values(of) {
    return this.#points.map((point) => of(point) ?? null);
  }
}

/** The charts, in order: `{ name, series: [{ of, colour, isDashed }] }`. */
export function panels(policies) {
  const each = (of, isDashed = false) =>
    policies.map((policy) => ({ of: (point) => of(point.lanes[policy] ?? {}), colour: LANE_COLOURS[policy] ?? "gray", isDashed }));
  const quantiles = (name) => [
    ...each((lane) => milliseconds(lane[name]?.p50)),
    ...each((lane) => milliseconds(lane[name]?.p95), true),
  ];
  return [
    { name: "tokens", series: each((lane) => lane.tokens_per_s) },
    { name: "running", series: each((lane) => lane.num_running) },
    { name: "waiting", series: each((lane) => lane.num_waiting) },
    { name: "ttft", series: quantiles("ttft_s") },
    { name: "itl", series: quantiles("itl_s") },
    { name: "cache", series: [{ of: ({ blocks_used, blocks_total }) => (blocks_total ? (100 * blocks_used) / blocks_total : 0) }] },
    { name: "hits", series: [{ of: rateOf("prefix_cache_hit_tokens") }] },
    { name: "preemptions", series: [{ of: rateOf("preemptions") }] },
  ];
}

function milliseconds(seconds) {
  return seconds === undefined ? null : seconds * 1000;
}

/** Growth of a total since the point before, a second. */
function rateOf(name) {
  return ({ totals, before, sinceS }) => (before === null ? null : (totals[name] - before[name]) / sinceS);
}
