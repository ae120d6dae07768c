// What "try it" sends: prompts of varied lengths, the same for every lane, none of which a cache has seen.

/** Most tokens of each answer, in turn: short beside long is what batching is about. */
const OUTPUTS = [12, 48, 20, 96, 8, 32, 64, 16];
const REPEATS = [1, 3, 2, 6]; // how often the text stands in the prompt
const MARK_TOKENS = 24; // the mark at a prompt's beginning takes no more, even where each byte is a token

/** What the model has room for: `context` tokens for prompt and answer, of which the text takes `textTokens`. */
export const NO_LIMITS = { context: Infinity, textTokens: 0 };

/**
 * `{ prompt, max_tokens }` for each of `count`.  `run` stands at the beginning of each prompt: with prefix caching the
 * lane that comes second, or the second run, would otherwise read what the first has left.  A model of little context
 * gets shorter answers and the text less often, but once at least: whether that fits is the server's to say.
 */
export function variedPrompts(text, count, run, limits) {
  return Array.from({ length: count }, (_, i) => {
    const { repeats, max_tokens } = lengthsOf(i, limits);
    return { prompt: `(${run}.${i + 1}) ${Array(repeats).fill(text).join(" ")}`, max_tokens };
  });
}

export function tokensAsked(prompts) {
  return prompts.reduce((sum, { max_tokens }) => sum + max_tokens, 0);
}

/** Whether any of `count` is shorter than it would be with all the room there is. */
export function areShortened(count, limits) {
  return Array.from({ length: count }, (_, i) => i).some((i) => {
    const [here, there] = [lengthsOf(i, limits), lengthsOf(i, NO_LIMITS)];
    return here.repeats < there.repeats || here.max_tokens < there.max_tokens;
  });
}

function lengthsOf(i, { context, textTokens }) {
  const once = textTokens + 1; // and a space
  const wanted = OUTPUTS[i % OUTPUTS.length];
  const shrink = Math.min(1, context / 2 / Math.max(...OUTPUTS)); // all alike, so that they stay varied
  const room = context - MARK_TOKENS - once;
  const max_tokens = Math.max(1, Math.min(Math.ceil(wanted * shrink), room));
  const fitting = Math.floor((context - MARK_TOKENS - max_tokens) / once);
  return { max_tokens, repeats: Math.max(1, Math.min(REPEATS[i % REPEATS.length], fitting)) };
}
