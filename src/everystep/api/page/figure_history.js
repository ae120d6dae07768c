// Ten minutes of `/figures`, and which curves are drawn of them.

const MAX_POINTS = 600;
const GAP_S = 3.5; // without a point for longer, a curve is broken: nothing is known of the time between

/** Of the Okabe and Ito set, as the requests' colours. */
const LANE_COLOURS = { static: "#d55e00", per_token: "#56b4e9", continuous: "#009e73", vllm: "#cc79a7" };

export function laneColour(policy) {
  return Object.hasOwn(LANE_COLOURS, policy) ? LANE_COLOURS[policy] : "gray";
}

export class FigureHistory {
  #points = [];

  /** Another server's figures begin anew. */
  add(figures) {
    if (this.#last !== null && this.#last.server_id !== figures.server_id) this.#points = [];
    const last = this.#last;
    if (last !== null && figures.now_s <= last.now_s) return;
    const sinceS = figures.now_s - (last?.now_s ?? 0);
    if (last !== null && sinceS > GAP_S) this.#points.push({ now_s: last.now_s + 1, isGap: true });
    this.#points.push({ ...figures, before: last?.totals ?? null, sinceS });
    while (this.#points.length > MAX_POINTS) this.#points.shift();
  }

  get #last() {
    return this.#points.at(-1) ?? null;
  }

  /** Seconds of the server's clock. */
  get times() {
    return this.#points.map(({ now_s }) => now_s);
  }

  /** `of(point)` for each; null is a gap. */
  values(of) {
    return this.#points.map((point) => (point.isGap ? null : (of(point) ?? null)));
  }
}

/** The charts, in order: `{ name, series: [{ of, policy, colour, isDashed }] }`; no policy: it is of all lanes. */
export function panels(policies) {
  const each = (of, isDashed = false) =>
    policies.map((policy) => ({ of: (point) => of(point.lanes[policy] ?? {}), policy, colour: laneColour(policy), isDashed }));
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
    { name: "cache", series: [{ of: ({ blocks_used, blocks_total }) => (blocks_total ? (100 * blocks_used) / blocks_total : null) }] },
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
