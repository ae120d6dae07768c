// Which colour a sequence has: the same wherever it is drawn, on every page and after every reload.
//
// Seven hues that colour-blind people can tell apart, in two strengths each.  Source of the hues: Okabe and Ito, "Color
// Universal Design" (2008), their set without black.  The sequences of one request stand beside each other in seats, so
// they take neighbouring places; where a request begins is a hash of its id.

const HUES = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"];
const PLACES = HUES.length * 2;

/** `decode` and `prefill` fill a cell; `ink` is readable on `decode`. */
const palettes = {
  light: HUES.flatMap((hue) => [shades(hue, 0.1, 0.35), shades(hue, 0.45, 0.1)]),
  dark: HUES.flatMap((hue) => [shades(hue, -0.08, 0.4), shades(hue, -0.38, 0.15)]),
};

export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** The colours of a sequence, by its id, as it is shown now. */
export function coloursOf(sequenceId) {
  return palettes[isDark() ? "dark" : "light"][placeOf(sequenceId)];
}

/** From 0 to 13. */
export function placeOf(sequenceId) {
  const cut = sequenceId.lastIndexOf("-");
  const index = Number.parseInt(sequenceId.slice(cut + 1), 10);
  const request = Number.isNaN(index) ? sequenceId : sequenceId.slice(0, cut);
  let hash = 2166136261; // FNV-1a, 32 bits
  for (let i = 0; i < request.length; i++) hash = Math.imul(hash ^ request.charCodeAt(i), 16777619);
  return ((hash >>> 0) + (Number.isNaN(index) ? 0 : index)) % PLACES;
}

/** The last part of an id, which is enough to tell those of one screen apart. */
export function shortName(sequenceId) {
  const parts = sequenceId.split("-");
  return parts.length < 3 ? sequenceId : `${parts[1].slice(-4)}-${parts.at(-1)}`;
}

/** `lift` mixes decode's colour with white (below 0: black); prefill's is `depth` darker. */
function shades(hue, lift, depth) {
  const decode = mixed(hue, lift > 0 ? 255 : 0, Math.abs(lift));
  const ink = luminance(decode) > 0.36 ? "#111111" : "#ffffff";
  return { decode: hex(decode), prefill: hex(mixed(hex(decode), 0, depth)), ink };
}

function mixed(colour, with_, share) {
  return [1, 3, 5].map((at) => Math.round(Number.parseInt(colour.slice(at, at + 2), 16) * (1 - share) + with_ * share));
}

function hex(channels) {
  return `#${channels.map((channel) => channel.toString(16).padStart(2, "0")).join("")}`;
}

/** Relative luminance, as WCAG 2.2 defines it. */
function luminance(channels) {
  const [r, g, b] = channels.map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
