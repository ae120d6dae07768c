// Reads a recorded schedule (`everystep serve --record`, described in docs/replaying.md) into stores: here, sent nowhere.
// Owns the file: its lines, its cuts, its size.  What the lines mean, recorded_server.js knows.

import { RecordedServer, RecordingError } from "./recorded_server.js";

const SCHEMA = 1;
const MAX_MIB = 256; // a tab has room for the steps of so much
const TURN_MS = 30; // then the page gets its turn

/**
 * Stores of a recording's servers, each with a name; a file that was appended to has several.  `onPart(share)` is told
 * how much is read.  Throws `RecordingError`.
 */
export async function readRecording(file, onPart = () => {}) {
  if (file.size > MAX_MIB * 2 ** 20) throw new RecordingError("large", { mib: Math.ceil(file.size / 2 ** 20), most: MAX_MIB });
  const reading = new RecordingReader();
  let numRead = 0;
  let sinceMs = performance.now();
  for await (const line of linesOf(file)) {
    reading.take(line);
    numRead += line.length + 1; // of characters: near enough to bytes
    if (performance.now() - sinceMs < TURN_MS) continue;
    onPart(Math.min(1, numRead / file.size));
    await new Promise((resolve) => setTimeout(resolve));
    sinceMs = performance.now();
  }
  return reading.stores(file.name);
}

/** Lines without their ends, the last one as far as it goes. */
async function* linesOf(file) {
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  let parts = []; // of a line that isn't whole
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = value.split("\n");
    if (lines.length === 1) {
      parts.push(value);
      continue;
    }
    yield parts.join("") + lines[0];
    yield* lines.slice(1, -1);
    parts = [lines.at(-1)];
  }
  yield parts.join("");
}

/** One file being read: its servers, and a line that can't be read, which is well where nothing of its server follows. */
class RecordingReader {
  #servers = [];
  #number = 0; // of the line
  #cut = null;

  take(line) {
    this.#number += 1;
    if (line.trim() === "") return;
    const entry = this.#parsed(line);
    if (entry === null) return;
    if (this.#cut !== null && entry.line !== "header") throw this.#cut;
    this.#cut = null;
    if (entry.line === "header") this.#begin(entry);
    else if (!this.#servers.length) throw new RecordingError("headless", { line: this.#number });
    else this.#hand(entry);
  }

  stores(fileName) {
    if (!this.#servers.length) throw this.#cut ?? new RecordingError("empty");
    const count = this.#servers.length;
    const stores = this.#servers.map((server, i) => server.store(count > 1 ? `${fileName} (${i + 1}/${count})` : fileName));
    stores.at(-1).isCut = this.#cut !== null;
    return stores;
  }

  #parsed(line) {
    try {
      const entry = JSON.parse(line);
      if (typeof entry?.line === "string") return entry;
    } catch {
      // told below
    }
    const wrong = new RecordingError("strange", { line: this.#number });
    if (this.#cut !== null || !this.#servers.length) throw this.#cut ?? wrong;
    this.#cut = wrong; // its writer may have been killed within it
    return null;
  }

  /** A worker's successor goes on counting; another server begins at 0 again, with a clock of its own. */
  #begin(header) {
    if (header.schema !== SCHEMA) throw new RecordingError("schema", { line: this.#number, schema: String(header.schema), ours: SCHEMA });
    const last = this.#servers.at(-1);
    this.#hand(header, last !== undefined && header.first_step > last.lastStep ? last : null);
  }

  /** Whatever a line lacks, the person is told which line it is. */
  #hand(entry, server = this.#servers.at(-1)) {
    try {
      if (entry.line !== "header") server.take(entry);
      else if (server === null) this.#servers.push(new RecordedServer(entry));
      else server.succeed(entry);
    } catch (error) {
      if (error instanceof RecordingError) throw error.at(this.#number);
      if (error instanceof TypeError) throw new RecordingError("strange", { line: this.#number });
      throw error;
    }
  }
}
