"""A webhook of one's own: JSON for programs; only an answer 2xx counts."""

from __future__ import annotations

from urllib.parse import urlsplit

import aiohttp

from orbweb.alarms.channels.base import Message, NotDelivered, without
from orbweb.alarms.channels.robots import LONGEST_ANSWER, post_json
from orbweb.alarms.texts import Language
from orbweb.log import mask_address

SCHEMA = 1


class Webhook:
    """See `Channel`. The header `Idempotency-Key` is the same at each try of a letter."""

    language: Language = "en"

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self._url = url
        parts = urlsplit(url)
        self._secrets = (parts.query, parts.password or "", parts.path.strip("/"))

    async def send(self, message: Message) -> str:
        """See `Channel`."""
        body = {
            "schema": SCHEMA,
            "id": message.id,
            "title": message.title,
            "text": message.text,
            **message.data,
        }
        try:
            status, answer = await post_json(self._url, body, {"Idempotency-Key": message.id})
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotDelivered(self._clean(f"no answer: {error!r}")) from None
        if not 200 <= status < 300:
            raise NotDelivered(f"HTTP {status}: {self._clean(answer[:LONGEST_ANSWER])}")
        return f"HTTP {status}"

    def _clean(self, text: str) -> str:
        return without(self._secrets, mask_address(text))
