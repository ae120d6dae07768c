// What the steps of a lane say beyond a single cell: where a sequence sat and what it had given by then, which seats
// were ever used, and of which times nothing is known.

/** `{ seat, fromS, toS }` of each stay of a sequence, kept up as steps come. */
export class Stays {
  #sequenceId = null;
  #lane = null;
  #last = null; // step
  #stays = [];

  of(lane, sequenceId) {
    if (sequenceId !== this.#sequenceId || lane !== this.#lane) {
      this.#sequenceId = sequenceId;
      this.#lane = lane;
      this.#last = null;
      this.#stays = [];
    }
    for (const step of stepsAfter(lane, this.#last)) {
      this.#take(step.rows.find((row) => row.sequence_id === sequenceId), step);
      this.#last = step;
    }
    return this.#stays;
  }

  #take(row, step) {
    if (row === undefined) return;
    const stay = this.#stays.at(-1);
    if (stay?.last === this.#last && stay?.seat === row.seat) Object.assign(stay, { toS: step.end_s, last: step });
    else this.#stays.push({ seat: row.seat, fromS: step.start_s, toS: step.end_s, last: step });
  }
}

/** How many of a lane's seats, from the first on, were ever used. */
export class UsedSeats {
  #last = null;
  #count = 0;

  of(lane) {
    for (const step of stepsAfter(lane, this.#last)) {
      for (const row of step.rows) if (row.seat >= this.#count) this.#count = row.seat + 1;
      this.#last = step;
    }
    return this.#count;
  }
}

/** The lane's steps that came after `step`; all of them after `null`. */
function* stepsAfter(lane, step) {
  for (let i = step === null ? 0 : lane.indexAt(step.start_s) + 1; i < lane.steps.length; i++) yield lane.steps[i];
}

/**
 * Tokens that a sequence had given after the step `lane.steps[index]`: `{ count, isLeast }`, where `isLeast` says that it
 * may have been more; `null` where only the next step could tell.  `isWhole`: the lane's steps are known from its first.
 *
 * A row of n context tokens draws token n − prompt + 1.  The prompt ends with the last prefill before the first decode;
 * in a lane that reads everything again at each step, with the first.
 */
export function tokensSoFar(lane, index, sequenceId, isWhole) {
  const rows = computedRows(lane, sequenceId);
  const done = rows.filter(({ i }) => i <= index);
  if (!done.length) return null;
  if (!isWhole && wasThereBefore(lane, sequenceId)) {
    return { count: done.filter(({ row }) => row.phase === "decode").length, isLeast: true };
  }
  const longest = done.reduce((most, { row }) => Math.max(most, row.context_tokens), 0); // less while it is recomputed
  const count = longest - promptEnd(rows) + 1;
  const isSure = count !== 1 || rows.length > done.length || done.at(-1).row.finish !== null; // the prompt may go on
  return isSure ? { count: Math.max(0, count), isLeast: false } : null;
}

/** Whether a sequence may have sat, and even lost its seat, before the first known step. */
function wasThereBefore(lane, sequenceId) {
  const isIt = (one) => one.sequence_id === sequenceId;
  return lane.steps[0].rows.some(isIt) || lane.steps[0].waiting.some(isIt);
}

/** `{ i, row }`, oldest first. */
function computedRows(lane, sequenceId) {
  const rows = [];
  lane.steps.forEach((step, i) => {
    const row = step.rows.find((one) => one.sequence_id === sequenceId);
    if (row !== undefined && row.phase !== "held") rows.push({ i, row });
  });
  return rows;
}

/** How many tokens the prompt has: the rows are all that there were. */
function promptEnd(rows) {
  let last = rows[0].row;
  for (const { row } of rows.slice(1)) {
    if (row.phase !== "prefill" || isAgain(last, row)) break;
    last = row;
  }
  return last.context_tokens;
}

/** Whether `row` reads what `before` read and the one token that it gave: a lane without a cache. */
function isAgain(before, row) {
  return row.new_tokens === row.context_tokens && row.context_tokens === before.context_tokens + 1;
}

/**
 * `{ fromS, toS, first, last }` of times whose steps, by these numbers, aren't known: those that the server passed over,
 * and those before the first that is known, whose numbers are `null`.
 */
export function unknownTimes(store, lane) {
  const times = store.gaps.map((gap) => ({ ...gap, ...edgesOf(store, gap) }));
  if (isForgotten(store, lane)) times.push({ fromS: -Infinity, toS: lane.steps[0].start_s, first: null, last: null });
  return times;
}

/** From the end of the last step before a gap to the start of the first after it, whatever lane they are of. */
function edgesOf(store, { first, last }) {
  let fromS = -Infinity;
  let toS = Infinity;
  for (const { steps } of store.lanes.values()) {
    fromS = Math.max(fromS, steps[indexAfter(steps, first - 1) - 1]?.end_s ?? -Infinity);
    toS = Math.min(toS, steps[indexAfter(steps, last)]?.start_s ?? Infinity);
  }
  return { fromS, toS };
}

/** Of the first step whose number is above `number`. */
function indexAfter(steps, number) {
  let low = 0;
  let high = steps.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (steps[middle].step <= number) low = middle + 1;
    else high = middle;
  }
  return low;
}

const firstSeen = new WeakMap(); // lane → number of the first step it ever had

/** Whether there were steps of the lane, or may have been, before the first that is known. */
function isForgotten(store, lane) {
  const [first] = lane.steps;
  if (first === undefined || !store.isLive) return false;
  if (!firstSeen.has(lane)) firstSeen.set(lane, first.step);
  if (first.step > firstSeen.get(lane)) return true;
  return [...store.lanes.values()].every(({ steps }) => steps.length === 0 || steps[0].step > 0);
}
