// Which colour a sequence has: the same wherever it is drawn, on every page and after every reload.
//
// Seven hues that colour-blind people can tell apart, each in two strengths.  Source of the hues: Okabe and Ito, "Color
// Universal Design" (2008), their set without black.  The sequences of one request sit side by side, so they take places
// side by side; strengths and order were searched for so that neighbours are far apart for everybody (a test simulates
// red- and green-blindness and says how far).  Where a request begins is a hash of its id.

const BLUE = "#0072b2";
const ORANGE = "#e69f00";
const GREEN = "#009e73";
const PINK = "#cc79a7";
const SKY = "#56b4e9";
const VERMILION = "#d55e00";
const YELLOW = "#f0e442";

/** Hue, and how much white (below 0: black) is mixed with it on the light page and on the dark one. */
const COLOURS = [
  [BLUE, 0, 0.2], [VERMILION, -0.45, 0.2], [BLUE, -0.35, -0.2], [GREEN, -0.2, -0.1], [SKY, 0.05, 0.1], [YELLOW, -0.45, -0.5], [SKY, -0.2, -0.4],
  [ORANGE, 0.15, 0.2], [GREEN, -0.45, -0.4], [PINK, 0.45, 0.2], [ORANGE, -0.45, -0.5], [VERMILION, 0.45, 0.5], [PINK, -0.25, -0.4], [YELLOW, -0.35, 0.3],
];
const WHITE = 255;
const BLACK = 0;

/** Prefill is the same with much of the ink's colour: it stands out from the page further than decode does. */
const palettes = {
  light: COLOURS.map(([hue, lift]) => shades(hue, lift, 0.45, BLACK)),
  dark: COLOURS.map(([hue, , lift]) => shades(hue, lift, 0.55, WHITE)),
};

const MAX_KNOWN_PLACES = 20_000;
const knownPlaces = new Map(); // sequence id → place: asked for at each row of each step

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** By place: `decode` and `prefill` fill a cell; `ink` and `prefillInk` are readable on them. */
export function palette() {
  return palettes[isDark() ? "dark" : "light"];
}

/** The colours of a sequence, by its id, as it is shown now. */
export function coloursOf(sequenceId) {
  return palette()[placeOf(sequenceId)];
}

/** From 0 to 13. */
export function placeOf(sequenceId) {
  let place = knownPlaces.get(sequenceId);
  if (place === undefined) {
    if (knownPlaces.size >= MAX_KNOWN_PLACES) knownPlaces.clear();
    place = computedPlace(sequenceId);
    knownPlaces.set(sequenceId, place);
  }
  return place;
}

function computedPlace(sequenceId) {
  const cut = sequenceId.lastIndexOf("-");
  const index = Number.parseInt(sequenceId.slice(cut + 1), 10);
  const request = Number.isNaN(index) ? sequenceId : sequenceId.slice(0, cut);
  let hash = 2166136261; // FNV-1a, 32 bits
  for (let i = 0; i < request.length; i++) hash = Math.imul(hash ^ request.charCodeAt(i), 16777619);
  return ((hash >>> 0) + (Number.isNaN(index) ? 0 : index)) % COLOURS.length;
}

/** The last part of an id, which is enough to tell those of one screen apart. */
export function shortName(sequenceId) {
  const parts = sequenceId.split("-");
  return parts.length < 3 ? sequenceId : `${parts[1].slice(-4)}-${parts.at(-1)}`;
}

function shades(hue, lift, depth, inkOfPage) {
  const decode = mixed(channelsOf(hue), lift > 0 ? WHITE : BLACK, Math.abs(lift));
  const prefill = mixed(decode, inkOfPage, depth);
  return { decode: hex(decode), prefill: hex(prefill), ink: inkOn(decode), prefillInk: inkOn(prefill) };
}

function channelsOf(colour) {
  return [1, 3, 5].map((at) => Number.parseInt(colour.slice(at, at + 2), 16));
}

function mixed(channels, with_, share) {
  return channels.map((channel) => Math.round(channel * (1 - share) + with_ * share));
}

function hex(channels) {
  return `#${channels.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
}

/** Black or white, whichever has more contrast: they have the same where (1 + 0.05) / (Y + 0.05) = (Y + 0.05) / 0.05. */
function inkOn(channels) {
  return luminance(channels) > Math.sqrt(1.05 * 0.05) - 0.05 ? "#000000" : "#ffffff";
}

/** Relative luminance, as WCAG 2.2 defines it. */
function luminance(channels) {
  const [r, g, b] = channels.map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
