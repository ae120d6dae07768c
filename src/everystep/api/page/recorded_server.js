// What a recording's lines say of one server: who is here, who sits, who waits.  Steps in the shape of `/steps`.

import { Store } from "./store.js";
import { translator } from "./words.js";

const MAX_SEATS = 4_096; // of a lane; what claims more is no recording of ours

const recordingWords = translator({
  en: {
    empty: "the file is empty",
    large: "it has {mib} MiB, and this page reads {most} at most",
    headless: "line {line} stands before any header: this is no recording of a schedule",
    strange: "line {line} is no line of a recorded schedule",
    schema: "line {line} is of schema {schema}; this page reads schema {ours}",
    planless: "line {line} is a step without its plan",
    unknown: "line {line} names a sequence that nobody submitted",
    seat: "line {line} has a seat that its lane doesn't have",
  },
  ko: {
    empty: "파일이 비어 있습니다",
    large: "크기가 {mib} MiB이며, 이 페이지는 {most} MiB까지 읽습니다",
    headless: "{line}행이 헤더보다 앞에 있습니다. 스케줄 기록이 아닙니다",
    strange: "{line}행은 스케줄 기록의 행이 아닙니다",
    schema: "{line}행의 스키마는 {schema}이며, 이 페이지는 스키마 {ours}을(를) 읽습니다",
    planless: "{line}행의 스텝에 계획이 없습니다",
    unknown: "{line}행이 제출된 적 없는 시퀀스를 가리킵니다",
    seat: "{line}행의 자리는 그 레인에 없는 자리입니다",
  },
});

/** The file isn't what it should be; the message is for the person. */
export class RecordingError extends Error {
  constructor(kind, values = {}) {
    super(recordingWords(kind, values));
    Object.assign(this, { kind, values });
  }

  /** The same, and where. */
  at(line) {
    return new RecordingError(this.kind, { ...this.values, line });
  }
}

/** Plays a recording's lines.  Throws `RecordingError`, or a `TypeError` where a line lacks what it should have. */
export class RecordedServer {
  #sequences = []; // by number, of the segment
  #numbers = new Map(); // id → number, of those that are open
  #open = new Map(); // policy → Map of number → sequence; those that have neither ended nor been refused
  #plan = null;
  #lastRows = new Map(); // policy → numbers in the lane's last step

  constructor(header) {
    this.header = checkedHeader(header);
    this.steps = [];
    this.lastStep = -1;
  }

  /** A worker that took the place of the one before. */
  succeed(header) {
    this.header = checkedHeader(header);
    this.#sequences = [];
    this.#numbers.clear();
    this.#open.clear();
    this.#lastRows.clear();
    this.#plan = null;
  }

  take(entry) {
    const acts = {
      submit: () => this.#submit(entry),
      refused: () => this.#end(entry.n),
      abort: () => this.#abort(entry),
      plan: () => this.#begin(entry),
      step: () => this.#finish(entry),
    };
    if (Object.hasOwn(acts, entry.line)) acts[entry.line](); // what is idle or broke shows nobody in a seat
  }

  store(name) {
    const store = new Store({ isLive: false });
    const { model } = this.header.settings;
    store.reset({ ...this.header, model });
    store.name = name;
    store.addSteps(this.steps);
    return store;
  }

  #submit({ n, lane, prompt_ids, sequence_id, request_id, arrival_s }) {
    need(n === this.#sequences.length && isText(lane, sequence_id, request_id) && Number.isFinite(arrival_s));
    const sequence = { lane, sequence_id, request_id, arrival_s, prompt_tokens: count(prompt_ids), context: 0 };
    this.#sequences.push(sequence);
    this.#numbers.set(sequence_id, n);
    if (!this.#open.has(lane)) this.#open.set(lane, new Map());
    this.#open.get(lane).set(n, sequence);
  }

  #end(n) {
    const sequence = this.#known(n);
    this.#numbers.delete(sequence.sequence_id);
    this.#open.get(sequence.lane).delete(n);
  }

