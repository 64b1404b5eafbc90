"""From settings to channels: NetSpy's names, and `ALERTS_CHANNELS`. Errors show no token."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from orbweb.alarms.channels.base import Channel
from orbweb.alarms.channels.robots import DingTalk, Feishu, Robot, WeCom, robot_of
from orbweb.alarms.channels.webhook import Webhook
from orbweb.errors import ConfigError

ROBOTS: Mapping[str, type[Robot]] = {"feishu": Feishu, "dingtalk": DingTalk, "wecom": WeCom}
MAIL_WORDS = frozenset({"host", "port", "user", "password", "to", "ssl", "from"})

_NAME = re.compile(r"[\w.-]+")


def channels_of(settings: Mapping[str, Any]) -> list[Channel]:
    """All channels of the settings, by name. Raises `ConfigError`."""
    found: list[Channel] = []
    if url := settings["WARNING_FEISHU_WEBHOOK"]:
        found.append(robot_of(Feishu, "feishu", _web(url, "WARNING_FEISHU_WEBHOOK")))
    if url := settings["WARNING_DINGTALK_WEBHOOK"]:
        _web(url, "WARNING_DINGTALK_WEBHOOK")
        found.append(DingTalk("dingtalk", url, settings["WARNING_DINGTALK_SECRET"]))
    if url := settings["WARNING_WECHAT_WEBHOOK"]:
        found.append(WeCom("wecom", _web(url, "WARNING_WECHAT_WEBHOOK")))
    if mail := settings["WARNING_EMAIL"]:
        found.append(_apprise("mail", mail_url(mail)))
    found += [_channel(text) for text in settings["ALERTS_CHANNELS"]]
    names = [channel.name for channel in found]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(f"ALERTS_CHANNELS: two channels are named {twice}")
    return found


def _channel(text: str) -> Channel:
    name, separator, url = text.partition("=")
    if not separator or not _NAME.fullmatch(name) or "://" not in url:
        raise ConfigError(
            "ALERTS_CHANNELS: an entry is no NAME=URL; right would be ops=https://hooks.example/x, "
            "team=dingtalk+https://… or chat=slack://…"
        )
    kind, plus, rest = url.partition("+")
    if plus and kind in ROBOTS:
        return robot_of(ROBOTS[kind], name, _web(rest, f"ALERTS_CHANNELS {name}"))
    if url.startswith(("http://", "https://")):
        return Webhook(name, url)
    return _apprise(name, url)


def _web(url: str, where: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{where} is no address; right would be https://…")
    return url


def _apprise(name: str, url: str) -> Channel:
    from orbweb.alarms.channels.apprise import AppriseChannel

    return AppriseChannel(name, url)


def mail_url(mail: Mapping[str, Any]) -> str:
    """NetSpy's `WARNING_EMAIL` as an address of Apprise. Raises `ConfigError`."""
    if unknown := sorted(set(mail) - MAIL_WORDS):
        raise ConfigError(
            f"WARNING_EMAIL: {unknown[0]!r} is none of {', '.join(sorted(MAIL_WORDS))}"
        )
    if not mail.get("host") or not mail.get("to"):
        raise ConfigError("WARNING_EMAIL needs at least host and to")
    receivers = mail["to"] if isinstance(mail["to"], str) else ",".join(mail["to"])
    user = quote(str(mail.get("user", "")), safe="")
    password = f":{quote(str(mail['password']), safe='')}" if mail.get("password") else ""
    account = f"{user}{password}@" if user else ""
    port = f":{int(mail['port'])}" if mail.get("port") else ""
    secure = bool(mail.get("ssl", True))
    words = {"to": receivers, "smtp": str(mail["host"])}
    if "from" in mail or "@" in str(mail.get("user", "")):
        words["from"] = str(mail.get("from") or mail["user"])
    if secure:
        words["mode"] = "starttls" if mail.get("port") in (25, 587, "587", "25") else "ssl"
    return f"mailto{'s' if secure else ''}://{account}{mail['host']}{port}/?{urlencode(words)}"
