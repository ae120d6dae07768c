// How a step is drawn: a cell for each row, prefill darker than decode, held hatched, empty seats left blank.

import { coloursOf, isDark, shortName } from "./colours.js";

const HATCH_CSS_PX = 5;
const LETTER_CSS_PX = 11;

/** Colours and patterns as they are now; `key` tells whether kept pictures still hold. */
export class Look {
  constructor(ratio) {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    this.ratio = ratio;
    this.seat = colour("--seat");
    this.panel = colour("--panel");
    this.ink = colour("--ink");
    this.soft = colour("--soft");
    this.rule = colour("--rule");
    this.font = `${LETTER_CSS_PX * ratio}px ${colour("--mono")}`;
    this.hatch = hatching(colour("--panel"), ratio);
    this.key = `${isDark()} ${ratio}`;
  }
}

/** One piece of a lane: steps of `lane` from time `fromPx` (absolute) on, `scale.tilePx` wide. */
export function paintTile(context, scale, look, lane, tile) {
  const fromPx = tile * scale.tilePx;
  context.fillStyle = look.panel;
  context.fillRect(0, 0, scale.tilePx, scale.seatsHeight);
  context.fillStyle = look.seat;
  for (let seat = 0; seat < scale.seats; seat++) context.fillRect(0, seat * scale.row, scale.tilePx, scale.row - gapOf(scale));
  const untilS = (fromPx + scale.tilePx) / scale.pxPerS;
  let drawnTo = -Infinity; // a step narrower than a pixel shares its column with those before it
  for (let i = Math.max(0, lane.indexAt(fromPx / scale.pxPerS)); i < lane.steps.length; i++) {
    const step = lane.steps[i];
    if (step.start_s >= untilS) break;
    const x = scale.px(step.start_s) - fromPx;
    const width = Math.max(1, scale.px(step.end_s) - fromPx - x);
    if (x + width <= drawnTo) continue;
    drawnTo = x + width;
    paintStep(context, scale, look, step, x, width);
    if (beginsRound(step, lane.steps[i - 1])) paintBorder(context, scale, look, x);
  }
}

function paintStep(context, scale, look, step, x, width) {
  const gap = gapOf(scale);
  const inner = width > 5 * scale.ratio ? width - Math.round(scale.ratio) : width; // steps stand apart where there is room
  for (const row of step.rows) {
    const y = row.seat * scale.row;
    const height = scale.row - gap;
    const colours = coloursOf(row.sequence_id);
    if (row.phase === "held") paintHeld(context, look, colours.decode, x, y, inner, height);
    else {
      context.fillStyle = row.phase === "prefill" ? colours.prefill : colours.decode;
      context.fillRect(x, y, inner, height);
    }
    if (row.finish !== null) paintEnd(context, scale, look, x + inner, y, height);
    if (width > 40 * scale.ratio && height > 12 * scale.ratio) paintName(context, scale, look, row, colours, x, y, inner);
  }
}

/** A seat that an ended row keeps until its round is over. */
function paintHeld(context, look, colour, x, y, width, height) {
  context.globalAlpha = 0.45;
  context.fillStyle = colour;
  context.fillRect(x, y, width, height);
  context.globalAlpha = 1;
  context.fillStyle = look.hatch;
  context.fillRect(x, y, width, height);
}

/** The step that ended a row has a mark at its right. */
function paintEnd(context, scale, look, right, y, height) {
  const mark = Math.max(1, Math.round(1.5 * scale.ratio));
  context.fillStyle = look.ink;
  context.fillRect(right - mark, y, mark, height);
}

function paintName(context, scale, look, row, colours, x, y, width) {
  context.save();
  context.beginPath();
  context.rect(x, y, width - 2 * scale.ratio, scale.row);
  context.clip();
  context.font = look.font;
  context.textBaseline = "middle";
  context.fillStyle = row.phase === "decode" ? colours.ink : look.ink;
  if (row.phase === "prefill") context.fillStyle = "#ffffff";
  const what = row.phase === "held" ? "" : `  +${row.new_tokens} → ${row.context_tokens}`;
  context.fillText(`${shortName(row.sequence_id)}${what}`, x + 4 * scale.ratio, y + (scale.row - gapOf(scale)) / 2);
  context.restore();
}

/** Where a round begins, none who sat before sits now. */
function beginsRound(step, before) {
  if (step.policy !== "static" || before === undefined) return false;
  const seated = new Set(before.rows.map((row) => row.sequence_id));
  return step.rows.length > 0 && !step.rows.some((row) => seated.has(row.sequence_id));
}

function paintBorder(context, scale, look, x) {
  context.fillStyle = look.ink;
  context.fillRect(x - Math.round(scale.ratio), 0, Math.max(1, Math.round(scale.ratio)), scale.seatsHeight);
}

/** Around every cell of a sequence. */
export function paintPointed(context, scale, look, lane, sequenceId) {
  context.strokeStyle = look.ink;
  context.lineWidth = Math.max(1, scale.ratio);
  for (let i = Math.max(0, lane.indexAt(scale.startS)); i < lane.steps.length; i++) {
    const step = lane.steps[i];
    if (step.start_s >= scale.endS) break;
    const row = step.rows.find((one) => one.sequence_id === sequenceId);
    if (!row) continue;
    const x = scale.px(step.start_s) - scale.left;
    const width = Math.max(1, scale.px(step.end_s) - scale.left - x);
    context.strokeRect(x + 0.5, row.seat * scale.row + 0.5, width - 1, scale.row - gapOf(scale) - 1);
  }
}

export function paintAxis(context, scale, look, marks) {
  context.fillStyle = look.panel;
  context.fillRect(0, scale.seatsHeight, scale.width, scale.height - scale.seatsHeight);
  context.font = look.font;
  context.textBaseline = "bottom";
  for (const { atS, words } of marks) {
    const x = scale.px(atS) - scale.left;
    context.fillStyle = look.rule;
    context.fillRect(x, 0, 1, scale.seatsHeight + 4 * scale.ratio);
    context.fillStyle = look.soft;
    context.fillText(words, x + 3 * scale.ratio, scale.height - 1);
  }
}

function gapOf(scale) {
  return scale.row >= 4 * scale.ratio ? Math.max(1, Math.round(scale.ratio)) : 0;
}

function hatching(colour, ratio) {
  const size = Math.round(HATCH_CSS_PX * ratio);
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const context = tile.getContext("2d");
  context.strokeStyle = colour;
  context.lineWidth = Math.max(1, 1.6 * ratio);
  context.beginPath();
  for (const offset of [-size, 0, size]) {
    context.moveTo(offset, size);
    context.lineTo(offset + size, 0);
  }
  context.stroke();
  return context.createPattern(tile, "repeat");
}
