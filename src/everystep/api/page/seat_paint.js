// How a step is drawn: a cell for each row, prefill darker than decode, held hatched, empty seats left blank.

import { palette, placeOf, shortName } from "./colours.js";

const HATCH_CSS_PX = 5;
const LETTER_CSS_PX = 11;
const HELD_STRENGTH = 0.45; // of a held row's colour, over the empty seat's
const SEATED_STRENGTH = 0.25; // of one who keeps a seat from one step to the next: lanes take turns
const MARKS_CSS_PX = 5; // ends of a seat, and borders of rounds, that are nearer to each other aren't all marked
const NAME_CSS_PX = { width: 40, height: 12 }; // a cell needs more than this to have room for words

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
    this.places = palette();
    this.hatch = striped(null, this.panel, ratio);
    this.unknown = striped(this.panel, this.rule, ratio);
    this.key = `${this.seat} ${this.places[0].decode} ${ratio}`;
  }
}

/** Seats in which nobody sits. */
export function paintEmpty(context, scale, look) {
  context.fillStyle = look.panel;
  context.fillRect(0, 0, scale.tilePx, scale.seatsHeight);
  context.fillStyle = look.seat;
  for (let seat = 0; seat < scale.rows; seat++) context.fillRect(0, seat * scale.row, scale.tilePx, scale.row - scale.gap);
}

/** One piece of a lane: those of its steps that aren't drawn yet.  `state`: what is, from one call to the next. */
export function paintSteps(context, scale, look, lane, tile, state) {
  const fromPx = tile * scale.tilePx;
  const untilS = (fromPx + scale.tilePx) / scale.pxPerS;
  const next = state.last === null ? lane.indexAt(fromPx / scale.pxPerS) : lane.indexAt(state.last.start_s) + 1;
  const runs = new CellRuns(context, scale, look);
  const marks = []; // painted last, over the cells
  for (let i = Math.max(0, next); i < lane.steps.length; i++) {
    const step = lane.steps[i];
    if (i > 0) paintSeated(context, scale, look, lane.steps[i - 1], step, fromPx);
    state.isWhole = step.start_s >= untilS;
    if (state.isWhole) break;
    const x = scale.px(step.start_s) - fromPx;
    paintStep(scale, step, x, state, runs, marks);
    if (beginsRound(step, lane.steps[i - 1]) && isApart(state.marked, "round", x, scale)) {
      marks.push(() => paintBorder(context, scale, look, x));
    }
    state.last = step;
  }
  runs.end();
  for (const paint of marks) paint();
}

/** Cells of one row that touch each other are painted as one: far out a row has thousands. */
class CellRuns {
  #runs = new Map(); // seat → { row, x, right, isLone: of one step }

  constructor(context, scale, look) {
    this.context = context;
    this.scale = scale;
    this.look = look;
  }

  /** A cell of `row`, right of those that came before. */
  add(row, x, width) {
    const run = this.#runs.get(row.seat);
    if (run?.right === x && run.row.sequence_id === row.sequence_id && run.row.phase === row.phase) {
      run.right = x + width;
      run.isLone = false;
      return;
    }
    if (run !== undefined) this.#paint(run);
    this.#runs.set(row.seat, { row, x, right: x + width, isLone: true });
  }

  end() {
    for (const run of this.#runs.values()) this.#paint(run);
    this.#runs.clear();
  }

  #paint({ row, x, right, isLone }) {
    paintCell(this.context, this.scale, this.look, row, x, right - x);
    if (isLone) paintName(this.context, this.scale, this.look, row, x, right - x); // a number is one step's
  }
}

/** Between two steps of a lane, in which other lanes have their turns, those of both keep their seats. */
function paintSeated(context, scale, look, before, step, fromPx) {
  const x = scale.px(before.end_s) - fromPx;
  const width = scale.px(step.start_s) - fromPx - x;
  if (width < 1) return;
  context.globalAlpha = SEATED_STRENGTH;
  for (const row of step.rows) {
    if (row.seat >= scale.rows || !sits(before, row)) continue;
    context.fillStyle = look.places[placeOf(row.sequence_id)].decode;
    context.fillRect(x, row.seat * scale.row, width, scale.row - scale.gap);
  }
  context.globalAlpha = 1;
}

/** Whether `row`'s sequence had the same seat in the step `before`. */
export function sits(before, row) {
  return before.rows.some((other) => other.seat === row.seat && other.sequence_id === row.sequence_id);
}

/** A step narrower than a pixel shares its column with the first of those that fall into it; all ends are marked. */
function paintStep(scale, step, x, state, runs, marks) {
  const width = Math.max(1, scale.px(step.end_s) - scale.px(step.start_s));
  const isShared = x + width <= state.drawnTo;
  const inner = width > 5 * scale.ratio ? width - Math.round(scale.ratio) : width; // steps stand apart where there is room
  if (!isShared) state.drawnTo = x + width;
  for (const row of step.rows) {
    if (row.seat >= scale.rows) continue;
    if (!isShared) runs.add(row, x, inner);
    if (row.finish !== null && isApart(state.marked, row.seat, x + inner, scale)) {
      marks.push(() => paintEnd(runs.context, scale, runs.look, x + inner, row.seat * scale.row));
    }
  }
}

