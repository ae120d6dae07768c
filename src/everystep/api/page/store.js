// What is known of an engine: its steps by lane, as `/steps` tells them, and its latest figures.  Fed by the live server
// or by a recording; whoever draws reads it at each frame, and listens for "steps", "gap", "figures" and "reset".

const MAX_STEPS = 12_000; // a lane of a live store; then the oldest go, a thousand at a time
const SHED = 1_000;
const MAX_CELLS = 1_000_000; // rows and waiting ones of a lane of a live store, some 100 bytes each
const MAX_SHARED_TEXTS = 50_000;

const sharedTexts = new Map(); // an id comes with each step anew: kept once, it takes half the memory

/** One lane: its steps in order, each in the shape of `/steps`. */
export class Lane {
  #numCells = 0;
  #emptied = new Map(); // step → when nobody waited any more, though no step has told it: they left

  constructor(policy, seats, maxSteps) {
    this.policy = policy;
    this.seats = seats;
    this.maxSteps = maxSteps;
    this.steps = [];
  }

  get last() {
    return this.steps.at(-1) ?? null;
  }

  /** The index of the last step that had begun at `atS`, −1 before the first. */
  indexAt(atS) {
    let low = 0;
    let high = this.steps.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.steps[middle].start_s <= atS) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  add(step) {
    this.steps.push(step);
    this.#numCells += cellsOf(step);
    for (const row of step.rows) this.seats = Math.max(this.seats, row.seat + 1);
    for (const one of [...step.rows, ...step.waiting]) shareTexts(one);
    if (this.steps.length > this.maxSteps) this.#shed(SHED);
    else if (this.#numCells > MAX_CELLS && this.maxSteps < Infinity) this.#shed(Math.ceil(this.steps.length / 10));
  }

  /** The figures of `atS` say so, which are newer than the last step. */
  nobodyWaits(atS) {
    if (this.last.waiting.length && !this.#emptied.has(this.last)) this.#emptied.set(this.last, atS);
  }

  /** Who waits at `atS`, as the step before tells; nobody once they have left. */
  waitingAt(atS) {
    const step = this.steps[this.indexAt(atS)];
    return step === undefined || this.#emptied.get(step) <= atS ? [] : step.waiting;
  }

  #shed(count) {
    for (const step of this.steps.splice(0, count)) {
      this.#numCells -= cellsOf(step);
      this.#emptied.delete(step);
    }
  }
}

function cellsOf(step) {
  return step.rows.length + step.waiting.length;
}

function shareTexts(one) {
  one.sequence_id = shared(one.sequence_id);
  one.request_id = shared(one.request_id);
}

function shared(text) {
  if (sharedTexts.size >= MAX_SHARED_TEXTS) sharedTexts.clear();
  if (!sharedTexts.has(text)) sharedTexts.set(text, text);
  return sharedTexts.get(text);
}

export class Store extends EventTarget {
  /** `facts`: `/engine`'s reply, or what a recording has of it; `isLive`: whether more is to come. */
  constructor({ isLive }) {
    super();
    this.isLive = isLive;
    this.reset(null);
  }

  /** Another engine, or the same begun anew. */
  reset(facts) {
    this.facts = facts;
    this.figures = null;
    this.lanes = new Map();
    this.lastStep = -1;
    this.gaps = []; // { first, last }: steps that the server passed over, as we took them too slowly
    for (const [policy, seats] of Object.entries(facts?.seats ?? {})) this.#addLane(policy, seats);
    this.dispatchEvent(new Event("reset"));
  }

  /** Steps in the order of their numbers; those that are known already are passed over. */
  addSteps(steps) {
    for (const step of steps) {
      if (step.step <= this.lastStep) continue;
      this.lastStep = step.step;
      if (!this.lanes.has(step.policy)) this.#addLane(step.policy, 0);
      this.lanes.get(step.policy).add(step);
    }
    if (steps.length) this.dispatchEvent(new Event("steps"));
  }

  /** Steps from `first` to `last` will never come. */
  addGap(gap) {
    this.gaps.push(gap);
    this.dispatchEvent(new Event("gap"));
  }

  get numSkipped() {
    return this.gaps.reduce((sum, { first, last }) => sum + last - first + 1, 0);
  }

  setFigures(figures) {
    this.figures = figures;
    for (const lane of this.lanes.values()) {
      const numWaiting = figures.lanes[lane.policy]?.num_waiting;
      if (numWaiting === 0 && lane.last !== null && figures.now_s > lane.last.end_s) lane.nobodyWaits(figures.now_s);
    }
    this.dispatchEvent(new Event("figures"));
  }

  get startS() {
    return this.#edge(Math.min, (lane) => lane.steps[0]?.start_s, 0);
  }

  get endS() {
    return this.#edge(Math.max, (lane) => lane.last?.end_s, 0);
  }

  /** A recording is as long as its file; what is live has no end. */
  #addLane(policy, seats) {
    this.lanes.set(policy, new Lane(policy, seats, this.isLive ? MAX_STEPS : Infinity));
  }

  #edge(choose, of, otherwise) {
    const times = [...this.lanes.values()].map(of).filter((time) => time !== undefined);
    return times.length ? choose(...times) : otherwise;
  }
}
