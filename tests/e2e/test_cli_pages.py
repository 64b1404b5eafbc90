"""Pages by hand and failed requests, as commands on real stores and the demo site."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.e2e.commands import Call, commands
from tests.servers import Server, redis_binary

from orbweb.testing.origin import OriginLog
from orbweb.testing.site import SiteThread

SPIDER = """
import orbweb

class Shop(orbweb.Spider):
    site = ""
    custom_settings = {
        "SPIDER_MAX_RETRY_TIMES": 0,
        "ALLOWED_DOMAINS": ["127.0.0.1"],
        "USE_SESSION": True,
        "DOWNLOADER_MIDDLEWARES": ["signing.Signing"],
    }

    def start_requests(self):
        yield orbweb.Request(self.site + "/flat?n=1")
        yield orbweb.Request(self.site + "/echo", "POST", callback="parse_echo",
                             content="a=1", cookies={"session": "s3cret"},
                             headers={"Authorization": "Bearer s3cret"})
        for code in (404, 410, 503):
            yield orbweb.Request(f"{self.site}/status?code={code}&x=1")

    def download_midware(self, request):
        request.headers["X-Spider"] = self.name

    def parse(self, response):
        yield {"url": response.url}
        for path in ("/flat?n=1", "/flat?n=2", "/flat?n=2", "/admin", "http://off.example/"):
            yield response.follow(path)

    def parse_echo(self, response):
        yield {"price": response.json()["price"]}
"""
MIDDLEWARE = """
class Signing:
    def process_request(self, request):
        request.headers["X-Signed"] = "yes"
