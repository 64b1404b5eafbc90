"""Every service that Apprise knows: mail, Slack, Telegram, PagerDuty and a hundred more."""

from __future__ import annotations

import asyncio
import logging
import warnings
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from orbweb.alarms.channels.base import TIMEOUT_SECONDS, Message, NotDelivered, without
from orbweb.alarms.texts import Language
from orbweb.errors import ConfigError

CHECKED_BY_US = {"dingtalk": "dingtalk+https://…", "wecombot": "wecom+https://…"}
"""Services whose answers Apprise does not read, and how their own senders are named."""


class AppriseChannel:
    """See `Channel`. The service's refusal is what Apprise logs of it."""

    language: Language = "en"

    def __init__(self, name: str, url: str) -> None:
        """Raises `ConfigError` for an address that is none, and where Apprise is not installed."""
        try:
            import apprise
        except ImportError as error:
            raise ConfigError(
                f"the channel {name} needs Apprise: pip install 'orbweb[alerts]'"
            ) from error
        scheme = urlsplit(url).scheme
        if scheme in CHECKED_BY_US:
            raise ConfigError(
                f"the channel {name}: {scheme}:// would count refused letters as sent; right would "
                f"be {CHECKED_BY_US[scheme]}"
            )
        self.name = name
        self._apprise: Any = apprise
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of what its plugins import
            self._target: Any = apprise.Apprise.instantiate(url, suppress_exceptions=True)
        if self._target is None:
            raise ConfigError(
                f"the channel {name}: {scheme}://*** is no address that Apprise reads"
            )
        self._target.socket_connect_timeout = TIMEOUT_SECONDS / 2
        self._target.socket_read_timeout = TIMEOUT_SECONDS / 2
        self._secrets = _secrets_of(url)

    async def send(self, message: Message) -> str:
        """See `Channel`. Apprise blocks, so it works on a thread."""
        try:
            async with asyncio.timeout(2 * TIMEOUT_SECONDS):
                sent, said = await asyncio.to_thread(self._notify, message)
        except TimeoutError:
            raise NotDelivered(f"no answer within {2 * TIMEOUT_SECONDS:.0f} s") from None
        except Exception as error:  # any of a hundred plugins
            raise NotDelivered(without(self._secrets, f"{type(error).__name__}: {error}")) from None
        if not sent:
            raise NotDelivered(without(self._secrets, said) or "refused without a word")
        return "accepted by the service (as Apprise reads its answer)"

    def _notify(self, message: Message) -> tuple[bool, str]:
        with self._apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as heard:
            sent = self._target.notify(title=message.title, body=message.text)
            return bool(sent), heard.getvalue().strip().replace("\n", "; ")


def _secrets_of(url: str) -> tuple[str, ...]:
    """All that may be a token in an address: Apprise has them in any place."""
    parts = urlsplit(url)
    words = [url, parts.netloc, *parts.netloc.replace("@", ":").split(":")[:-1]]
    words += [word for word in parts.path.split("/") if len(word) >= 8]
    words += [value for key, value in parse_qsl(parts.query) if key not in ("to", "from", "name")]
    return tuple({*words, *map(unquote, words)} - {""})