/** Marks closer than this to the one before would make a wall of them. */
function isApart(marked, place, x, scale) {
  const before = marked.get(place) ?? -Infinity;
  if (x - before < MARKS_CSS_PX * scale.ratio) return false;
  marked.set(place, x);
  return true;
}

function paintCell(context, scale, look, row, x, width) {
  const y = row.seat * scale.row;
  const height = scale.row - scale.gap;
  const colours = look.places[placeOf(row.sequence_id)];
  context.fillStyle = row.phase === "prefill" ? colours.prefill : colours.decode;
  if (row.phase === "held") context.globalAlpha = HELD_STRENGTH;
  context.fillRect(x, y, width, height);
  if (row.phase === "held") {
    context.globalAlpha = 1;
    context.fillStyle = look.hatch;
    context.fillRect(x, y, width, height);
  }
}

/** The step that ended a row has a mark at its right. */
function paintEnd(context, scale, look, right, y) {
  const mark = Math.max(1, Math.round(1.5 * scale.ratio));
  context.fillStyle = look.ink;
  context.fillRect(right - mark, y, mark, scale.row - scale.gap);
}

/** What there is room for, in whole words: a number cut in its middle is another number. */
function paintName(context, scale, look, row, x, width) {
  const height = scale.row - scale.gap;
  if (width <= NAME_CSS_PX.width * scale.ratio || height <= NAME_CSS_PX.height * scale.ratio) return;
  const colours = look.places[placeOf(row.sequence_id)];
  context.font = look.font;
  const name = shortName(row.sequence_id);
  const wordings = row.phase === "held" ? [name] : [`${name}  +${row.new_tokens} → ${row.context_tokens}`, name];
  const room = width - 8 * scale.ratio;
  const words = wordings.find((wording) => context.measureText(wording).width <= room);
  if (words === undefined) return;
  context.textBaseline = "middle";
  context.fillStyle = { decode: colours.ink, prefill: colours.prefillInk, held: look.ink }[row.phase];
  context.fillText(words, x + 4 * scale.ratio, row.seat * scale.row + height / 2);
}

/** Where a round begins, none who sat before sits now. */
function beginsRound(step, before) {
  if (step.policy !== "static" || before === undefined) return false;
  return step.rows.length > 0 && !step.rows.some((row) => before.rows.some((other) => other.sequence_id === row.sequence_id));
}

function paintBorder(context, scale, look, x) {
  context.fillStyle = look.ink;
  context.fillRect(x, 0, Math.max(1, Math.round(scale.ratio)), scale.seatsHeight);
}

/** Around each stay of a sequence: `{ seat, fromS, toS }`. */
export function paintStays(context, scale, look, stays) {
  const line = Math.max(2, Math.round(1.5 * scale.ratio));
  context.strokeStyle = look.ink;
  context.lineWidth = line;
  for (const { seat, fromS, toS } of stays) {
    if (toS <= scale.startS || fromS >= scale.endS || seat >= scale.rows) continue;
    const x = Math.max(-line, scale.px(fromS) - scale.left);
    const right = Math.min(scale.width + line, scale.px(toS) - scale.left);
    context.strokeRect(x, seat * scale.row + line / 2, Math.max(line, right - x), Math.max(1, scale.row - scale.gap - line));
  }
}

/** A time of which nothing is known isn't one in which nobody sat. */
export function paintUnknown(context, scale, look, { fromS, toS }, words) {
  const x = Math.max(0, scale.px(Math.max(fromS, scale.startS)) - scale.left);
  const right = Math.min(scale.width, scale.px(Math.min(toS, scale.endS)) - scale.left);
  const width = Math.max(2, right - x);
  context.fillStyle = look.unknown;
  context.fillRect(x, 0, width, scale.seatsHeight);
  context.font = look.font;
  const [room, line, middle] = [4 * scale.ratio, 16 * scale.ratio, scale.seatsHeight / 2];
  const wordsWidth = context.measureText(words).width;
  if (wordsWidth + 4 * room > width || scale.seatsHeight < line) return;
  context.fillStyle = look.panel;
  context.fillRect(right - wordsWidth - 3 * room, middle - line / 2, wordsWidth + 2 * room, line);
  context.textBaseline = "middle";
  context.fillStyle = look.soft;
  context.fillText(words, right - wordsWidth - 2 * room, middle);
}

export function paintAxis(context, scale, look, marks) {
  context.fillStyle = look.panel;
  context.fillRect(0, scale.seatsHeight, scale.width, scale.height - scale.seatsHeight);
  context.font = look.font;
  context.textBaseline = "bottom";
  for (const { atS, words } of marks) {
    const x = scale.px(atS) - scale.left;
    context.fillStyle = look.rule;
    context.fillRect(x, scale.seatsHeight, Math.max(1, Math.round(scale.ratio)), 5 * scale.ratio);
    context.fillStyle = look.soft;
    const from = x + 3 * scale.ratio;
    if (from + context.measureText(words).width <= scale.width) context.fillText(words, from, scale.height - 1);
  }
}

/** Slanting lines of `colour` on `ground`; without a ground, on what is there. */
function striped(ground, colour, ratio) {
  const size = Math.round(HATCH_CSS_PX * ratio);
  const tile = document.createElement("canvas");
  tile.width = tile.height = size;
  const context = tile.getContext("2d");
  if (ground !== null) {
    context.fillStyle = ground;
    context.fillRect(0, 0, size, size);
  }
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