"""


class Scene(NamedTuple):
    """A run that has ended in a store, and its site."""

    call: Call
    site: str
    hits: Callable[[], list[Any]]


@pytest.fixture(scope="module", params=["valkey", "redis"])
def store(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "redis" and redis_binary() is None:
        pytest.skip("no redis-server here")
    server = Server(request.param, aof="everysec")
    try:
        yield server.url
    finally:
        server.stop()


@pytest.fixture(scope="module")
def crawled(store: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    folder = tmp_path_factory.mktemp("pages")
    (folder / "shop.py").write_text(SPIDER)
    (folder / "signing.py").write_text(MIDDLEWARE)
    (folder / "orbweb.toml").write_text(f'REDIS_URL = "{store}"\n')
    with SiteThread(log=folder / "origin.log") as site:
        command = [sys.executable, "-m", "orbweb", "run", "shop.py", "-a", f"site={site.url}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        yield folder, site.url


@pytest.fixture
def scene(
    crawled: tuple[Path, str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> Iterator[Scene]:
    folder, site = crawled
    with commands(folder, monkeypatch, capfd) as call:
        yield Scene(call, site, lambda: list(OriginLog.read(folder / "origin.log")))


def failed_id(scene: Scene, part: str) -> str:
    letters = scene.call("failed", "list", "Shop", "--json").json["letters"]
    return str(next(each["id"] for each in letters if part in each["request"]["url"]))


def lower(headers: dict[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


# -- fetch, view, parse


def test_fetch_prints_the_body_as_it_came(scene: Scene) -> None:
    got = scene.call("fetch", f"{scene.site}/flat?n=7")
    assert (got.code, got.err) == (0, "")
    assert "<h1>7</h1>" in got.out
    told = scene.call("fetch", f"{scene.site}/flat?n=7", "--json").json
    assert (told["status"], told["reason"], "<h1>7</h1>" in told["body"]) == (200, "done", True)


def test_fetch_goes_the_spiders_whole_way(scene: Scene) -> None:
    got = scene.call("fetch", f"{scene.site}/echo", "--spider", "shop.py")
    headers = lower(json.loads(got.out)["headers"])
    assert (headers["x-signed"], headers["x-spider"]) == ("yes", "Shop")
    bare = scene.call("fetch", f"{scene.site}/echo")
    assert "x-signed" not in bare.out.lower()
    closed = scene.call("fetch", f"{scene.site}/admin", "--spider", "shop.py")
    assert (closed.code, closed.out) == (1, "")
    assert "robots_disallowed" in closed.err
    opened = scene.call("fetch", f"{scene.site}/admin", "-s", "ROBOTS_OBEY=false")
    assert opened.code == 0, opened.err


def test_a_curl_line_is_sent_as_curl_would(scene: Scene) -> None:
    line = f"curl '{scene.site}/echo' -H 'X-Note: hi' --json '{{\"a\": 1}}'"
    told = json.loads(scene.call("fetch", line).out)
    assert (told["method"], told["body"]) == ("POST", '{"a": 1}')
    headers = lower(told["headers"])
    assert (headers["x-note"], headers["content-type"]) == ("hi", "application/json")
    refused = scene.call("fetch", f"curl --http3 {scene.site}/echo")
    assert refused.code == 2
    assert "--http3" in refused.err


def test_headers_are_shown_without_their_secrets(scene: Scene) -> None:
    line = f"curl {scene.site}/flat -H 'Authorization: Bearer s3cret' -H 'X-Note: hi'"
    shown = scene.call("fetch", line, "--headers").out
    assert "> X-Note: hi" in shown
    assert "> Authorization: ***" in shown
    assert "< 200" in shown
    assert "s3cret" not in shown


def test_what_is_no_address_says_what_would_be_right(scene: Scene) -> None:
    for wrong in ("http://:80/x", "failed:", "mailto:x@y"):
        refused = scene.call("fetch", wrong)
        assert refused.code == 2, refused
        assert "failed:ID" in refused.err
        assert "Traceback" not in refused.err


def test_view_writes_a_page_with_its_base(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) is None)
    got = scene.call("view", f"{scene.site}/flat?n=7")
    assert got.code == 0, got.err
    file = Path(opened[0].removeprefix("file://"))
    assert f'<base href="{scene.site}/flat?n=7">' in file.read_text()
    file.unlink()


def test_parse_gives_each_link_its_verdict(scene: Scene) -> None:
    before = len(scene.hits())
    (visit,) = scene.call("parse", f"{scene.site}/flat?n=9", "--spider", "shop.py", "--json").json
    assert visit["items"] == [{"url": f"{scene.site}/flat?n=9"}]
    verdicts = [(each["verdict"], each["reason"]) for each in visit["requests"]]
    assert verdicts == [("dropped", "duplicate_request")] * 4 + [("dropped", "offsite")]
    assert "known since generation 1" in visit["requests"][0]["text"]
    assert [hit.path for hit in scene.hits()[before:]] == ["/flat?n=9"]
    assert scene.call("status", "Shop", "--json").json["pending"] == 0


def test_parse_in_a_store_that_knows_nothing_asks_only_the_rules(scene: Scene) -> None:
    words = ("parse", f"{scene.site}/flat?n=9", "--spider", "shop.py")
    other = (*words, "-s", "REDIS_KEY_PREFIX=other")
    got = scene.call(*other)
    assert got.code == 0, got.err
    assert "5 requests, 2 would be queued" in got.out
    assert 'robots_disallowed (line 2 "Disallow: /admin")' in got.out
    deeper = scene.call(*other, "--depth", "2", "--pages", "2", "--json").json
    assert [visit["url"] for visit in deeper] == [f"{scene.site}/flat?n={n}" for n in (9, 1)]
    assert scene.call("jobs", "-s", "REDIS_KEY_PREFIX=other", "--json").json == []


def test_live_values_of_the_store_count_as_for_a_node(scene: Scene) -> None:
    own = ("-s", "REDIS_KEY_PREFIX=live")
    words = ("parse", f"{scene.site}/flat?n=9", "--spider", "shop.py", *own)
    assert "2 would be queued" in scene.call(*words).out
    limit = ("URL_LENGTH_LIMIT", "10", "--reason", "a test", "--wait", "0")
    changed = scene.call("config", "set", *limit, *own)
    assert changed.code == 0, changed.err
    assert "url_length" in scene.call(*words).out
    assert scene.call("config", "unset", "URL_LENGTH_LIMIT", *limit[2:], *own).code == 0
    assert "2 would be queued" in scene.call(*words).out


def test_parse_calls_another_method_and_fails_with_it(scene: Scene) -> None:
    words = ("parse", f"{scene.site}/echo", "--spider", "shop.py", "-c")
    got = scene.call(*words, "parse_echo")
    assert got.code == 1
    assert "✘ callback_error: KeyError: 'price' (shop.py:" in got.out
    assert "unknown_callback" in scene.call(*words, "parse_nothing").out
    assert "--spider" in scene.call("parse", f"{scene.site}/echo").err


def test_parse_says_which_callback_it_called_and_how_to_name_another(scene: Scene) -> None:
    words = ("parse", f"{scene.site}/flat?n=9", "--spider", "shop.py")
    plain = scene.call(*words)
    assert "1 item from parse\n" in plain.out
    assert "-c NAME calls another: parse_echo\n" in plain.err
    assert scene.call(*words, "--json").json[0]["callback"] == "parse"
    named = scene.call(*words, "-c", "parse")
    assert (named.code, named.err) == (0, "")
    wrong = scene.call(*words, "-c", "parse_eko")
    assert "methods that take a response: parse, parse_echo\n" in wrong.err
    own = scene.call("parse", f"failed:{failed_id(scene, '/echo')}", "--spider", "shop.py")
    assert "0 items from parse_echo\n" in own.out
    assert "-c NAME" not in own.err


# -- failed requests


def test_failed_requests_are_grouped_by_their_cause(scene: Scene) -> None:
    found = scene.call("failed", "list", "Shop", "--json").json
    assert found["total"] == 4
    by_error = {group["error"]: group for group in found["groups"]}
    statuses = {f"HTTP status {code}" for code in (404, 410, 503)}
    assert set(by_error) == {"KeyError: 'price'", *statuses}
    group = by_error["KeyError: 'price'"]
    assert group["count"] == 1
    assert group["place"].endswith("in parse_echo")
    assert group["host"] == scene.site.removeprefix("http://")
    assert group["first_ms"] == group["last_ms"] == group["sample"]["at_ms"]
    text = scene.call("failed", "list", "Shop").out
    assert f"{group['group']}  1 × KeyError: 'price' · shop.py:" in text


def test_a_list_shows_the_largest_groups(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbweb.cli.failed.SHOWN_GROUPS", 1)
    text = scene.call("failed", "list", "Shop").out
    assert text.count(" × HTTP status") == 1
    assert "… and 2 more groups" in text


def test_failed_requests_are_chosen_by_cause_node_and_age(scene: Scene) -> None:
    def total(*words: str) -> int:
        return int(scene.call("failed", "list", "Shop", *words, "--json").json["total"])

    groups = scene.call("failed", "list", "Shop", "--json").json["groups"]
    group = next(each for each in groups if each["place"])
    chosen = scene.call("failed", "list", "Shop", "--group", group["group"], "--json").json
    assert [letter["id"] for letter in chosen["letters"]] == [group["sample"]["id"]]
    assert total("--node", group["sample"]["node"][:6]) >= 1
    assert total("--node", "nobody") == 0
    assert total("--since", "1h") == 4
    assert total("--since", "2100-01-01") == 0
    assert "an age" in scene.call("failed", "list", "Shop", "--since", "soon").err


def test_a_failed_request_is_shown_with_what_was_answered_and_no_secret(scene: Scene) -> None:
    id = failed_id(scene, "/echo")
    told = scene.call("failed", "show", "Shop", id, "--json")
    assert told.json["response"]["status"] == 200
    assert told.json["request"]["options"]["headers"] == {"Authorization": "***"}
    shown = scene.call("failed", "show", "Shop", id[:9])
    assert "response   200" in shown.out
    assert "a=1" in shown.out
    for answer in (told, shown):
        assert "s3cret" not in answer.out
    missing = scene.call("failed", "show", "Shop", failed_id(scene, "code=404"), "--json").json
    assert (missing["response"]["status"], missing["response"]["bytes"]) == (404, 0)


def test_a_dry_run_says_how_many_and_does_nothing(scene: Scene) -> None:
    words = ("failed", "drop", "Shop", "--reason", "status_rejected")
    told = scene.call(*words, "--dry-run")
    assert told.code == 0
    assert "Forget 3 failed requests" in told.out
    assert "HTTP status 410" in told.out
    assert scene.call("failed", "list", "Shop", "--json").json["total"] == 4
    assert scene.call(*words).code == 2


def test_failed_requests_are_exported_as_lines(scene: Scene, tmp_path: Path) -> None:
    file = tmp_path / "failed.jsonl"
    written = scene.call("failed", "export", "Shop", "-o", str(file))
    assert "4 failed requests written" in written.err
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert {line["reason"] for line in lines} == {"status_rejected", "callback_error"}
    assert "s3cret" not in file.read_text()
    again = scene.call("failed", "export", "Shop", "-o", str(file))
    assert again.code == 2
    assert "there already" in again.err
    out = scene.call("failed", "export", "Shop", "--reason", "callback_error").out
    assert json.loads(out)["response"]["status"] == 200


def test_a_chosen_group_is_put_back_and_only_that(scene: Scene) -> None:
    groups = scene.call("failed", "list", "Shop", "--json").json["groups"]
    group = next(each for each in groups if each["error"] == "HTTP status 410")
    done = scene.call("failed", "retry", "Shop", "--group", group["group"], "--yes")
    assert "1 failed request back in the queue" in done.out
    assert "orbweb pause Shop --job" in done.err
    counts = scene.call("status", "Shop", "--json").json
    assert (counts["dead"], counts["queued"]) == (3, 1)
    assert scene.call("run", "shop.py", "-a", f"site={scene.site}", "--no-progress").code == 0
    assert scene.call("status", "Shop", "--json").json["dead"] == 4


# -- the shell


def test_the_shell_replays_a_failed_request(scene: Scene) -> None:
    id = failed_id(scene, "/echo")
    before = len(scene.hits())
    words = ("shell", f"failed:{id[:8]}", "--spider", "shop.py", "-c")
    assert scene.call(*words, "response.json()['body']").out == "a=1\n"
    mine = scene.call(*words, "request.method, request.cookies['session']")
    assert mine.out == "('POST', 's3cret')\n"
    ran = scene.call(*words, "run()").out
    assert "✘ callback_error: KeyError: 'price' (shop.py:" in ran
    assert scene.hits()[before:] == [], "all of this is stored: nothing was fetched"
    again = scene.call(*words, "refetch(); diff()").out
    assert "status 200 → 200: +0 −0 lines" in again
    (hit,) = scene.hits()[before:]
    assert (hit.method, hit.path) == ("POST", "/echo")


def test_the_shell_without_a_spider_has_the_stored_page_too(scene: Scene) -> None:
    id = failed_id(scene, "/echo")
    assert scene.call("shell", f"failed:{id}", "-c", "response.status").out == "200\n"
    assert "unknown_callback" in scene.call("shell", f"failed:{id}", "-c", "run()").out


def test_the_shell_puts_a_request_back(scene: Scene) -> None:
    id = failed_id(scene, "code=404")
    words = ("shell", f"failed:{id}", "-c", "requeue()")
    told = scene.call(*words)
    assert told.code == 0, told.err
    assert "is back in the queue of Shop" in told.out
    assert "undo: orbweb pause Shop --job" in told.out
    assert "no failed request" in scene.call(*words).err
    pending = scene.call("shell", f"req:{id}", "-c", "request.url")
    assert "code=404" in pending.out
    assert "it is pending" in pending.err
    assert scene.call("run", "shop.py", "-a", f"site={scene.site}", "--no-progress").code == 0
    assert scene.call("status", "Shop", "--json").json["dead"] == 4


def test_the_shell_knows_requests_of_the_crawl_log(scene: Scene) -> None:
    found = scene.call("log", "Shop", "--url", "/flat?n=1", "--reason", "done", "--json")
    id = json.loads(found.out.splitlines()[-1])["id"]
    got = scene.call("shell", f"req:{id}", "-c", "request.url, response")
    assert got.out == f"('{scene.site}/flat?n=1', None)\n"
    assert "crawl log" in got.err
    assert scene.call("shell", "req:0000", "-c", "1").code == 2


def test_the_shell_fetches_what_is_named_and_what_is_asked(scene: Scene) -> None:
    four, five = f"{scene.site}/flat?n=4", f"{scene.site}/flat?n=5"
    got = scene.call("shell", four, "-c", f"fetch('{five}'); print(response.css('h1::text').get())")
    assert "/flat?n=5  200" in got.out
    assert got.out.endswith("\n5\n")
    assert "/flat?n=4  200" in got.err
    assert scene.call("shell", four, "-c", "response.css('h1::text').get()").out == "4\n"
    wrong = scene.call("shell", four, "-c", "1/0")
    assert (wrong.code, "ZeroDivisionError" in wrong.err) == (1, True)
    assert scene.call("shell", four, "-c", "1 +").code == 2


def test_a_script_in_the_shell_fails_as_fetch_does_when_the_page_was_not_got(scene: Scene) -> None:
    nobody, gone = "http://127.0.0.1:1/", f"{scene.site}/status?code=410"
    for page in (nobody, gone):
        assert scene.call("fetch", page).code == 1
        assert scene.call("shell", page, "-c", "request.method").out == "GET\n"
        assert scene.call("shell", page, "-c", "request.method").code == 1
    four = f"{scene.site}/flat?n=4"
    assert scene.call("shell", four, "-c", f"fetch({nobody!r})").code == 1
    assert scene.call("shell", nobody, "-c", f"fetch({four!r}).status").code == 0
    assert scene.call("shell", four, "-c", f"fetch({nobody!r}); raise SystemExit(0)").code == 0


def test_the_prompt_reads_lines_and_ends_with_its_input(crawled: tuple[Path, str]) -> None:
    folder, site = crawled
    done = subprocess.run(
        [sys.executable, "-m", "orbweb", "shell", f"{site}/flat?n=4", "--spider", "shop.py"],
        input="shelp()\nrun()\nresponse.status\nfetch('http://127.0.0.1:1/')\n",
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "requeue()" in done.stdout
    assert "5 requests" in done.stdout
    assert "200" in done.stdout
    assert "cannot connect" in done.stdout + done.stderr
