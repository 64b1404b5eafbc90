"""Channels against a service that answers as the real ones do: what it says in the body counts."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import smtplib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.receiver import Receiver

from orbweb.alarms.channels.base import Channel, Message, NotDelivered
from orbweb.alarms.channels.build import channels_of, mail_url
from orbweb.alarms.channels.robots import DingTalk, Feishu, WeCom
from orbweb.errors import ConfigError
from orbweb.settings import load_settings

TOKEN = "0123456789abcdef-a-secret"
MESSAGE = Message(
    "m1", "[orbweb] books: sink_down", "数据库连不上", {"state": "firing", "alarms": []}
)


@pytest.fixture
def service() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def channel(**changes: Any) -> Channel:
    settings = load_settings(directory=Path("/nowhere"), environ={}, overrides=changes)
    (found,) = channels_of(settings)
    return found


@pytest.mark.parametrize("kind", ["dingtalk", "wecom", "feishu"])
async def test_a_robot_that_answers_200_with_an_error_code_has_not_taken_the_letter(
    service: Receiver, kind: str
) -> None:
    robot = channel(ALERTS_CHANNELS=f"team={kind}+{service.url}/send?access_token={TOKEN}")
    assert await robot.send(MESSAGE) == "HTTP 200, code 0"
    (letter,) = service.letters
    assert "数据库连不上" in json.dumps(letter, ensure_ascii=False)
    service.body = json.dumps({"errcode": 310000, "code": 19001, "errmsg": f"bad {TOKEN}"})
    with pytest.raises(NotDelivered, match=r"code (310000|19001): .*bad \*\*\*") as caught:
        await robot.send(MESSAGE)
    assert TOKEN not in str(caught.value)


@pytest.mark.parametrize("body", ["", "<html>", "[]", '{"ok": true}', '{"errcode": "0"}'])
async def test_an_answer_without_a_code_is_no_delivery(service: Receiver, body: str) -> None:
    service.body = body
    with pytest.raises(NotDelivered, match="code missing"):
        await WeCom("team", f"{service.url}/send?key={TOKEN}").send(MESSAGE)


async def test_a_service_that_is_away_is_named_without_its_token() -> None:
    robot = DingTalk("team", f"http://127.0.0.1:9/robot/send?access_token={TOKEN}")
    with pytest.raises(NotDelivered, match="no answer") as caught:
        await robot.send(MESSAGE)
    assert TOKEN not in str(caught.value)


def test_dingtalk_signs_as_its_documentation_says() -> None:
    robot = DingTalk(
        "team", f"https://ding.example/send?access_token={TOKEN}", "SEC1", clock=lambda: 7.5
    )
    url, body = robot.letter("hello")
    query = parse_qs(urlsplit(url).query)
    wanted = hmac.new(b"SEC1", b"7500\nSEC1", hashlib.sha256).digest()
    assert query["timestamp"] == ["7500"]
    assert query["sign"] == [base64.b64encode(wanted).decode()]
    assert query["access_token"] == [TOKEN]
    assert body == {"msgtype": "text", "text": {"content": "hello"}}


def test_feishu_signs_an_empty_text_with_the_secret_as_key() -> None:
    robot = Feishu("team", "https://feishu.example/hook/x", "SEC1", clock=lambda: 7.4)
    _, body = robot.letter("hello")
    wanted = hmac.new(b"7\nSEC1", b"", hashlib.sha256).digest()
    assert body["timestamp"] == "7"
    assert body["sign"] == base64.b64encode(wanted).decode()


async def test_a_long_letter_is_cut_to_what_the_service_takes(service: Receiver) -> None:
    robot = WeCom("team", f"{service.url}/send?key={TOKEN}")
    await robot.send(Message("m1", "title", "漢" * 5000, {}))
    text = service.letters[0]["text"]["content"]
    assert len(text.encode()) <= 2000
    assert text.endswith("漢…")


async def test_a_webhook_gets_json_and_the_same_key_at_each_try(service: Receiver) -> None:
    hook = channel(ALERTS_CHANNELS=f"ops={service.url}/a-long-secret-path")
    assert await hook.send(MESSAGE) == "HTTP 200"
    (letter,) = service.letters
    assert (letter["schema"], letter["id"], letter["state"]) == (1, "m1", "firing")
    assert letter["key"] == "m1"
    service.status, service.body = 302, "/a-long-secret-path has moved"
    with pytest.raises(NotDelivered, match="HTTP 302") as caught:
        await hook.send(MESSAGE)
    assert "a-long-secret-path" not in str(caught.value)


async def test_netspys_settings_make_the_channels_that_they_name(service: Receiver) -> None:
    settings = load_settings(
        directory=Path("/nowhere"), environ={},
        overrides={
            "WARNING_FEISHU_WEBHOOK": f"{service.url}/f/{TOKEN}",
            "WARNING_DINGTALK_WEBHOOK": f"{service.url}/d?access_token={TOKEN}",
            "WARNING_DINGTALK_SECRET": "SEC1", "WARNING_WECHAT_WEBHOOK": f"{service.url}/w?key=k",
        },
    )  # fmt: skip
    found = channels_of(settings)
    assert [each.name for each in found] == ["feishu", "dingtalk", "wecom"]
    for each in found:
        await each.send(MESSAGE)
    assert [letter["path"][:2] for letter in service.letters] == ["/f", "/d", "/w"]
    assert "sign=" in service.letters[1]["path"]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("ops", "NAME=URL"),
        (f"ops={TOKEN}", "NAME=URL"),
        (f"a=https://h/{TOKEN},a=https://h/b", "two channels are named a"),
        (f"a=dingtalk+{TOKEN}://x", "https://"),
        (f"a=nosuch://{TOKEN}", r"nosuch:.*no address that Apprise reads"),
        (f"a=dingtalk://{TOKEN}", r"dingtalk\+https"),
    ],
)
def test_a_channel_that_is_none_says_what_would_be_right_and_no_token(
    value: str, says: str
) -> None:
    settings = load_settings(
        directory=Path("/nowhere"), environ={}, overrides={"ALERTS_CHANNELS": value}
    )
    with pytest.raises(ConfigError, match=says) as caught:
        channels_of(settings)
    assert TOKEN not in str(caught.value)


def test_without_apprise_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "apprise", None)
    with pytest.raises(ConfigError, match=r"pip install 'orbweb\[alerts\]'"):
        channel(ALERTS_CHANNELS="chat=slack://T1/B1/x")


async def test_apprise_says_what_the_service_refused(service: Receiver) -> None:
    """Apprise's own JSON sender, against a service that refuses."""
    host = service.url.removeprefix("http://")
    hook = channel(ALERTS_CHANNELS=f"ops=json://user:{TOKEN}@{host}/x")
    assert "accepted" in await hook.send(MESSAGE)
    service.status = 403
    with pytest.raises(NotDelivered, match="403") as caught:
        await hook.send(MESSAGE)
    assert TOKEN not in str(caught.value)


def test_netspys_mail_becomes_an_address_of_apprise() -> None:
    import apprise

    mail = {"host": "smtp.example", "port": 465, "user": "bot@a.example", "password": "p/w@x",
            "to": ["li@b.example", "wang@b.example"], "ssl": True}  # fmt: skip
    assert channel(WARNING_EMAIL=mail).name == "mail"  # its plugin is loaded
    target: Any = apprise.Apprise.instantiate(mail_url(mail))
    assert (target.smtp_host, target.port, target.secure) == ("smtp.example", 465, True)
    assert target.password == "p/w@x"
    assert sorted(address for _, address in target.targets) == ["li@b.example", "wang@b.example"]
    assert smtplib.SMTP_SSL_PORT == 465
    with pytest.raises(ConfigError, match="needs at least host and to"):
        mail_url({"host": "smtp.example"})
    with pytest.raises(ConfigError, match="pasword"):
        mail_url({"host": "h", "to": "a@b", "pasword": "x"})
