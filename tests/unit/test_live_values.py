"""Live values as values: versions, ends, canaries, rollback, who they concern, what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orbweb.config.check import Switches, checked
from orbweb.config.follower import Follower
from orbweb.config.last_good import LastGood
from orbweb.config.place import Place, Scope
from orbweb.config.resolve import Identity, StoreDocument, resolve
from orbweb.config.source import Document, SourceUnavailable
from orbweb.config.values import MOST_ENTRIES, Canary, Entry, Line, LiveValues
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.settings import load_settings
from orbweb.spiders.air import AirSpider
from orbweb.spiders.live_apply import apply_parts
from orbweb.spiders.live_now import Now, Part
from orbweb.spiders.live_view import LiveView, on_config

NODE = Identity("books", "7", "n1", "machine")


def put(values: LiveValues, place: str, value: object, **more: object) -> LiveValues:
    return values.put(Entry(place, value, "ann", **{"at_ms": 1000, **more}))[0]  # type: ignore[arg-type]


def found(values: LiveValues, key: str, node: Identity = NODE, at_ms: int = 2000) -> object:
    document = StoreDocument({}, str(values.version), "store", values, at_ms)
    return resolve([document], node, at_ms).values[key].value


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("A", Place(Scope.GLOBAL, "", "A")),
        ("global/A", Place(Scope.GLOBAL, "", "A")),
        ("job:books/A", Place(Scope.JOB, "books", "A")),
        ("run:books:7/A", Place(Scope.RUN, "books:7", "A")),
        ("host:[::1]:80/A", Place(Scope.HOST, "[::1]:80", "A")),
        ("node:n1/PARSE.x", Place(Scope.NODE, "n1", "PARSE.x")),
        ("DOWNLOAD_TIMEOUT", Place(Scope.GLOBAL, "", "REQUEST_TIMEOUT")),
    ],
)
def test_a_place_is_read(text: str, place: Place) -> None:
    assert Place.read(text) == place
    assert Place.read(str(place)) == place


@pytest.mark.parametrize(
    "text", ["", "job:/A", "run:books/A", "planet:x/A", "global:x/A", "host:h/"]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="run"):
        Place.read(text)


def test_the_most_specific_place_wins_and_a_host_stands_beside() -> None:
    values = LiveValues()
    for place in ("A", "job:books/A", "run:books:7/A", "host:h/A", "job:other/A"):
        values = put(values, place, place)
    document = StoreDocument({}, "1", "store", values, 0)
    resolution = resolve([document], NODE, 0)
    assert resolution.values["A"].value == "run:books:7/A"
    assert resolution.hosts["h"]["A"].value == "host:h/A"
    values = put(values, "node:machine/A", "mine")
    resolution = resolve([StoreDocument({}, "2", "store", values, 0)], NODE, 0)
    assert resolution.values["A"].value == "mine"
    assert resolution.hosts == {}, "a node's own is more specific than a host's"
    assert found(values, "A", Identity("books", "8", "n2", "x")) == "job:books/A"


def test_of_two_sources_the_later_wins_at_the_same_place() -> None:
    first = Document({"A": "1", "job:books/B": "2"}, "1", "file")
    values = put(put(LiveValues(), "A", 3), "B", 4)
    store = StoreDocument({}, "1", "store", values, 0)
    resolution = resolve([first, store], NODE, 0)
    assert resolution.values["A"].value == 3
    assert resolution.values["B"].value == "2", "more specific"
    assert resolution.values["B"].textual


def test_a_value_with_an_end_has_what_was_before_beneath_it() -> None:
    values = put(LiveValues(), "A", 1)
    values = put(values, "A", 2, until_ms=5000)
    values = put(values, "A", 3, until_ms=4000)
    assert [found(values, "A", at_ms=at) for at in (3999, 4000, 5000)] == [3, 2, 1]
    after, line = values.expire(4500) or (values, None)
    assert line is not None
    assert line.verb == "expire"
    assert found(after, "A", at_ms=4500) == 2
    assert after.expire(4600) is None


def test_a_longer_lasting_value_leaves_no_shorter_one_beneath() -> None:
    values = put(LiveValues(), "A", 1, until_ms=3000)
    values = put(values, "A", 2, until_ms=9000)
    after, _ = values.expire(9000) or (values, None)
    assert after.entries == ()


def test_a_canary_stands_beside_the_value_of_all_others() -> None:
    values = put(LiveValues(), "A", 1)
    values = put(values, "A", 2, canary=Canary(nodes=("n1",)))
    other = Identity("books", "7", "n2", "machine")
    assert (found(values, "A"), found(values, "A", other)) == (2, 1)
    promoted, _ = values.promote(Place.read("A"), "bob", "", 2000)
    assert (found(promoted, "A"), found(promoted, "A", other)) == (2, 2)
    ended, _ = values.take_away(Place.read("A"), "bob", "", 2000, canary=True)
    assert (found(ended, "A"), found(ended, "A", other)) == (1, 1)
    with pytest.raises(ConfigError, match="no canary"):
        ended.promote(Place.read("A"), "bob", "", 2000)


def test_what_was_there_before_holds_again_when_a_promoted_canary_ends() -> None:
    values = put(LiveValues(), "A", 1)
    values = put(values, "A", 2, canary=Canary(nodes=("n1",)), until_ms=5000)
    promoted, _ = values.promote(Place.read("A"), "bob", "", 2000)
    assert (found(promoted, "A", at_ms=4999), found(promoted, "A", at_ms=5000)) == (2, 1)
    expired = promoted.expire(5000)
    assert expired is not None
    assert found(expired[0], "A", at_ms=5000) == 1


def test_a_part_of_the_nodes_is_always_the_same_nodes() -> None:
    canary = Canary(percent=25)
    taken = {f"node{n}" for n in range(1000) if canary.takes(f"node{n}")}
    assert 180 < len(taken) < 320
    assert taken == {f"node{n}" for n in range(1000) if canary.takes(f"node{n}")}


def test_rolling_back_gives_the_values_of_then_as_a_new_version() -> None:
    values, lines = LiveValues(), list[Line]()
    for place, value in (("A", 1), ("B", 2), ("A", 3)):
        values, line = values.put(Entry(place, value, "ann", at_ms=1000))
        lines.insert(0, line)
    back, line = values.back_to(1, lines, "bob", "", 2000)
    assert back.version == 4
    assert [(entry.place, entry.value) for entry in back.entries] == [("A", 1)]
    again, _ = back.back_to(3, [line, *lines], "bob", "", 3000)
    assert [(entry.place, entry.value) for entry in again.entries] == [("A", 3), ("B", 2)]
    with pytest.raises(ConfigError, match="hold already"):
        values.back_to(3, lines, "bob", "", 2000)
    with pytest.raises(ConfigError, match="not in the history"):
        values.back_to(0, lines[:1], "bob", "", 2000)
    with pytest.raises(ConfigError, match="no version 9; the present one is 3"):
        values.back_to(9, lines, "bob", "", 2000)


def test_rolling_back_brings_nothing_back_whose_time_is_over() -> None:
    values, first = LiveValues().put(Entry("A", 1, "ann", at_ms=1000, until_ms=2000))
    values, second = values.take_away(Place.read("A"), "ann", "", 1500)
    with pytest.raises(ConfigError, match="hold already"):
        values.back_to(1, [second, first], "bob", "", 2500)


def test_the_levels_of_loggers_are_judged_before_they_are_stored() -> None:
    place = Place.read("LOG_LEVELS")
    assert checked(place, "orbweb=DEBUG", "here", Switches(), textual=True) == ["orbweb=DEBUG"]
    with pytest.raises(ConfigError, match="is not like"):
        checked(place, "orbweb=LOUD", "here", Switches(), textual=True)


@pytest.mark.parametrize("place", ["job:a:b 中/PARSE.x", "run:a:b 中:r:1/PARSE.x"])
def test_names_of_jobs_and_runs_may_have_colons(place: str) -> None:
    switches = Switches({"a": {"y": 1}, "a:b 中": {"x": False}})
    assert checked(Place.read(place), "on", "here", switches, textual=True) is True
    with pytest.raises(ConfigError, match="no live value of job a"):
        checked(Place.read("run:a:r/PARSE.x"), "on", "here", switches, textual=True)


def test_values_survive_being_stored() -> None:
    values = put(put(LiveValues(), "A", [1, "x"]), "A", True, canary=Canary(percent=5))
    assert LiveValues.unpack(values.pack()) == values
    with pytest.raises(ConfigError, match="cannot be read"):
        LiveValues.unpack(b"garbage")


def test_there_is_an_end_to_how_many_are_kept() -> None:
    entries = tuple(Entry(f"X_{n}", n) for n in range(MOST_ENTRIES))
    with pytest.raises(ConfigError, match="already"):
        put(LiveValues(1, entries), "ONE_MORE", 1)


class Told:
    """A source that says what a test lets it say."""

    name = "told"

    def __init__(self) -> None:
        self.words: asyncio.Queue[Document | Exception] = asyncio.Queue()
        self.woken = 0

    async def watch(self) -> AsyncIterator[Document]:
        while True:
            word = await self.words.get()
            if isinstance(word, Exception):
                raise word
            yield word

    def wake(self) -> None:
        self.woken += 1

    async def aclose(self) -> None:
        pass


async def changed(follower: Follower) -> None:
    told = asyncio.Event()
    follower._on_change = told.set
    await told.wait()


async def follow(source: Told, folder: Path) -> tuple[Follower, asyncio.Task[None]]:
    follower = Follower([source], LastGood(folder), lambda: None)
    task = asyncio.create_task(follower.run())
    await follower.asked(1)
    return follower, task


async def test_a_source_that_is_away_keeps_what_it_said_last_on_disk_too(tmp_path: Path) -> None:
    source = Told()
    source.words.put_nowait(Document({"A": "1"}, "1", "told"))
    follower, task = await follow(source, tmp_path)
    source.words.put_nowait(SourceUnavailable("no route"))
    async with asyncio.timeout(1):
        await changed(follower)
    assert follower.errors == {"told": "no route"}
    assert follower.documents[0].values == {"A": "1"}
    task.cancel()
    silent = Told()
    silent.words.put_nowait(SourceUnavailable("still none"))
    follower, task = await follow(silent, tmp_path)
    assert follower.documents[0].values == {"A": "1"}, "from the last process on this machine"
    task.cancel()


async def test_a_source_that_answers_nonsense_ends_neither_itself_nor_others(
    tmp_path: Path,
) -> None:
    odd, good = Told(), Told()
    odd.name = "odd"
    odd.words.put_nowait(KeyError("header"))
    good.words.put_nowait(Document({"A": "1"}, "1", "told"))
    follower = Follower([odd, good], LastGood(tmp_path), lambda: None)
    task = asyncio.create_task(follower.run())
    await follower.asked(1)
    assert "KeyError" in follower.errors["odd"]
    good.words.put_nowait(Document({"A": "2"}, "2", "told"))
    async with asyncio.timeout(1):
        await changed(follower)
    assert follower.documents[0].values == {"A": "2"}
    assert not task.done()
    task.cancel()


async def test_a_source_that_does_not_answer_holds_nobody_up(tmp_path: Path) -> None:
    follower = Follower([Told()], LastGood(tmp_path), lambda: None)
    task = asyncio.create_task(follower.run())
    await follower.asked(0.01)
    assert follower.documents == []
    assert "told" in follower.errors
    task.cancel()


def test_a_disk_that_cannot_be_written_is_no_reason_not_to_crawl(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("in the way")
    LastGood(tmp_path).save("told", Document({}, "1", "told"))
    assert LastGood(tmp_path).load("told") is None


def test_the_view_gives_defaults_then_what_holds() -> None:
    view = LiveView({"price_v2": False})
    assert view["price_v2"] is view.price_v2 is view["PARSE.price_v2"] is False
    view.set_all({"PARSE.price_v2": True, "DOWNLOAD_DELAY": 1.0})
    assert view["price_v2"] is True
    assert view.get("DOWNLOAD_DELAY") == 1.0
    assert set(view) == {"price_v2", "DOWNLOAD_DELAY"}
    with pytest.raises(KeyError, match="declare it"):
        view["price_v3"]
    with pytest.raises(AttributeError):
        _ = view.price_v3


def test_a_spider_declares_its_live_values_with_those_above_it() -> None:
    class Base(AirSpider):
        live = {"a": 1, "b": "x"}  # noqa: RUF012

    class Shop(Base):
        live = {"a": 2}  # noqa: RUF012

    assert dict(Shop().live) == {"a": 2, "b": "x"}


@pytest.mark.parametrize("live", [["a"], {"a": object()}, {"a/b": 1}, {"PARSE.a": 1}])
def test_what_cannot_be_a_live_value_is_refused(live: object) -> None:
    kind = type("Shop", (AirSpider,), {"live": live})
    with pytest.raises(ConfigError, match="live"):
        kind()


def test_on_config_wants_names() -> None:
    with pytest.raises(TypeError, match="names its keys"):
        on_config()


async def test_a_part_that_takes_neither_new_nor_old_values_keeps_no_other_from_its_own() -> None:
    taken: list[int] = []

    async def broken(_: Now) -> None:
        raise ValueError("no file")

    async def well(now: Now) -> None:
        taken.append(now.version)

    settings = load_settings(directory=Path("/nowhere"), environ={})
    before, wanted = Now(settings, {}, {}, {}, 1), Now(settings, {}, {}, {}, 2)
    parts = [Part("broken", frozenset({"A"}), broken), Part("well", frozenset({"B"}), well)]
    refused, _ = await apply_parts(parts, before, wanted)
    assert refused == {"A": "ValueError: no file"}
    assert taken == [2]


async def test_a_part_that_waits_for_the_store_keeps_no_other_from_its_own() -> None:
    taken: list[int] = []

    async def away(_: Now) -> None:
        raise StoreUnavailable("no answer")

    async def well(now: Now) -> None:
        taken.append(now.version)

    settings = load_settings(directory=Path("/nowhere"), environ={})
    before, wanted = Now(settings, {}, {}, {}, 1), Now(settings, {}, {}, {}, 2)
    parts = [Part("away", frozenset({"A"}), away), Part("well", frozenset({"B"}), well)]
    assert await apply_parts(parts, before, wanted) == ({}, parts[:1])
    assert taken == [2]
