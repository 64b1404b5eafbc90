"""Log lines: their shape, their events, and that no secret gets into them."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orbweb.errors import ConfigError
from orbweb.log import configure, event, get_logger, mask_secrets
from orbweb.log_file import RotatingFile, Rotation
from orbweb.settings import load_settings
from orbweb.settings.log import configure_log


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


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def ended(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.stem}.*{path.suffix}"))


def test_secrets_are_masked_by_their_names_in_text_and_json(tmp_path: Path) -> None:
    for name, as_json in (("run.log", False), ("run.json", True)):
        configure(file=tmp_path / name, json=as_json)
        fields = {"password": "hunter2", "api_key": "hunter2", "set_cookie": "sid=hunter2"}
        event(get_logger("engine"), "login", user="li", nested={"auth_token": "hunter2"}, **fields)
        text = (tmp_path / name).read_text()
        assert "hunter2" not in text
        assert "li" in text
        assert text.count("***") == (8 if as_json else 4)


def test_a_file_that_is_large_ends_and_another_begins(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    configure(file=path, rotation=Rotation(size_bytes=150))
    for number in range(10):
        get_logger("engine").info("line %d", number)
    found = [line for each in [*ended(path), path] for line in lines_of(each)]
    assert [line.rsplit(" ", 1)[1] for line in found] == [str(n) for n in range(10)]
    assert len(ended(path)) > 1
    assert all(each.stat().st_size < 300 for each in ended(path))


def test_a_file_that_is_old_ends_also_when_another_process_began_it(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text("2026-11-30 22:31:07 [orbweb.engine] INFO: of yesterday\n")
    begun = time.mktime(time.strptime("2026-11-30 22:31:07", "%Y-%m-%d %H:%M:%S"))
    now = [begun + 3500]
    handler = RotatingFile(path, Rotation(age_seconds=3600), clock=lambda: now[0])
    handler.emit(record("still the first"))
    now[0] += 200
    handler.emit(record("the second"))
    handler.close()
    assert [lines_of(each)[-1] for each in ended(path)] == ["still the first"]
    assert lines_of(path) == ["the second"]


def test_a_file_of_json_lines_tells_its_age_too(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text('{"time": "2026-11-30T22:31:07.120+00:00", "level": "INFO"}\n')
    now = datetime(2026, 11, 30, 23, 31, 8, tzinfo=UTC).timestamp()
    handler = RotatingFile(path, Rotation(age_seconds=3600), clock=lambda: now)
    handler.emit(record("next"))
    handler.close()
    assert len(ended(path)) == 1


def test_ended_files_go_by_age_or_number(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    for day in range(1, 5):
        old = tmp_path / f"run.2026-11-0{day}_10-00-00.log"
        old.write_text("x\n")
        os.utime(old, (day * 86_400, day * 86_400))
    RotatingFile(path, Rotation(keep_files=3)).close()
    assert [each.name[:14] for each in ended(path)] == [f"run.2026-11-0{d}" for d in (2, 3, 4)]
    keeping = Rotation(keep_seconds=1.5 * 86_400)
    RotatingFile(path, keeping, clock=lambda: 4.5 * 86_400).close()
    assert [each.name[:14] for each in ended(path)] == ["run.2026-11-03", "run.2026-11-04"]


WRITER = """
import sys
from orbweb.log import configure, get_logger
from orbweb.log_file import Rotation
configure(file=sys.argv[1], rotation=Rotation(size_bytes=2000))
for number in range(150):
    get_logger("engine").info("%s-%d", sys.argv[2], number)
"""


def test_processes_share_a_file_and_lose_no_line(tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [
        subprocess.Popen([*command, name], stderr=subprocess.DEVNULL) for name in ("a", "b", "c")
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    found = [line for each in [*ended(path), path] for line in lines_of(each)]
    words = [line.rsplit(" ", 1)[1] for line in found]
    assert sorted(words) == sorted(f"{name}-{n}" for name in "abc" for n in range(150))
    assert len(ended(path)) > 3


@pytest.mark.parametrize(
    ("rotation", "retention", "found"),
    [
        ("50 MB", "10 days", Rotation(size_bytes=50_000_000, keep_seconds=864_000)),
        ("64 KiB", "5", Rotation(size_bytes=65_536, keep_files=5)),
        ("1 day", "", Rotation(age_seconds=86_400)),
        ("12 hours", "2 weeks", Rotation(age_seconds=43_200, keep_seconds=1_209_600)),
        ("", "", Rotation()),
        ("0", "0", Rotation()),
    ],
)
def test_rotation_is_read_as_people_write_it(
    rotation: str, retention: str, found: Rotation
) -> None:
    assert Rotation.read(rotation, retention) == found


@pytest.mark.parametrize(
    ("rotation", "retention", "says"),
    [("often", "", "LOG_ROTATION is 'often'"), ("", "a while", "LOG_RETENTION is 'a while'")],
)
def test_a_rotation_that_means_nothing_is_an_error(
    rotation: str, retention: str, says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        Rotation.read(rotation, retention)


def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)

    def said(**options: bool) -> str:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        configure(**options)  # type: ignore[arg-type]
        get_logger("engine").error("broken")
        return capsys.readouterr().err

    assert said().startswith("\x1b[31m")
    assert said(colour=False).startswith("20")
    assert said(json=True).startswith("{")
    monkeypatch.setenv("NO_COLOR", "1")
    assert said().startswith("20")


def test_the_settings_reach_the_lines(tmp_path: Path) -> None:
    given = {"LOG_FILE": str(tmp_path / "run.log"), "LOG_FORMAT": "json", "LOG_ROTATION": "100 B"}
    configure_log(load_settings(overrides=given, directory=tmp_path, environ={}))
    for _ in range(2):
        get_logger("engine").info("said")
    assert json.loads(lines_of(tmp_path / "run.log")[0])["text"] == "said"
    assert len(ended(tmp_path / "run.log")) == 1


def record(text: str) -> logging.LogRecord:
    return logging.LogRecord("orbweb", logging.INFO, "", 0, text, None, None)


@pytest.mark.parametrize("name", ["token", "api_key", "apikey", "X-Amz-Signature", "client_secret"])
def test_secret_parameters_of_urls_are_masked_in_log_lines(name: str, tmp_path: Path) -> None:
    configure(file=tmp_path / "log")
    get_logger("engine").error("gave up http://shop.example/a?n=1&%s=hush&page=2#x", name)
    text = (tmp_path / "log").read_text()
    assert f"/a?n=1&{name}=***&page=2#x" in text
    assert "hush" not in text
