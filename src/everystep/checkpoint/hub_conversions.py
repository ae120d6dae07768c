"""Where the safetensors of a repository of pickles may be: in a pull request of the hub's own converter.

Owns whose pull requests are looked at, and how many.  Anybody may open one with weights of their own: no other author's
is ever proposed.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from typing import Any

from everystep.checkpoint.hub_files import has_safetensors

CONVERTER = "SFconvertbot"
MAX_LISTED = 50  # pull requests, one page of the hub's list
MAX_LOOKED_INTO = 3


def where_converted(api: Any, repo: str) -> str:
    """Words that name the revision to ask for, exactly where the hub tells."""
    revision = next(_converted_revisions(api, repo), None)
    if revision is None:
        return f"a revision that has can be named: {repo}@REVISION, such as a pull request's refs/pr/N"
    return f"the hub's own conversion is {repo}@{revision}"


def _converted_revisions(api: Any, repo: str) -> Iterator[str]:
    # The client raises two dozen kinds; they'd stand in the place of what is being said.
    with contextlib.suppress(Exception):
        listed = api.get_repo_discussions(repo, author=CONVERTER, discussion_type="pull_request")
        converted = (one for one in itertools.islice(listed, MAX_LISTED) if one.author == CONVERTER)
        for one in itertools.islice(converted, MAX_LOOKED_INTO):
            if _has_safetensors(api, repo, revision := f"refs/pr/{one.num}"):
                yield revision


def _has_safetensors(api: Any, repo: str, revision: str) -> bool:
    with contextlib.suppress(Exception):  # withdrawn, perhaps
        siblings = api.model_info(repo, revision=revision).siblings or ()
        return has_safetensors({sibling.rfilename for sibling in siblings})
    return False
