// Server-sent events from a stream of bytes.  `EventSource` can't send a key, and a POST it can't send at all.
// Format: HTML Living Standard, 9.2.6 "Interpreting an event stream".

/** Yields `{ event, data, id }` for each event of a response's body. */
export async function* eventsOf(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let fields = newFields();
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n"); // our server ends lines with \n
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (fields.data.length) yield { event: fields.event, data: fields.data.join("\n"), id: fields.id };
          fields = newFields();
        } else {
          readLine(line, fields);
        }
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the stream may have failed already
  }
}

function newFields() {
  return { event: "message", data: [], id: null };
}

function readLine(line, fields) {
  if (line.startsWith(":")) return; // a comment keeps the connection alive
  const colon = line.indexOf(":");
  const name = colon < 0 ? line : line.slice(0, colon);
  const value = colon < 0 ? "" : line.slice(colon + (line[colon + 1] === " " ? 2 : 1));
  if (name === "data") fields.data.push(value);
  else if (name === "event" || name === "id") fields[name] = value;
}
