"""Traces: when the phases of an attempt began, for whoever wants to draw them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

Marks = list[tuple[str, float]]
"""Phases of an attempt and when each began, on the engine's clock. In their order:

`claim` (the store has answered; the host's turn is waited for), `fetch` (the last send), `parse`,
`items` (they become durable), `ack` (the outcome is on its way to the store).
"""


class Trace(NamedTuple):
    """An attempt whose outcome the store has taken."""

    id: str
    host: str
    url: str
    """Empty for what is no page."""
    method: str
    status: int
    """0 = there was no answer."""
    attempt: int
    reason: str
    error: str
    marks: Marks


class Tracer(Protocol):
    """Who is told of attempts. Without one, nothing is marked."""

    def samples(self) -> bool:
        """Whether the attempt that begins now is to be marked."""

    def ended(self, trace: Trace) -> None:
        """An attempt that was marked has come to its end just now. Must not block."""
