"""What a channel is, and what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from orbweb.alarms.texts import Language
from orbweb.errors import OrbwebError
from orbweb.log import MASK

TIMEOUT_SECONDS = 10.0
"""How long a service may take for one letter."""


class NotDelivered(OrbwebError):
    """The service did not take the letter, or did not say that it did: send it again later."""


@dataclass(frozen=True, slots=True)
class Message:
    """A letter in words."""

    id: str
    """The same at each try: who gets it twice can tell."""
    title: str
    text: str
    data: Mapping[str, Any]
    """The same for programs."""


class Channel(Protocol):
    """One way to people."""

    name: str
    language: Language
    """Which language its readers are taken to read, unless a setting says."""

    async def send(self, message: Message) -> str:
        """Deliver; returns the service's own answer, in a few words.

        Raises `NotDelivered` with what the service said instead, without a token or password.
        """


def without(secrets: tuple[str, ...], text: str) -> str:
    """The text with each of the secrets masked."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= 4:
            text = text.replace(secret, MASK)
    return text
