"""The seam between the consumer and the buffer that it reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Message:
    """One message as it lies in the buffer."""

    place: str
    """Where it came from: a topic with its partition, or a stream."""
    position: str
    """Its offset or entry id there."""
    value: bytes


class Source(Protocol):
    """Where messages wait. Each comes at least once; a crash before `settle` brings it again."""

    def take(self, most: int, seconds: float) -> Sequence[Message]:
        """Up to `most` messages that nobody holds; waits up to `seconds` for the first.

        Raises `StoreUnavailable` when the buffer does not answer: ask again later.
        """

    def positions(self, messages: Sequence[Message]) -> Mapping[str, int]:
        """For each place, the offset after these messages, to be kept in their transaction.

        Empty where the buffer itself remembers what was settled.
        """

    def settle(self, messages: Sequence[Message]) -> None:
        """Tell the buffer that these have their effect. Raises `StoreUnavailable`."""

    def lag(self) -> int | None:
        """Messages of this consumer that are not settled yet; None when that is not known."""

    def close(self) -> None:
        """Leave, so that others take over at once."""
