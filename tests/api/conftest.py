"""A ready server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from api.harness import Server, serving


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as ready:
        yield ready
