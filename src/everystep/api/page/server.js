// The way to the server: JSON, streams, the key.  Ignorant of what is asked.

import { kept } from "./kept.js";
import { eventsOf } from "./sse.js";

const DEADLINE_MS = 20_000; // for a whole reply: a server that is frozen neither answers nor hangs up
const FIRST_WORDS = 200; // of an answer that isn't our server's

/** The server answered, and it was no. */
export class ServerError extends Error {
  constructor(status, type, message) {
    super(message);
    this.status = status;
    this.type = type;
  }
}

export class Server {
  #kept = kept("sessionStorage", "everystep.key"); // gone with the tab

  get key() {
    return this.#kept.get();
  }

  /** `null` forgets it. */
  set key(key) {
    this.#kept.set(key);
  }

  /**
   * The reply's JSON; with a body it is a POST.  Throws `ServerError`, also where the answer is somebody else's and no
   * JSON; a `TypeError` where nobody answers, and a `DOMException` past the deadline.
   */
  async json(path, { body, signal } = {}) {
    const deadline = AbortSignal.timeout(DEADLINE_MS);
    const response = await this.#fetch(path, { body, signal: signal ? AbortSignal.any([signal, deadline]) : deadline });
    const text = await response.text();
    try {
      return JSON.parse(text);
    } catch {
      throw new ServerError(response.status, "unknown", text.slice(0, FIRST_WORDS));
    }
  }

  /** Yields `{ event, data, id }` of a stream; with a body it is a POST.  `onStart` is told of the response. */
  async *events(path, { body, signal, onStart = () => {} } = {}) {
    const response = await this.#fetch(path, { body, signal });
    onStart(response);
    yield* eventsOf(response);
  }

  async #fetch(path, { body, signal }) {
    const headers = { accept: "application/json, text/event-stream" };
    if (this.key !== null) headers.authorization = `Bearer ${this.key}`;
    const options = { headers, signal, cache: "no-store", credentials: "omit" };
    if (body !== undefined) {
      headers["content-type"] = "application/json";
      Object.assign(options, { method: "POST", body: JSON.stringify(body) });
    }
    const response = await fetch(`.${path}`, options); // beside the page, wherever a proxy has put it
    if (!response.ok) throw await failureOf(response);
    return response;
  }
}

async function failureOf(response) {
  const text = await response.text();
  try {
    const { type, message } = JSON.parse(text).error;
    return new ServerError(response.status, type, message);
  } catch {
    return new ServerError(response.status, "unknown", text.slice(0, FIRST_WORDS)); // a proxy between us, perhaps
  }
}
