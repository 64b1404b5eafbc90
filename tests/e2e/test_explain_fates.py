"""`orbweb explain` gives the right verdict and reason for URLs of every fate, on real crawls."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import redis
from tests.servers import Server

from orbweb.cli import main
from orbweb.frontier.admin import Admin
from orbweb.frontier.base import NewRequest
from orbweb.frontier.servers import OneServer
from orbweb.frontier.valkey import ValkeyFrontier
from orbweb.model.codec import encode
from orbweb.model.fingerprint import fingerprint, request_id
from orbweb.model.request import Request
from orbweb.model.url import host_of

HERE = Path(__file__).parent


class Fate(NamedTuple):
    """What `explain` has to say of a URL: `{main}` and so on stand for the sites."""

    name: str
    url: str
    standing: str
    reason: str
    says: str
    """Part of what is printed."""
    job: str = "Ended"


ENDED = [
    Fate("done", "{main}/done", "done", "done", "done 200 · 20 bytes"),
    Fate("duplicate", "{main}/pair?b=2&utm_source=x&a=1#top", "not crawled", "duplicate_request",
         "it is the same page as {main}/pair?a=1&b=2"),
    Fate("redirected, same host", "{main}/moved", "done", "done", "redirected to {main}/target"),
    Fate("target of that", "{main}/target", "done", "done", "to which {main}/moved redirects"),
    Fate("redirected, other host", "{main}/elsewhere", "done", "redirected",
         "it redirects to {other}/landing"),
    Fate("target of that", "{other}/landing", "done", "done", "first on {main}/elsewhere"),
    Fate("redirected to a known page", "{main}/back", "not crawled", "duplicate_redirect",
         "redirects to {main}/done"),
    Fate("redirects in a circle", "{main}/loop", "failed", "redirect_loop", "without end"),
    Fate("robots.txt", "{main}/private/x", "not crawled", "robots_disallowed",
         'line 3 "Disallow: /private/"'),
    Fate("off the site", "http://offsite.example/", "not crawled", "offsite",
         "orbweb settings --explain ALLOWED_DOMAINS"),
    Fate("too deep", "{main}/deep/2", "not crawled", "depth_limit", "2 of at most 1"),
    Fate("too long", "{main}/long/{long}", "not crawled", "url_length", "of at most 300"),
    Fate("no scheme for us", "mailto:shop@shop.example", "not crawled", "scheme",
         "first on {main}/links"),
    Fate("no URL at all", "http://:80/bad", "not crawled", "bad_url", "✘ url"),
    Fate("404", "{main}/gone", "failed", "status_rejected", "HTTP status 404"),
    Fate("500, retried, dead", "{main}/broken", "failed", "status_rejected", "2 attempts"),
    Fate("timeout", "{main}/slow", "failed", "timeout", "request timeout"),
    Fate("no such host", "http://no-such-host.invalid/", "failed", "dns", "cannot connect",
         "Rude"),
    Fate("no TLS", "{other_tls}/tls", "failed", "tls", "orbweb failed retry Rude", "Rude"),
    Fate("refused", "{closed}/", "failed", "connection", "orbweb failed show Rude", "Rude"),
    Fate("too large", "{main}/large", "failed", "too_large", "MAX_RESPONSE_SIZE"),
    Fate("wrong type", "{main}/image", "not crawled", "content_type",
         "orbweb settings --explain ALLOWED_CONTENT_TYPES"),
    Fate("refused by a middleware", "{main}/unwanted", "failed", "not_retry", "not wanted today"),
    Fate("callback raised", "{main}/buggy", "failed", "callback_error", "KeyError: 'price'"),
    Fate("no such callback", "{main}/callback", "failed", "unknown_callback", "parse_nothing"),
    Fate("not valid", "{main}/invalid", "not crawled", "validation", "validate()"),
    Fate("item refused", "{main}/item", "failed", "item_rejected", "orbweb items failed Ended"),
    Fate("killed its nodes", "{main}/poison", "failed", "poison", "never answered"),
    Fate("forgotten", "{main}/forgotten", "forgotten", "forgotten", "done 200"),
    Fate("unknown", "{main}/never", "unknown", "never_discovered", "unknown to this job"),
    Fate("unknown, but another spelling", "{main}/done/", "unknown", "never_discovered",
         "known: {main}/done"),
]  # fmt: skip

LIVE = [
    Fate("leased now", "{main}/hang", "in work", "leased", "lease until", "Live"),
    Fate("waiting behind", "{main}/behind/2", "waiting", "queued", "priority 4, 2 of 3 requests",
         "Live"),
    Fate("first, no slot free", "{main}/behind/0", "waiting", "slots", "1 of 1 slots", "Live"),
    Fate("429 with Retry-After", "{limiting}/limiting/0", "waiting", "retry_wait",
         "failed with status_rejected: HTTP status 429", "Live"),
    Fate("held off", "{limiting}/limiting/1", "waiting", "held_off", "Retry-After", "Live"),
    Fate("host paused", "{paused}/paused/0", "waiting", "host_paused",
         "orbweb resume {paused_host}", "Live"),
    Fate("circuit open", "{dead}/dead/8", "waiting", "circuit_open", "after 2 bad", "Live"),
    Fate("retry later", "{dead}/dead/0", "waiting", "retry_wait", "HTTP status 500", "Live"),
]  # fmt: skip

STOPPED = [
    Fate("no node", "{main}/behind/1", "waiting", "no_node", "orbweb run fates.py:Live", "Live"),
]

PAGES: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/robots.txt": (200, {}, b"# ours\nUser-agent: *\nDisallow: /private/\n"),
    "/links": (200, {}, b"".join(
        b'<a href="%s">x</a>' % href
        for href in (b"/deep/1", b"http://offsite.example/", b"mailto:shop@shop.example",
                     b"/long/" + b"x" * 300)
    )),
    "/deep/1": (200, {}, b'<a href="/deep/2">x</a>'),
    "/moved": (302, {"Location": "/target"}, b""),
    "/back": (302, {"Location": "/done"}, b""),
    "/loop": (302, {"Location": "/loop2"}, b""),
    "/loop2": (302, {"Location": "/loop"}, b""),
    "/gone": (404, {}, b""),
    "/broken": (500, {}, b""),
    "/limiting/0": (429, {"Retry-After": "600"}, b""),
    "/large": (200, {}, b"x" * 50_000),
    "/image": (200, {"Content-Type": "image/png"}, b"x"),
}  # fmt: skip


class Pages(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    other = ""
    release = threading.Event()

    def do_GET(self) -> None:
        path = self.path
        if path == "/hang":
            self.release.wait(60)
        if path == "/slow":
            time.sleep(1.5)
        status, headers, body = PAGES.get(path, (200, {}, b"<html>a page</html>\n"))
        if path.startswith("/dead/"):
            time.sleep(0.2)
            status = 500
        if path == "/elsewhere":
            status, headers, body = 302, {"Location": f"{self.other}/landing"}, b""
        with suppress(OSError):
            self.send_response(status)
            for name, value in {"Content-Type": "text/html", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


class World:
    """The sites, the store and the directory in which commands are called."""

    def __init__(self, folder: Path, sites: dict[str, str], url: str) -> None:
        self.folder = folder
        self.sites = sites
        self.url = url
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith("ORBWEB_")
        } | {"ORBWEB_REDIS_URL": url}

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "orbweb", *words]

    def call(self, *words: str) -> str:
        done = subprocess.run(
            self.command(*words), cwd=self.folder, env=self.environment, capture_output=True,
            text=True, timeout=90,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout

    def text(self, pattern: str) -> str:
        return pattern.format(**self.sites)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("fates")
    shutil.copy(HERE / "fates.py", folder)
    with ExitStack() as stack:
        server = Server("valkey")
        stack.callback(server.stop)
        sites: dict[str, str] = {}
        for name in ("main", "other", "limiting", "paused", "dead"):
            site = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
            site.daemon_threads = True
            thread = threading.Thread(target=site.serve_forever, args=(0.05,))
            thread.start()
            stack.callback(thread.join)
            stack.callback(site.server_close)
            stack.callback(site.shutdown)
            sites[name] = f"http://127.0.0.1:{site.server_port}"
        stack.callback(Pages.release.set)
        Pages.other = sites["other"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            sites["closed"] = f"http://127.0.0.1:{free.getsockname()[1]}"
        (folder / "sites.json").write_text(json.dumps(sites))
        sites["other_tls"] = sites["other"].replace("http:", "https:")
        sites["paused_host"] = host_of(sites["paused"])
        sites["long"] = "x" * 300
        yield World(folder, sites, server.url)


@pytest.fixture(scope="module")
def ended(world: World) -> World:
    """A world in which the first spider has come to its end."""
    for spider in ("Ended", "Rude"):
        world.call("run", f"fates.py:{spider}", "-s", "LOG_LEVEL=CRITICAL", "--no-progress")
    asyncio.run(poison(world, world.text("{main}/poison")))
    world.call("dedup", "forget", "Ended", world.text("{main}/forgotten"))
    return world


async def poison(world: World, url: str) -> None:
    """Hand a request out again and again; nobody ever answers."""
    servers = OneServer(world.url)
    try:
        info = await Admin(servers, "orbweb").find("Ended")
        frontier = ValkeyFrontier(servers.of_shard(0), prefix="orbweb", job="Ended")
        frontier.attach(info.epoch)
        request = Request(url)
        number = fingerprint(request)
        new = NewRequest(request_id(number), host_of(url), 300, number, encode(request))
        assert await frontier.add([new]) == 1
        for seq in range(1, 100):
            await frontier.claim("ghost", seq, 1, 1)
            if (await frontier.status()).pending == 0:
                return
            await asyncio.sleep(0.003)
        raise AssertionError("it did not become poison")
    finally:
        await servers.aclose()


class NotThere(Exception):
    """A command has nothing to tell."""


class Caller:
    """Calls commands in this process."""

    def __init__(
        self, world: World, patch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.world = world
        self._patch = patch
        self._capsys = capsys
        patch.chdir(world.folder)
        for name in [name for name in os.environ if name.startswith("ORBWEB_")]:
            patch.delenv(name)
        patch.setenv("ORBWEB_REDIS_URL", world.url)

    def __call__(self, *words: str) -> str:
        self._patch.setattr(sys, "argv", ["orbweb", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = self._capsys.readouterr()
        if ended.value.code:
            raise NotThere(err)
        return out

    def differs(self, fate: Fate) -> str:
        """What is wrong with what is said of a URL; empty when all is right."""
        words = ["explain", self.world.text(fate.url), "--job", fate.job]
        try:
            (record,) = json.loads(self(*words, "--json"))
        except NotThere as error:
            return str(error)
        printed = self(*words)
        said = (record["standing"], record["reason"])
        if said != (fate.standing, fate.reason):
            return f"{fate.name}: {said}, not {fate.standing}, {fate.reason}\n{printed}"
        if self.world.text(fate.says) not in printed:
            return f"{fate.name}: nothing of {self.world.text(fate.says)!r}\n{printed}"
        return ""


@pytest.fixture
def call(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Caller]:
    yield Caller(world, monkeypatch, capsys)
    logging.getLogger("orbweb").handlers[:] = []


@pytest.mark.parametrize("fate", ENDED, ids=lambda fate: fate.name)
def test_a_url_that_has_ended_is_explained(ended: World, call: Caller, fate: Fate) -> None:
    assert not call.differs(fate)


def test_urls_of_a_crawl_at_work_are_explained(world: World, call: Caller) -> None:
    call("pause", world.sites["paused_host"], "--reason", "test", "--host")
    run = world.command("run", "fates.py:Live", "-s", "LOG_LEVEL=CRITICAL", "--no-progress")
    with subprocess.Popen(
        run, cwd=world.folder, env=world.environment, stdout=subprocess.DEVNULL
    ) as crawl:
        try:
            end = time.monotonic() + 30
            while wrong := [text for text in map(call.differs, LIVE) if text]:
                assert time.monotonic() < end, "\n".join(wrong)
                assert crawl.poll() is None
                time.sleep(0.1)
        finally:
            crawl.kill()
    with redis.Redis.from_url(world.url) as client:  # what time does to a node that is silent
        for run, pace in client.hgetall("{orbweb:0}:pace").items():
            client.hset("{orbweb:0}:pace", run, b" ".join([*pace.split()[:2], b"-1000000"]))
    assert [text for text in map(call.differs, STOPPED) if text] == []


def test_there_are_25_fates_and_no_reason_is_told_twice_without_need() -> None:
    fates = [*ENDED, *LIVE, *STOPPED]
    assert len(fates) >= 25
    assert len({fate.reason for fate in fates}) >= 25


def test_explaining_changes_nothing_in_the_store(ended: World, call: Caller) -> None:
    with redis.Redis.from_url(ended.url) as client:
        before = {key: client.dump(key) for key in client.scan_iter()}
        for fate in ENDED[:8]:
            call("explain", ended.text(fate.url), "--job", "Ended")
        after = {key: client.dump(key) for key in client.scan_iter()}
    assert after == before


def test_without_a_job_those_that_know_the_url_answer(ended: World, call: Caller) -> None:
    found = json.loads(call("explain", ended.text("{main}/done"), "--json"))
    assert [record["job"] for record in found] == ["Ended"]
