"""The texts that the golden data is made of.  Owns text only."""

from __future__ import annotations

TRAINING_TEXT = """\
A river begins small, as water that finds its way between stones.
The scheduler decides which rows share the next forward pass, and everything else serves that decision.
When the batch is full, the next request waits in the line until a seat is free.
The quick brown fox jumps over the lazy dog, and the dog sleeps on.
In the morning the old lighthouse keeper wrote down the wind, the tide and the ships that passed.
There is no prefill phase and no decode phase: computed tokens chase known tokens.
for index in range(10): print(index, values[index])
def add(first, second): return first + second
She said that it was the best of the stories that her grandmother had told her in the winter.
강물은 작은 샘에서 시작되어 바다로 흐른다.
The ships that were there in the morning were there in the evening, and then they were not.
"""

RIVER = (
    "A river begins small. High in the hills, water gathers in the moss and finds its way between stones, and before "
    "anyone would call it a stream it has already chosen a direction. Lower down it is joined by others. The valley "
    "widens, the current slows, and the people who live on its banks begin to give it a name. They build mills where "
    "it falls and bridges where it narrows. In spring it rises over the meadows and leaves behind a thin layer of dark "
    "soil, which the farmers wait for all year. Children learn to swim in the quiet bend below the church; old men "
    "fish there in the evening, though they rarely catch anything. Nobody on the bank asks where the water comes from. "
    "By the time it reaches the city the river is wide and brown and useful. Barges carry sand and grain, the trains "
    "cross it on iron bridges, and at night the lights of the harbour stand on it like candles. Then the land ends. "
    "The water that was rain in the hills a week ago mixes with the sea, and the sea, which has seen a great many "
    "rivers, takes no notice. Somewhere far away the sun lifts a little of it into the air, the wind carries it "
    "inland, and over the same hills it begins to rain again. This is why the old people of the valley say that the "
    "river has no beginning and no end, and that whoever steps into it twice is a stranger the first time and a guest "
    "the second. The children laugh at this, and then, many years later, they"
)
SCHEDULER = (
    "A server for language models has many requests and one model. The simplest way is to serve them one after the "
    "other, but then most of the machine is idle, because reading the weights takes longer than computing with them. "
    "So several requests share a forward pass. With static batching the server takes four requests, runs them until "
    "the longest of them has ended, and only then looks at the line again. With continuous batching it looks before "
    "every step. The difference matters most when"
)
CODE = (
    "def binary_search(values: list[int], wanted: int) -> int | None:\n"
    '    """Index of wanted in the sorted list, or None."""\n'
    "    low, high = 0, len(values) - 1\n"
    "    while low <= high:\n"
    "        middle = (low + high) // 2\n"
    "        if values[middle] == wanted:\n"
    "            return middle\n"
    "        if values[middle] < wanted:\n"
    "            low = middle + 1\n"
    "        else:\n"
    "            high = middle - 1\n"
    "    return None\n\n\n"
    "def test_binary_search_finds_every_value():\n"
    "    values = [1, 3, 5, 7, 9, 11]\n"
    "    for index, value in enumerate(values):\n"
    "        assert binary_search(values, value) == index\n"
    "    assert binary_search(values, 4) is None\n\n\n"
    "def insertion_sort(values: list[int]) -> list[int]:\n"
)
CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
)
CHAT_CAPITAL = CHAT.format(question="What is the capital of France, and what is it known for?")
CHAT_POEM = CHAT.format(question="Write a short poem about the sea in winter. Use simple words and four lines.")
CHAT_HAIKU = CHAT.format(question="Explain in two sentences why the sky is blue, as you would to a child of six.")

# (text, how many of its tokens are the prompt)
SMOLLM2_PROMPTS: tuple[tuple[str, int], ...] = (
    ("The", 1),
    ("Once upon a time", 2),
    ("Hello, I am", 3),
    ("Water boils at", 3),
    ("The capital of Germany is", 5),
    ("My favourite season is autumn because", 6),
    ("To make a good cup of tea, first", 8),
    ("List of the planets, in order: Mercury, Venus,", 10),
    (RIVER, 12),
    (SCHEDULER, 15),
    (RIVER, 16),
    (SCHEDULER, 17),
    (CODE, 24),
    (RIVER, 31),
    (SCHEDULER, 32),
    (RIVER, 33),
    (CHAT_CAPITAL, 42),
    (CHAT_POEM, 45),
    (CODE, 48),
    (CHAT_HAIKU, 46),
    (SCHEDULER, 63),
    (RIVER, 64),
    (CODE, 65),
    (RIVER, 90),
    (RIVER, 100),
    (RIVER, 127),
    (CODE, 128),
    (RIVER, 129),
    (RIVER, 160),
    (RIVER, 200),
    (RIVER, 256),
    (RIVER, 290),
)

TOKENIZER_TEXTS: tuple[str, ...] = (
    "",
    " ",
    "Hello, world!",
    "  leading and trailing  ",
    "tabs\tand\nnewlines\r\n\n\nend",
    "a     run of      spaces",
    "        deeply indented = True\n            more",
    "1234567890",
    "In 2024, 3.14159 and 1,000,000 things; v1.2.3",
    "year  2024 and   77",
    "٣٤٥ ४५६ ²³ Ⅷ ½",
    "It's we're they'll I'd you've I'm don't DON'T",
    "안녕하세요, 세계! 한국어 문장입니다.",
    "你好，世界。日本語のテキスト",
    "مرحبا بالعالم، كيف حالك؟",
    "Привет, мир! Γειά σου Κόσμε",
    "🙂🙃 👨‍👩‍👧‍👦 🇰🇷 👍🏽 café cafe\u0301",
    "naïve façade — “quotes” … ‘single’",
    "def f(x):\n    return x**2 + 3*x  # comment\n",
    "if (a && b || !c) { return a->b[0x1F]; }",
    "https://example.org/path?query=1&other=2#part",
    "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    "text<|endoftext|>more <|im_end|> and <file_sep>x",
    "<|im_start |> <im_start> <| im_end|>",
    "\x00\x01 control \x7f and \u200b zero width \ufeff",
    "ᄒ\u1161ᆫ글 \u0928\u093f \u0e44\u0e17\u0e22",
    "AAAAAAAAAAAAAAAA\n\n\n\n----------------========",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
)
