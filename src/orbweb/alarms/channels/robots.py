"""Robots of DingTalk, WeCom and Feishu: they answer 200 to what they refuse, the body says why."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qsl, quote_plus, urlencode, urlsplit, urlunsplit

import aiohttp

from orbweb.alarms.channels.base import TIMEOUT_SECONDS, Message, NotDelivered, without
from orbweb.alarms.texts import Language

LONGEST_ANSWER = 300


class Robot:
    """A web hook of a group chat that takes JSON and answers with a code: 0 is good."""

    codes: ClassVar[tuple[str, ...]] = ("errcode",)
    """Names of the code in the answer."""
    longest: ClassVar[int] = 4000
    """Bytes of a text that the service takes."""
    language: Language = "zh"

    def __init__(
        self, name: str, url: str, secret: str = "", *, clock: Callable[[], float] = time.time
    ) -> None:
        """`url` is the robot's address with its token; letters are signed with `secret`, if any."""
        self.name = name
        self._url = url
        self._secret = secret
        self._clock = clock
        parts = urlsplit(url)
        words = [*parts.path.split("/"), *(value for _, value in parse_qsl(parts.query))]
        self._secrets = (url, secret, *(word for word in words if len(word) >= 16))

    async def send(self, message: Message) -> str:
        """See `Channel`."""
        text = _cut(f"{message.title}\n{message.text}", self.longest)
        url, body = self.letter(text)
        try:
            status, answer = await post_json(url, body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise NotDelivered(self._clean(f"no answer: {error!r}")) from None
        shown = self._clean(answer[:LONGEST_ANSWER])
        code = self._code(answer)
        if status != 200 or code != 0:
            raise NotDelivered(
                f"HTTP {status}, code {'missing' if code is None else code}: {shown}"
            )
        return f"HTTP {status}, code 0"

    def letter(self, text: str) -> tuple[str, Mapping[str, Any]]:
        """Where to send what."""
        raise NotImplementedError

    def _code(self, answer: str) -> int | None:
        try:
            said = json.loads(answer)
        except ValueError:
            return None
        found = (
            [said[name] for name in self.codes if name in said] if isinstance(said, dict) else []
        )
        return found[0] if found and isinstance(found[0], int) else None

    def _clean(self, text: str) -> str:
        return without(self._secrets, text)


class DingTalk(Robot):
    """Custom robot of DingTalk; signed as its documentation says (timestamp, HMAC-SHA256)."""

    longest = 18_000

    def letter(self, text: str) -> tuple[str, Mapping[str, Any]]:
        """See `Robot`."""
        url = self._url
        if self._secret:
            stamp = str(round(self._clock() * 1000))
            sign = _digest(self._secret, f"{stamp}\n{self._secret}")
            url += f"{'&' if '?' in url else '?'}timestamp={stamp}&sign={quote_plus(sign)}"
        return url, {"msgtype": "text", "text": {"content": text}}


class WeCom(Robot):
    """Group robot of WeCom (企业微信)."""

    longest = 2000

    def letter(self, text: str) -> tuple[str, Mapping[str, Any]]:
        """See `Robot`."""
        return self._url, {"msgtype": "text", "text": {"content": text}}


class Feishu(Robot):
    """Custom robot of Feishu or Lark; signed with the secret as key and an empty text."""

    codes = ("code", "StatusCode")
    longest = 18_000

    def letter(self, text: str) -> tuple[str, Mapping[str, Any]]:
        """See `Robot`."""
        body: dict[str, Any] = {"msg_type": "text", "content": {"text": text}}
        if self._secret:
            stamp = str(round(self._clock()))
            body |= {"timestamp": stamp, "sign": _digest(f"{stamp}\n{self._secret}", "")}
        return self._url, body


def robot_of(kind: type[Robot], name: str, url: str) -> Robot:
    """A robot of an address in which `&secret=…` says with what to sign."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    secret = query.pop("secret", "")
    return kind(name, urlunsplit(parts._replace(query=urlencode(query))), secret)


async def post_json(
    url: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """The status and the text of the answer. Raises what aiohttp does, and `TimeoutError`."""
    limit = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
    async with (
        aiohttp.ClientSession(timeout=limit) as client,
        client.post(
            url, data=json.dumps(body, ensure_ascii=False).encode(), allow_redirects=False,
            headers={"Content-Type": "application/json; charset=utf-8", **(headers or {})},
        ) as answer,
    ):  # fmt: skip
        async with asyncio.timeout(TIMEOUT_SECONDS):
            text = (await answer.content.read(65_536)).decode("utf-8", "replace")
        return answer.status, text


def _digest(key: str, text: str) -> str:
    return base64.b64encode(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest()).decode()


def _cut(text: str, longest: int) -> str:
    encoded = text.encode(errors="backslashreplace")
    if len(encoded) <= longest:
        return encoded.decode()
    return encoded[: longest - 3].decode(errors="ignore") + "…"
