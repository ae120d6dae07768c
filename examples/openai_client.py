"""Talk to a running server (`make serve`) with the official client: `pip install openai`.

python examples/openai_client.py
"""

from __future__ import annotations

import sys

from openai import OpenAI

DEFAULT_URL = "http://127.0.0.1:8000"


def main(url: str = DEFAULT_URL) -> None:
    client = OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)
    model = client.models.list().data[0].id
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Name three colours."}],
        max_tokens=24,
        temperature=0,
        stream=True,
    )
    for chunk in stream:
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
