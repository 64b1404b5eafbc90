"""Which tests prove that a hot setting acts in the middle of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

Test = TypeVar("Test", bound=Callable[..., Any])

PROVED: dict[str, str] = {}
"""By setting the test that changes it on two nodes and sees the effect."""


def proves(*names: str) -> Callable[[Test], Test]:
    """Mark a test that does so."""

    def mark(test: Test) -> Test:
        PROVED.update(dict.fromkeys(names, test.__name__))
        return test

    return mark
