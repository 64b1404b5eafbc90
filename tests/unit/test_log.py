"""Log lines: their shape, their events, and that no secret gets into them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbweb.errors import ConfigError
from orbweb.log import configure, event, get_logger, mask_secrets


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    root = logging.getLogger("orbweb")
    level, propagate, handlers = root.level, root.propagate, list(root.handlers)
    yield
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    root.propagate = propagate


def test_a_line_has_time_logger_level_and_text(tmp_path: Path) -> None:
    configure("INFO", tmp_path / "logs" / "run.log")
    get_logger("scheduler").info("opened")
    line = (tmp_path / "logs" / "run.log").read_text()
    date, time, rest = line.split(" ", 2)
    assert rest == "[orbweb.scheduler] INFO: opened\n"
    assert len(date) == 10
    assert len(time) == 8


def test_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    configure("WARNING")
    get_logger("engine").info("quiet")
    get_logger("engine").warning("loud")
    captured = capsys.readouterr()
    assert "loud" in captured.err
    assert "quiet" not in captured.err
    assert captured.out == ""


def test_broken_text_is_logged_as_its_escape(tmp_path: Path) -> None:
    for json_lines in (False, True):
        configure(file=tmp_path / "run.log", json=json_lines)
        get_logger("engine").info("price \ud800")
    assert (tmp_path / "run.log").read_text().count(r"price \ud800") == 2


def test_configuring_again_replaces_the_handlers(tmp_path: Path) -> None:
    configure(file=tmp_path / "first.log")
    configure(file=tmp_path / "second.log")
    get_logger("engine").info("once")
    assert (tmp_path / "first.log").read_text() == ""
    assert (tmp_path / "second.log").read_text().count("once") == 1


def test_an_event_is_one_line_of_fields(tmp_path: Path) -> None:
    configure(file=tmp_path / "run.log")
    event(get_logger("engine"), "stopped", held=3, why="SIGTERM twice", empty="")
    line = (tmp_path / "run.log").read_text()
    assert line.endswith('INFO: stopped held=3 why="SIGTERM twice" empty=""\n')


def test_json_lines_keep_fields_and_exceptions(tmp_path: Path) -> None:
    configure(file=tmp_path / "run.log", json=True)
    logger = get_logger("engine")
    event(logger, "outage", level=logging.WARNING, seconds=1.5)
    try:
        raise ValueError("bad")
    except ValueError:
        logger.exception("failed")
    first, second = map(json.loads, (tmp_path / "run.log").read_text().splitlines())
    assert first["event"] == "outage"
    assert first["seconds"] == 1.5
    assert first["level"] == "WARNING"
    assert first["logger"] == "orbweb.engine"
    assert "ValueError: bad" in second["exception"]


@pytest.mark.parametrize("as_json", [False, True])
def test_secrets_do_not_reach_the_log(tmp_path: Path, as_json: bool) -> None:
    configure(file=tmp_path / "run.log", json=as_json)
    logger = get_logger("frontier")
    logger.info("connected to %s", "redis://user:s3cret@db/0")
    logger.info("sent %r", {"Authorization": "Bearer s3cret", "Accept": "*/*"})
    event(logger, "sent", headers={"authorization": "Basic s3cret"}, proxies=["http://a:s3cret@p"])
    try:
        raise OSError("redis://:s3cret@db refused")
    except OSError:
        logger.exception("outage")
    written = (tmp_path / "run.log").read_text()
    assert "s3cret" not in written
    assert written.count("***") >= 5
    assert "*/*" in written
    if as_json:
        assert all(json.loads(line) for line in written.splitlines())


@pytest.mark.parametrize(
    "url",
    [
        "redis://:s3/cr#e@t@db:6379/0",
        "rediss://user:s3/cr@db/0",
        "postgresql://user:s3/cr@db/0",
        "mongodb://user:s3?cr@db/0",
        "unix:///run/redis.sock?db=0&password=s3cr",
        "https://example.com/?a=b&password=s3cr#x",
    ],
)
def test_passwords_with_signs_and_in_queries_are_masked(url: str) -> None:
    assert "s3" not in mask_secrets(url)
    assert "cr" not in mask_secrets(url)


@pytest.mark.parametrize(
    "text",
    ["https://example.com:8080/a@b", "no secret here", "http://example.com/?next=a:b", "a:b@c"],
)
def test_plain_text_is_left_as_it_is(text: str) -> None:
    assert mask_secrets(text) == text


def test_a_log_file_that_cannot_be_opened_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be opened"):
        configure(file=tmp_path / "file" / "run.log")


def test_a_logger_of_a_spider_is_one_of_ours() -> None:
    assert get_logger("NewsSpider").name == "orbweb.NewsSpider"
    assert get_logger("orbweb.engine").name == "orbweb.engine"
    assert get_logger("orbweb").name == "orbweb"
