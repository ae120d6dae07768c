"""The private operation is used in one known release only.  This file is the first to fail on an upgrade."""

from __future__ import annotations

from pathlib import Path

import openvino as ov
import pytest

from everystep.errors import EngineUnavailable
from everystep.runner import graph_parts

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_installed_release_is_the_pinned_one() -> None:
    """After an upgrade: compare the operation's inputs with those of graph_parts, then move the pin."""
    assert ov.__version__.split("-")[0] == graph_parts.PINNED_VERSION


def test_the_package_asks_for_the_release_that_the_code_knows() -> None:
    assert f'"openvino=={graph_parts.PINNED_VERSION}"' in PYPROJECT.read_text("utf-8")


def test_the_operation_takes_the_inputs_that_we_give_by_position() -> None:
    with pytest.raises(RuntimeError, match="expects 28 inputs"):
        ov.op._PagedAttentionExtension([])


def test_another_release_is_refused_with_the_command_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ov, "__version__", "2027.0.0-1-abc")
    with pytest.raises(EngineUnavailable, match=r"2027\.0\.0 .* pip install openvino==2026\.4\.1"):
        graph_parts.check_library()


def test_a_release_without_the_operation_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ov.op, "_PagedAttentionExtension")
    with pytest.raises(EngineUnavailable, match="pip install"):
        graph_parts.check_library()
