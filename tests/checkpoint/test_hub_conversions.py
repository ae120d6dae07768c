"""Repositories in the form of facebook/opt-125m: pickles and no tokenizer.json, safetensors in a pull request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from checkpoint.fake_hub import FakeHub, PullRequest, Refusal, point_client_at, running
from everystep.checkpoint import cached_models, open_checkpoint, pull
from everystep.errors import ModelError, UnsupportedModel

GOLDEN = Path(__file__).parents[1] / "golden"
TOKENIZER_FILES = ("vocab.json", "merges.txt", "tokenizer_config.json", "special_tokens_map.json")
BOT = "SFconvertbot"


def opt_files() -> dict[str, bytes]:
    """OPT's main branch: no tokenizer.json, no safetensors."""
    files = {name: (GOLDEN / "vocab_and_merges" / "opt" / name).read_bytes() for name in TOKENIZER_FILES}
    return files | {"config.json": (GOLDEN / "tiny" / "opt" / "config.json").read_bytes(), "pytorch_model.bin": b"no"}


def converted() -> dict[str, bytes]:
    return opt_files() | {"model.safetensors": (GOLDEN / "tiny" / "opt" / "model.safetensors").read_bytes()}


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    with running(FakeHub(files=opt_files())) as hub:
        point_client_at(hub, tmp_path, monkeypatch)
        yield hub


def refusal(tmp_path: Path) -> str:
    with pytest.raises(ModelError, match=r"only these are loaded; it has pytorch_model\.bin; ") as caught:
        pull("owner/model", tmp_path)
    assert "\n" not in caught.value.message
    return caught.value.message.rpartition("; ")[2]


def num_looked_into(hub: FakeHub) -> int:
    return sum("/revision/refs/pr/" in ask.path for ask in hub.asked)


# --- which revision is named ---------------------------------------------------------------------
def test_the_refusal_names_the_pull_request_of_the_converter_that_has_safetensors(hub: FakeHub, tmp_path: Path) -> None:
    hub.pull_requests = [
        PullRequest(9, "anybody", converted()),
        PullRequest(7, BOT, opt_files()),
        PullRequest(5, BOT, converted()),
        PullRequest(3, BOT, converted()),
    ]
    assert refusal(tmp_path) == "the hub's own conversion is owner/model@refs/pr/5"
    assert num_looked_into(hub) == 2
    assert not any("/resolve/" in ask.path for ask in hub.asked)


def test_nobody_else_s_weights_are_proposed(hub: FakeHub, tmp_path: Path) -> None:
    hub.pull_requests = [PullRequest(9, "anybody", converted())]
    words = "a revision that has can be named: owner/model@REVISION, such as a pull request's refs/pr/N"
    assert refusal(tmp_path) == words
    assert num_looked_into(hub) == 0


def test_of_many_pull_requests_three_are_looked_into(hub: FakeHub, tmp_path: Path) -> None:
    hub.pull_requests = [*(PullRequest(n, BOT, opt_files()) for n in range(9, 3, -1)), PullRequest(3, BOT, converted())]
    assert refusal(tmp_path).startswith("a revision that has can be named")
    assert num_looked_into(hub) == 3


def test_a_hub_that_won_t_list_them_leaves_the_refusal_as_it_is(hub: FakeHub, tmp_path: Path) -> None:
    hub.pull_requests = [PullRequest(5, BOT, converted())]
    hub.discussions_refusal = Refusal(403, message="Discussions are disabled for this repo")
    assert refusal(tmp_path).startswith("a revision that has can be named")


# --- the revision itself -------------------------------------------------------------------------
def test_a_pull_request_s_revision_is_pulled_opened_and_listed(hub: FakeHub, tmp_path: Path) -> None:
    name = "owner/model@refs/pr/5"
    hub.pull_requests = [PullRequest(5, BOT, converted())]
    snapshot = pull(name, tmp_path)
    assert snapshot.name == hub.pull_requests[0].commit
    assert {path.name for path in snapshot.iterdir()} == {"config.json", "model.safetensors", *TOKENIZER_FILES}
    num_asked = len(hub.asked)
    checkpoint = open_checkpoint(name, tmp_path)
    assert (checkpoint.name, checkpoint.path) == (name, str(snapshot))
    assert checkpoint.architecture.family == "opt"
    assert '"type": "TemplateProcessing"' in checkpoint.tokenizer.tokenizer_json
    (model,) = cached_models(tmp_path)
    assert (model.name, model.form, model.problem) == (name, "opt", None)
    assert len(hub.asked) == num_asked


def test_a_revision_that_isn_t_there_is_fetched_when_it_is_opened(hub: FakeHub, tmp_path: Path) -> None:
    hub.pull_requests = [PullRequest(5, BOT, converted())]
    assert open_checkpoint("owner/model@refs/pr/5", tmp_path).tokenizer.bos_token == "</s>"
    with pytest.raises(ModelError, match="the hub has no revision of the name in 'owner/model@refs/pr/6'"):
        open_checkpoint("owner/model@refs/pr/6", tmp_path)


def test_a_revision_that_broke_off_is_listed_with_the_command_that_goes_on(hub: FakeHub, tmp_path: Path) -> None:
    hub.pull_requests = [PullRequest(5, BOT, converted())]
    hub.break_off["model.safetensors"] = [1000, 0]
    with pytest.raises(ModelError, match="broke off"):
        pull("owner/model@refs/pr/5", tmp_path)
    (model,) = cached_models(tmp_path)
    assert model.problem == "incomplete: everystep pull owner/model@refs/pr/5 goes on"


def test_a_tokenizer_that_can_t_be_built_is_refused_before_the_weights_come(hub: FakeHub, tmp_path: Path) -> None:
    hub.files = converted() | {"tokenizer_config.json": b'{"tokenizer_class": "RobertaTokenizer"}'}
    with pytest.raises(UnsupportedModel, match="the tokenizer of RobertaTokenizer isn't built from"):
        pull("owner/model", tmp_path)
    assert hub.asked_for("model.safetensors") == []
