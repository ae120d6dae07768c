// One run of "try it": the prompts of one request through one lane, what came of them, and who sat where meanwhile.

const STEPS_DEADLINE_MS = 5_000; // the step log is another stream: its last steps may come after the last token

export class TryRun {
  constructor(app, policy, prompts) {
    this.app = app;
    this.policy = policy;
    this.prompts = prompts;
    this.texts = prompts.map(() => "");
    this.firstS = prompts.map(() => null); // seconds to the first token, as this page saw it
    this.requestId = null;
    this.tokens = 0;
    this.seconds = null;
    this.seatSteps = null; // null where no steps tell
    this.steps = 0;
  }

  /** Sends, and reads to the end.  `onNews(index)` for each piece of text, or `onNews(null)`.  Throws what the server says. */
  async run(signal, onNews) {
    const beganMs = performance.now();
    const body = { prompts: this.prompts, policy: this.policy, ignore_eos: true };
    const onStart = (response) => {
      this.requestId = response.headers.get("x-generation-id");
      onNews(null);
    };
    for await (const { event, data } of this.app.server.events("/try", { body, signal, onStart })) {
      const news = JSON.parse(data);
      if (event === "error") throw new Error(news.error.message);
      if (event === "message") {
        this.#take(news, (performance.now() - beganMs) / 1000);
        onNews(news.index);
      }
    }
    this.seconds = (performance.now() - beganMs) / 1000;
    await this.#stepsAreThere();
    this.#countSeats();
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

  get #lane() {
    return this.app.liveStore.lanes.get(this.policy);
  }

  /** Until the step that ended our last row is in the store. */
  async #stepsAreThere() {
    const untilMs = performance.now() + STEPS_DEADLINE_MS;
    while (this.#lane !== undefined && this.#numEnded() < this.prompts.length && performance.now() < untilMs) {
      await this.#moreSteps();
    }
  }

  #moreSteps() {
    return new Promise((resolve) => {
      this.app.liveStore.addEventListener("steps", resolve, { once: true });
      setTimeout(resolve, 300); // the deadline is looked at though none come
    });
  }

  #numEnded() {
    const ours = (row) => row.request_id === this.requestId && row.finish !== null;
    return this.#ourSteps().reduce((sum, step) => sum + step.rows.filter(ours).length, 0);
  }

  #ourSteps() {
    const steps = this.#lane?.steps ?? [];
    return steps.filter((step) => step.rows.some((row) => row.request_id === this.requestId));
  }

  /** Of the steps in which any of ours sat; others' rows count as what they are. */
  #countSeats() {
    const steps = this.#ourSteps();
    this.steps = steps.length;
    if (!steps.length) return;
    const sums = { working: 0, held: 0, empty: 0 };
    for (const step of steps) {
      const held = step.rows.filter((row) => row.phase === "held").length;
      sums.held += held;
      sums.working += step.rows.length - held;
      sums.empty += this.#lane.seats - step.rows.length;
    }
    this.seatSteps = sums;
  }
}
