// One run of "try it": the prompts of one request through one lane, what came of them, and who sat where meanwhile.

import { seatStepsOf } from "./seat_steps.js";
import { ServerError } from "./server.js";

const ASKED_STEPS = 200; // at once
const STEPS_DEADLINE_MS = 5_000; // the step log is another stream: its last steps may come after the last token

export class TryRun {
  #sinceStep = -1; // ours come behind it

  constructor(app, policy, prompts) {
    this.app = app;
    this.policy = policy;
    this.prompts = prompts;
    this.texts = prompts.map(() => "");
    this.firstS = prompts.map(() => null); // seconds to the first token, as this page saw it
    this.requestId = null;
    this.tokens = 0;
    this.seconds = null;
    this.seatSteps = null; // null where no steps tell, or not all
    this.steps = 0;
    this.span = null; // { fromS, toS } of the steps
    this.foreign = 0; // of the seat-steps that worked: other requests' of this lane
    this.stepsElsewhere = 0; // of other lanes, in between
  }

  /** Sends, and reads to the end.  `onNews(index)` for each piece of text, or `onNews(null)`.  Throws what the server says. */
  async run(signal, onNews) {
    const beganMs = performance.now();
    this.#sinceStep = this.#store.lastStep;
    const body = { prompts: this.prompts, policy: this.policy, ignore_eos: true };
    const onStart = (response) => {
      this.requestId = response.headers.get("x-generation-id");
      onNews(null);
    };
    let isDone = false;
    for await (const { event, data } of this.app.server.events("/try", { body, signal, onStart })) {
      const news = JSON.parse(data);
      if (event === "error") throw new ServerError(200, news.error.type, news.error.message);
      if (event === "done") isDone = true;
      if (event === "message") {
        this.#take(news, (performance.now() - beganMs) / 1000);
        onNews(news.index);
      }
    }
    if (!isDone) throw new TypeError("the stream ended before its end");
    this.seconds = (performance.now() - beganMs) / 1000;
    const steps = this.#store.lanes.has(this.policy) ? await this.#stepsOfRun(signal) : null; // vLLM's lane tells none
    if (steps !== null) this.#countSeats(steps);
  }

  get tokensPerS() {
    return this.tokens / this.seconds;
  }

  /** The middle one of the times to the first token. */
  get medianFirstS() {
    const sorted = this.firstS.filter((one) => one !== null).sort((a, b) => a - b);
    return sorted.length ? sorted[(sorted.length - 1) >> 1] : null;
  }

  sequenceId(index) {
    return `${this.requestId}-${index}`;
  }

  #take({ index, text, tokens }, atS) {
    this.texts[index] += text;
    this.tokens += tokens;
    if (tokens) this.firstS[index] ??= atS;
  }

  get #store() {
    return this.app.liveStore;
  }

  /** Waits until the steps that ended our rows are in the store.  What the stream passed over is asked for. */
  async #stepsOfRun(signal) {
    const untilMs = performance.now() + STEPS_DEADLINE_MS;
    const lanes = () => [...this.#store.lanes.values()].flatMap((lane) => lane.steps.filter(({ step }) => step > this.#sinceStep));
    const hasGap = () => this.#store.gaps.some(({ last }) => last > this.#sinceStep);
    for (let steps = lanes(); !hasGap() && performance.now() < untilMs; steps = lanes()) {
      if (this.#areWhole(steps)) return steps;
      signal.throwIfAborted();
      await this.#moreSteps();
    }
    return this.#askedSteps(signal);
  }

  /** From the server's own log; `null` where that doesn't have them all any more, or can't say. */
  async #askedSteps(signal) {
    try {
      return await this.#readLog(signal);
    } catch (error) {
      if (signal.aborted) throw error;
      return null;
    }
  }

  async #readLog(signal) {
    const steps = [];
    for (let since = this.#sinceStep; ; ) {
      const page = await this.app.server.json(`/steps?since=${since}&limit=${ASKED_STEPS}`, { signal });
      if (!page.steps.length) return null;
      if (!steps.length && page.steps[0].step > this.#sinceStep + 1) return null; // the oldest are forgotten
      steps.push(...page.steps);
      if (this.#areWhole(steps)) return steps;
      since = page.next;
    }
  }

  #moreSteps() {
    return new Promise((resolve) => {
      const done = () => {
        this.#store.removeEventListener("steps", done);
        clearTimeout(timer);
        resolve();
      };
      this.#store.addEventListener("steps", done);
      const timer = setTimeout(done, 300); // the deadline is looked at though none come
    });
  }

  /** Whether all of ours have ended in them. */
  #areWhole(steps) {
    const ended = (row) => this.#isOurs(row) && row.finish !== null;
    return steps.reduce((sum, step) => sum + step.rows.filter(ended).length, 0) === this.prompts.length;
  }

  #isOurs(row) {
    return row.request_id === this.requestId;
  }

  /** Of the steps in which any of ours sat; others' rows count as what they are, and are counted apart. */
  #countSeats(steps) {
    const ours = steps.filter((step) => step.rows.some((row) => this.#isOurs(row)));
    const seats = this.#store.lanes.get(this.policy).seats;
    for (const { rows } of ours) this.foreign += rows.filter((row) => row.phase !== "held" && !this.#isOurs(row)).length;
    const [first, last] = [ours[0].step, ours.at(-1).step];
    this.span = { fromS: ours[0].start_s, toS: ours.at(-1).end_s };
    this.steps = ours.length;
    this.seatSteps = seatStepsOf(ours, seats);
    this.stepsElsewhere = steps.filter(({ step, policy }) => policy !== this.policy && step > first && step < last).length;
  }
}
