// What is shown, as a file: an SVG of the seats, a Chrome trace for Perfetto.
// Source of the trace's form: "Trace Event Format" of the Chromium project (JSON Object Format; events X, C and M).

import { coloursOf, isDark } from "./colours.js";
import { svgEl } from "./dom.js";
import { sits } from "./seat_paint.js";
import { stepsBetween } from "./seat_steps.js";

// A recording may have any id in it.  Source: XML 1.0, production 2 "Char"; halves of pairs are none.
const NOT_IN_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;
const WIDTH = 1200;
const ROW = 14;
const HEAD = 24;
const AXIS = 22;
const MARGIN = 10;
const CAUSES = ["round_running", "no_seat", "no_blocks", "no_budget", "behind"];
const ENGINE_PID = 1;
const PIDS_PER_LANE = 10_000; // viewers take thread ids as unique over all processes, as in /steps/trace

/** The lanes between two times as the text of an SVG file. */
export function svgOf(lanes, fromS, toS) {
  const ink = isDark() ? "#e9e9e6" : "#1c1c1a";
  const panel = isDark() ? "#1d1f22" : "#ffffff";
  const heightOf = (lane) => HEAD + lane.seats * ROW + AXIS;
  const height = lanes.reduce((sum, lane) => sum + heightOf(lane), MARGIN);
  const root = svgEl("svg", {
    xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${WIDTH} ${height}`, width: WIDTH, height,
    "font-family": "system-ui, sans-serif", "font-size": 12,
  });
  root.append(hatchPattern(panel), svgEl("rect", { width: WIDTH, height, fill: panel }));
  let y = 0;
  for (const lane of lanes) {
    root.append(laneGroup(lane, fromS, toS, y, ink));
    y += heightOf(lane);
  }
  return new XMLSerializer().serializeToString(root);
}

function hatchPattern(colour) {
  const line = svgEl("path", { d: "M0 5 L5 0", stroke: colour, "stroke-width": 1.6 });
  return svgEl("defs", {}, svgEl("pattern", { id: "held", width: 5, height: 5, patternUnits: "userSpaceOnUse" }, line));
}

function laneGroup(lane, fromS, toS, y, ink) {
  const scale = (WIDTH - 2 * MARGIN) / (toS - fromS);
  const x = (atS) => MARGIN + (Math.min(toS, Math.max(fromS, atS)) - fromS) * scale;
  const group = svgEl("g", { transform: `translate(0 ${y})` });
  group.append(svgEl("text", { x: MARGIN, y: 17, fill: ink, "font-weight": 600, text: lane.policy.replace(NOT_IN_XML, "\ufffd") }));
  for (let seat = 0; seat < lane.seats; seat++) {
    group.append(svgEl("rect", { x: MARGIN, y: HEAD + seat * ROW, width: WIDTH - 2 * MARGIN, height: ROW - 1, fill: ink, opacity: 0.06 }));
  }
  let before = null;
  for (const step of stepsBetween(lane, fromS, toS)) {
    if (before !== null) group.append(...seated(before, step, x));
    const width = Math.max(0.3, x(step.end_s) - x(step.start_s) - 0.4);
    for (const row of step.rows) group.append(...cell(row, step, x(step.start_s), HEAD + row.seat * ROW, width));
    before = step;
  }
  const label = (atS, anchor) =>
    svgEl("text", { x: x(atS), y: HEAD + lane.seats * ROW + 14, fill: ink, "text-anchor": anchor, text: `${atS.toFixed(2)} s` });
  group.append(label(fromS, "start"), label(toS, "end"));
  return group;
}

/** Those who kept their seats from one step to the next, while other lanes had their turns. */
function seated(before, step, x) {
  const [left, right] = [x(before.end_s), x(step.start_s)];
  if (right - left < 0.3) return [];
  return step.rows
    .filter((row) => sits(before, row))
    .map(({ sequence_id, seat }) => svgEl("rect", {
      x: left.toFixed(2), y: HEAD + seat * ROW, width: (right - left).toFixed(2), height: ROW - 1,
      class: "seated", fill: coloursOf(sequence_id).decode, opacity: 0.25,
    }));
}

function cell(row, step, x, y, width) {
  const colours = coloursOf(row.sequence_id);
  const size = { x: x.toFixed(2), y, width: width.toFixed(2), height: ROW - 1 };
  const who = row.sequence_id.replace(NOT_IN_XML, "\ufffd");
  const words = `${who}, step ${step.step}: ${row.phase}, ${row.new_tokens} new, context ${row.context_tokens}`;
  const title = svgEl("title", { text: words });
  if (row.phase !== "held") return [svgEl("rect", { ...size, class: "cell", fill: colours[row.phase] }, title)];
  return [svgEl("rect", { ...size, class: "cell", fill: colours.decode, opacity: 0.45 }, title), svgEl("rect", { ...size, fill: "url(#held)" })];
}

/** The same as Chrome trace-event JSON, with the events that `/steps/trace` has for these steps. */
export function traceOf(lanes, fromS, toS) {
  const traceEvents = [
    { name: "process_name", ph: "M", pid: ENGINE_PID, args: { name: "everystep" } },
    ...lanes.flatMap((lane, i) => [...laneEvents(lane, (i + 1) * PIDS_PER_LANE, fromS, toS)]),
  ];
  return JSON.stringify({ displayTimeUnit: "ms", traceEvents });
}

function* laneEvents(lane, pid, fromS, toS) {
  yield { name: "process_name", ph: "M", pid, args: { name: lane.policy } };
  yield { name: "thread_name", ph: "M", pid, tid: pid, args: { name: "steps" } };
  const steps = stepsBetween(lane, fromS, toS);
  for (const seat of new Set(steps.flatMap((step) => step.rows.map((row) => row.seat)))) {
    yield { name: "thread_name", ph: "M", pid, tid: pid + 1 + seat, args: { name: `seat ${seat}` } };
  }
  for (const step of steps) yield* stepEvents(step, pid);
}

function* stepEvents(step, pid) {
  const ts = microseconds(step.start_s);
  const dur = microseconds(step.end_s - step.start_s);
  const slice = { ph: "X", pid, ts, dur };
  const args = { rows: step.shape[0], longest: step.shape[1], waiting: step.waiting.length };
  yield { ...slice, name: `step ${step.step}`, cat: "step", tid: pid, args };
  for (const { seat, sequence_id, ...rest } of step.rows) {
    yield { ...slice, name: sequence_id, cat: rest.phase, tid: pid + 1 + seat, args: { step: step.step, ...rest } };
  }
  const waiting = Object.fromEntries(CAUSES.map((why) => [why, 0])); // viewers stack series that every event names
  for (const { why } of step.waiting) waiting[why] = (waiting[why] ?? 0) + 1;
  yield { name: "waiting", ph: "C", pid, ts, args: waiting };
  const blocks = { used: step.blocks_used, free: step.blocks_total - step.blocks_used };
  yield { name: "blocks", ph: "C", pid: ENGINE_PID, ts, args: blocks };
}

function microseconds(seconds) {
  return Math.round(seconds * 1e7) / 10;
}
