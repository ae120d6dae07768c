// Keeps a store at the present: what was, then each step as it comes, and the figures once a second.
// Survives the server's restart: says "away", tries again, and begins anew where the engine is another.

import { ServerError } from "./server.js";

const HISTORY_STEPS = 1_000; // fetched at the beginning; at 64 seats some 10 MB
const PAGE_STEPS = 200;
const FIGURES_EVERY_MS = 1_000;
const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 5_000;
const PAUSE_MS = 200; // where a stream ended in peace: whoever ends them all isn't asked without a pause

/** Listen for "state": `connecting`, `live`, `away` (no server answers), `locked` (a key is wanted). */
export class Live extends EventTarget {
  #awaitedId = null; // of the server that has no engine yet

  constructor(server, store, view) {
    super();
    this.server = server;
    this.store = store;
    this.view = view;
    this.state = "connecting";
    this.error = null; // why it is away or locked; `null` where no key was sent yet
    this.serverId = null;
    this.unlock = () => {};
  }

  /** Runs for as long as the page does. */
  async run() {
    let retryMs = FIRST_RETRY_MS;
    for (;;) {
      try {
        await this.#follow(() => (retryMs = FIRST_RETRY_MS));
        await sleep(PAUSE_MS);
      } catch (error) {
        await this.#failed(error, retryMs);
        retryMs = Math.min(LAST_RETRY_MS, retryMs * 2);
      }
    }
  }

  /** The person gave a key. */
  tryKey(key) {
    this.server.key = key;
    this.unlock();
  }

  /** `onLasting`: it went well for a while. */
  async #follow(onLasting) {
    const ended = new AbortController();
    try {
      const figures = await this.server.json("/figures");
      if (figures.server_id !== this.serverId) await this.#begin(figures);
      this.#take(figures);
      this.#enter("live", null);
      // Whichever ends first, by an error or by the server's leaving, ends the other.
      await Promise.race([this.#readSteps(ended.signal), this.#readFigures(ended.signal, onLasting)]);
    } finally {
      ended.abort();
    }
  }

  async #begin(figures) {
    const facts = await this.#askFacts();
    if (facts !== null || this.#awaitedId !== figures.server_id) this.store.reset(facts);
    this.#awaitedId = facts === null ? figures.server_id : null;
    this.serverId = facts === null ? null : figures.server_id;
    let since = Math.max(-1, figures.last_step - HISTORY_STEPS);
    while (since < figures.last_step) {
      const page = await this.server.json(`/steps?since=${since}&limit=${PAGE_STEPS}`);
      if (!page.steps.length) break;
      this.store.addSteps(page.steps);
      since = page.next;
    }
  }

  /** `null` while it is starting: the figures say why, and we come again. */
  async #askFacts() {
    try {
      return await this.server.json("/engine");
    } catch (error) {
      if (error.status !== 503 || error.type === "unknown") throw error;
      return null;
    }
  }

  async #readSteps(signal) {
    const since = this.store.lastStep;
    for await (const { event, data } of this.server.events(`/steps/stream?since=${since}`, { signal })) {
      if (event === "message") this.store.addSteps([JSON.parse(data)]);
      if (event === "skipped") this.store.addGap(JSON.parse(data));
    }
  }

  async #readFigures(signal, onLasting) {
    for (;;) {
      await sleep(FIGURES_EVERY_MS);
      const figures = await this.server.json("/figures", { signal });
      if (figures.server_id !== this.serverId) return; // another server, or the engine is there now
      this.#take(figures);
      onLasting();
    }
  }

  #take(figures) {
    this.view.setClock(figures.now_s);
    this.store.setFigures(figures);
  }

  async #failed(error, retryMs) {
    if (error instanceof ServerError && error.status === 401) {
      const unlocked = new Promise((resolve) => (this.unlock = resolve));
      this.#enter("locked", this.server.key === null ? null : error);
      await unlocked;
      this.#enter("connecting", null);
      return;
    }
    this.view.holdClock();
    this.#enter("away", error);
    await sleep(retryMs);
  }

  #enter(state, error) {
    this.state = state;
    this.error = error;
    this.dispatchEvent(new Event("state"));
  }
}

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
