// The way to the server: JSON, streams, the key.  Ignorant of what is asked.

import { eventsOf } from "./sse.js";

const KEY_ITEM = "everystep.key"; // in the tab's own storage: it is gone with the tab

/** The server answered, and it was no. */
export class ServerError extends Error {
  constructor(status, type, message) {
    super(message);
    this.status = status;
    this.type = type;
  }
}

export class Server {
  get key() {
    return sessionStorage.getItem(KEY_ITEM);
  }

  /** `null` forgets it. */
  set key(key) {
    if (key === null) sessionStorage.removeItem(KEY_ITEM);
    else sessionStorage.setItem(KEY_ITEM, key);
  }

  /** The reply's JSON.  Throws `ServerError`, or `TypeError` where no server answers. */
  async json(path, { signal } = {}) {
    const response = await this.#fetch(path, { signal });
    return response.json();
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
    const response = await fetch(path, options);
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
    return new ServerError(response.status, "unknown", text.slice(0, 200)); // a proxy between us, perhaps
  }
}
