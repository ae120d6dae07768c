// Which steps are in a part of time, and seats times steps: how many computed, were only held, or stood empty.

/** Steps of the lane that are seen, whole or in part, between two times. */
export function stepsBetween(lane, fromS, toS) {
  const first = Math.max(0, lane.indexAt(fromS));
  return lane.steps.slice(first).filter((step) => step.end_s > fromS && step.start_s < toS);
}

/** `{ working, held, empty }` over `steps` of a lane of so many seats. */
export function seatStepsOf(steps, seats) {
  const sums = { working: 0, held: 0, empty: 0 };
  for (const { rows } of steps) {
    let held = 0;
    for (const row of rows) if (row.phase === "held") held += 1;
    sums.held += held;
    sums.working += rows.length - held;
    sums.empty += seats - rows.length;
  }
  return sums;
}
