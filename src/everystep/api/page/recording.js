// A recorded schedule (`everystep serve --record`, described in docs/replaying.md) as a store: read here, sent nowhere.

import { Store } from "./store.js";

const SCHEMA = 1;

/** The file isn't what it should be; the message is for the person. */
export class RecordingError extends Error {}

/** Stores of a recording's servers, each with a name; a file that was appended to has several. */
export function readRecording(fileName, text) {
  const servers = [];
  const lines = text.split("\n");
  lines.forEach((line, i) => {
    if (line === "") return;
    const isCut = i === lines.length - 1; // its writer was killed within it
    const entry = parsed(line, i + 1, isCut);
    if (entry === null) return;
    if (entry.line === "header") beginSegment(servers, entry, i + 1);
    else if (!servers.length) throw new RecordingError(`line ${i + 1} stands before any header: this is no recording`);
    else servers.at(-1).take(entry);
  });
  if (!servers.length) throw new RecordingError("the file is empty");
  return servers.map((server, i) => server.store(servers.length > 1 ? `${fileName} (${i + 1}/${servers.length})` : fileName));
}

function parsed(line, number, isCut) {
  try {
    const entry = JSON.parse(line);
    if (typeof entry?.line === "string") return entry;
  } catch (error) {
    if (isCut) return null;
    throw new RecordingError(`line ${number} is no JSON: ${error.message}`);
  }
  throw new RecordingError(`line ${number} has no "line": this is no recording of a schedule`);
}

/** A worker's successor goes on counting; another server begins at 0 again, with a clock of its own. */
function beginSegment(servers, header, number) {
  if (header.schema !== SCHEMA) {
    throw new RecordingError(`line ${number} is of schema ${header.schema}; this page reads schema ${SCHEMA}`);
  }
  if (servers.length && header.first_step > servers.at(-1).lastStep) servers.at(-1).succeed(header);
  else servers.push(new RecordedServer(header));
}

/** Plays a recording's lines: who is here, who sits, who waits. */
class RecordedServer {
  #sequences = []; // by number, of the segment
  #open = new Map(); // policy → Map of number → sequence; those that have neither ended nor been refused
  #plan = null;
  #lastRows = new Map(); // policy → ids of the lane's last step

  constructor(header) {
    this.header = header;
    this.steps = [];
    this.lastStep = -1;
  }

  succeed(header) {
    this.header = header;
    this.#sequences = [];
    this.#open.clear();
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
    acts[entry.line]?.(); // what is idle or broke shows nobody in a seat
  }

  store(name) {
    const store = new Store({ isLive: false });
    const { model } = this.header.settings;
    store.reset({ ...this.header, model });
    store.name = name;
    store.addSteps(this.steps);
    return store;
  }

  #submit(entry) {
    this.#sequences[entry.n] = { ...entry, prompt_tokens: entry.prompt_ids.length };
    if (!this.#open.has(entry.lane)) this.#open.set(entry.lane, new Map());
    this.#open.get(entry.lane).set(entry.n, this.#sequences[entry.n]);
  }

  #end(n) {
    this.#open.get(this.#sequences[n]?.lane)?.delete(n);
  }

  #abort({ sequence_id }) {
    const n = this.#sequences.findIndex((sequence) => sequence?.sequence_id === sequence_id);
    if (n >= 0) this.#end(n);
  }

  /** Who waits is as of now: what comes during the pass, the plan couldn't see. */
  #begin(plan) {
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
    if (plan === null) throw new RecordingError("a step stands without its plan");
    this.#plan = null;
    const ends = new Map((result.ends ?? []).map(([n, reason]) => [n, reason]));
    const rows = [
      ...plan.rows.map((row) => this.#row(row, ends)),
      ...(plan.held ?? []).map(([n, seat]) => this.#heldRow(n, seat)),
    ].sort((a, b) => a.seat - b.seat);
    this.steps.push({
      step: plan.step,
      policy: plan.lane,
      start_s: plan.now_s,
      end_s: result.end_s,
      shape: [plan.rows.length, Math.max(0, ...plan.rows.map((row) => row[3]))],
      rows,
      waiting: plan.waiting,
      blocks_used: plan.blocks,
      blocks_total: this.header.num_blocks,
    });
    this.lastStep = plan.step;
    for (const n of ends.keys()) this.#end(n);
  }

  #row([n, seat, start, newTokens], ends) {
    const sequence = this.#sequences[n];
    sequence.context = start + newTokens;
    return {
      ...this.#seat(n, seat),
      phase: start < sequence.prompt_tokens ? "prefill" : "decode",
      new_tokens: newTokens,
      context_tokens: sequence.context,
      finish: ends.get(n) ?? null,
    };
  }

  #heldRow(n, seat) {
    return { ...this.#seat(n, seat), phase: "held", new_tokens: 0, context_tokens: this.#sequences[n].context ?? 0, finish: null };
  }

  #seat(n, seat) {
    const { sequence_id, request_id } = this.#sequences[n];
    return { seat, sequence_id, request_id };
  }
}
