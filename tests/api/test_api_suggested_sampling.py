"""A model's suggested sampling is shown and changes nothing."""

import json
import shutil
from pathlib import Path

import pytest

from api.harness import MODEL, serving
from everystep.serve import suggestion_line

SUGGESTED = {"temperature": 0.6, "top_p": 0.9, "top_k": 20}


@pytest.fixture
def opinionated(tmp_path: Path) -> Path:
    """The tiny model with a generation_config that suggests sampling."""
    folder = tmp_path / "model"
    shutil.copytree(MODEL, folder)
    path = folder / "generation_config.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**known, **SUGGESTED, "do_sample": True}))
    return folder


async def test_the_list_of_models_shows_it_and_requests_stay_as_they_were(opinionated: Path) -> None:
    async with serving(model=str(opinionated)) as server:
        (card,) = (await server.http.get("/v1/models")).json()["data"]
        assert card["suggested_sampling"] == SUGGESTED
        await server.post("/generate", prompts=["x"], max_tokens=2)
        params = server.runner.last_seen.params
        assert (params.temperature, params.top_p, params.top_k) == (0.0, 1.0, 0)
        await server.complete("x", max_tokens=2)
        params = server.runner.last_seen.params
        assert (params.temperature, params.top_p, params.top_k) == (1.0, 1.0, 0)  # OpenAI's defaults, not the model's


async def test_a_model_without_suggestions_shows_none() -> None:
    async with serving() as server:
        (card,) = (await server.http.get("/v1/models")).json()["data"]
        assert card["suggested_sampling"] == {}


def test_the_line_at_start_names_the_values_and_says_that_they_are_not_applied() -> None:
    assert suggestion_line(SUGGESTED) == (
        "the model's generation_config suggests temperature 0.6, top_p 0.9, top_k 20: "
        "not applied; send them with the request"
    )
    assert suggestion_line({}) == ""