  #abort({ sequence_id }) {
    if (this.#numbers.has(sequence_id)) this.#end(this.#numbers.get(sequence_id));
  }

  /** Who waits is as of now: what comes during the pass, the plan couldn't see. */
  #begin(plan) {
    need(isText(plan.lane) && Number.isInteger(plan.step) && Number.isFinite(plan.now_s));
    const seated = new Set([...plan.rows, ...(plan.held ?? [])].map(([n]) => n));
    const isGoingOn = plan.rows.some(([n]) => this.#lastRows.get(plan.lane)?.has(n));
    const why = plan.lane === "static" && isGoingOn ? "round_running" : "unrecorded";
    const waiting = [...(this.#open.get(plan.lane) ?? [])]
      .filter(([n]) => !seated.has(n))
      .map(([, { sequence_id, request_id, arrival_s }]) => ({
        sequence_id, request_id, why, behind: null, waited_s: Math.max(0, plan.now_s - arrival_s),
      }));
    this.#lastRows.set(plan.lane, seated);
    this.#plan = { ...plan, waiting };
  }

  #finish(result) {
    const plan = this.#plan;
    if (plan === null) throw new RecordingError("planless");
    need(Number.isFinite(result.end_s));
    this.#plan = null;
    const ends = new Map((result.ends ?? []).map(([n, reason]) => [n, String(reason)]));
    const rows = [
      ...plan.rows.map((row) => this.#row(row, plan.lane, ends)),
      ...(plan.held ?? []).map(([n, seat]) => this.#heldRow(n, seat, plan.lane)),
    ].sort((a, b) => a.seat - b.seat);
    this.steps.push({
      step: plan.step,
      policy: plan.lane,
      start_s: plan.now_s,
      end_s: result.end_s,
      shape: [plan.rows.length, plan.rows.reduce((most, row) => Math.max(most, row[3]), 0)],
      rows,
      waiting: plan.waiting,
      blocks_used: plan.blocks,
      blocks_total: this.header.num_blocks,
    });
    this.lastStep = plan.step;
    for (const n of ends.keys()) this.#end(n);
  }

  #row([n, seat, start, newTokens], lane, ends) {
    need(Number.isInteger(start) && Number.isInteger(newTokens));
    const sequence = this.#known(n);
    sequence.context = start + newTokens;
    return {
      ...this.#seat(sequence, seat, lane),
      phase: start < sequence.prompt_tokens ? "prefill" : "decode",
      new_tokens: newTokens,
      context_tokens: sequence.context,
      finish: ends.get(n) ?? null,
    };
  }

  #heldRow(n, seat, lane) {
    const sequence = this.#known(n);
    return { ...this.#seat(sequence, seat, lane), phase: "held", new_tokens: 0, context_tokens: sequence.context, finish: null };
  }

  #seat({ sequence_id, request_id }, seat, lane) {
    if (!(Number.isInteger(seat) && seat >= 0 && seat < this.header.seats[lane])) throw new RecordingError("seat");
    return { seat, sequence_id, request_id };
  }

  #known(n) {
    const sequence = this.#sequences[n];
    if (sequence === undefined) throw new RecordingError("unknown");
    return sequence;
  }
}

function checkedHeader(header) {
  const { seats, settings, first_step, num_blocks } = header;
  need(isText(settings.model) && Number.isInteger(first_step) && Number.isInteger(num_blocks));
  for (const number of Object.values(seats)) need(Number.isInteger(number) && number >= 0 && number <= MAX_SEATS);
  return header;
}

function need(isSo) {
  if (!isSo) throw new RecordingError("strange");
}

function isText(...values) {
  return values.every((value) => typeof value === "string");
}

/** How many tokens a prompt has; the tokens themselves aren't kept. */
function count(tokenIds) {
  need(Array.isArray(tokenIds));
  return tokenIds.length;
}
