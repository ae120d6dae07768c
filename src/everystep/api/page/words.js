// Which language the page speaks.  Every file has words of its own, in a table for `translator`; a test compares the keys.

const LANGUAGE_ITEM = "everystep.language";
export const LANGUAGES = { en: "English", ko: "한국어" };

/** The person's choice, else the browser's first that there is, else English. */
export function language() {
  const wanted = [localStorage.getItem(LANGUAGE_ITEM), ...navigator.languages.map((tag) => tag.split("-")[0])];
  return wanted.find((tag) => tag in LANGUAGES) ?? "en";
}

/** The page is made anew: what is known of the server comes from the server. */
export function speak(tag) {
  localStorage.setItem(LANGUAGE_ITEM, tag);
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
    return words.replace(/\{(\w+)\}/g, (_, name) => String(values[name]));
  };
}

/** A number with at most `digits` behind the point, as the language writes it. */
export function number(value, digits = 0) {
  return value.toLocaleString(language(), { maximumFractionDigits: digits, minimumFractionDigits: 0 });
}

/** Seconds as people say them: `12.3 s`, `340 ms`. */
export function duration(seconds) {
  if (seconds >= 100) return `${number(seconds)} s`;
  if (seconds >= 1) return `${number(seconds, 1)} s`;
  return `${number(seconds * 1000, seconds < 0.01 ? 1 : 0)} ms`;
}
