// What "try it" sends: prompts of varied lengths, the same for every lane, none of which a cache has seen.

/** Most tokens of each answer, in turn: short beside long is what batching is about. */
const OUTPUTS = [12, 48, 20, 96, 8, 32, 64, 16];
const REPEATS = [1, 3, 2, 6]; // how often the text stands in the prompt

/**
 * `{ prompt, max_tokens }` for each of `count`.  `run` stands at the beginning of each prompt: with prefix caching the
 * lane that comes second, or the second run, would otherwise read what the first has left.
 */
export function variedPrompts(text, count, run) {
  return Array.from({ length: count }, (_, i) => ({
    prompt: `(${run}.${i + 1}) ${Array(REPEATS[i % REPEATS.length]).fill(text).join(" ")}`,
    max_tokens: OUTPUTS[i % OUTPUTS.length],
  }));
}

export function tokensAsked(prompts) {
  return prompts.reduce((sum, { max_tokens }) => sum + max_tokens, 0);
}
