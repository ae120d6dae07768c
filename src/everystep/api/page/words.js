// Which language the page speaks.  Every file has words of its own, in a table for `translator`; a test compares the keys.

import { kept } from "./kept.js";

export const LANGUAGES = { en: "English", ko: "한국어" };

const chosenLanguage = kept("localStorage", "everystep.language");
const TURNING = /[\u202a-\u202e\u2066-\u2069]/g; // would turn around the words that stand behind them
const numberFormats = new Map();
let spoken = null;

/** The person's choice, else the browser's first that there is, else English. */
export function language() {
  if (spoken === null) {
    const wanted = [chosenLanguage.get(), ...navigator.languages.map((tag) => tag.split("-")[0])];
    spoken = wanted.find((tag) => tag !== null && Object.hasOwn(LANGUAGES, tag)) ?? "en";
  }
  return spoken;
}

/** The page is made anew: what is known of the server comes from the server.  Listen for "speak" of the document to keep more. */
export function speak(tag) {
  chosenLanguage.set(tag);
  document.dispatchEvent(new Event("speak"));
  location.reload();
}

/**
 * `t(key, values)` for a table `{ en: { key: "with {name}" }, ko: … }`.  A value may be a function of the values, where
 * a number changes more than itself.
 */
export function translator(table) {
  return (key, values = {}) => {
    const words = table[language()][key];
    if (words === undefined) throw new Error(`no words for ${key}`);
    if (typeof words === "function") return words(values);
    if (typeof words === "object") return words; // a table of its own
    return words.replace(/\{(\w+)\}/g, (_, name) => String(values[name]).replace(TURNING, "\ufffd"));
  };
}

/** A number with at most `digits` behind the point, as the language writes it. */
export function number(value, digits = 0) {
  if (!numberFormats.has(digits)) {
    numberFormats.set(digits, new Intl.NumberFormat(language(), { maximumFractionDigits: digits }));
  }
  return numberFormats.get(digits).format(value);
}

/** Seconds as people say them: `12.3 s`, `340 ms`. */
export function duration(seconds) {
  if (seconds >= 99.95) return `${number(seconds)} s`;
  if (seconds >= 0.9995) return `${number(seconds, 1)} s`;
  return `${number(seconds * 1000, seconds < 0.00995 ? 1 : 0)} ms`;
}
