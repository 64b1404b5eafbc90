"""TaskSpider in virtual time: where tasks come from, what is told of them, when the run ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.engine_world import SITE, Town, end, links

import orbweb as mw
from orbweb.engine.options import TaskOptions
from orbweb.errors import ConfigError, NotRetryError, SpiderError, UnserialisableError
from orbweb.frontier.base import RunConfig, RunState
from orbweb.frontier.memory_tasks import MemoryTaskList
from orbweb.frontier.tasks import NewTask, new_tasks, pack_task, task_request

KEY = "works"
LIST = TaskOptions(list_key=KEY, poll_seconds=2.0, batch=3, exhaust_polls=3)
OWN = replace(LIST, list_key="")
CONFIG = RunConfig(lease_ms=10_000, max_retries=1, polls=True, tells_done=True, tells_failed=True)
PAGES = {f"{SITE}/{name}": links() for name in ("b", "c", "d")} | {f"{SITE}/a": links("b", "c")}


class Works(mw.TaskSpider):
    """Crawls from the page that a task names; keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[Any, str]] = []
        self.stored: list[int] = []

    def task_requests(self, task: Any) -> Any:
        yield mw.Request(f"{SITE}/{task}")

    def parse(self, request: Any, response: Any) -> Any:
        yield {"url": request.url}
        yield from response.follow_all(css="a")

    def task_done(self, task: Any) -> Any:
        self.told.append((task, ""))

    def task_failed(self, task: Any, reason: str) -> Any:
        self.told.append((task, reason))


def town_with(*values: Any, **config: Any) -> Town:
    town = Town(PAGES, replace(CONFIG, **config))
    rows = [(task.uid, task.pack()) for task in new_tasks(values)]
    town.shard.task_lists[KEY] = rows
    return town


def bound(spider: mw.TaskSpider, town: Town, tasks: TaskOptions) -> Any:
    """How to build a node whose engine the spider knows, as the assembly does it."""
    build = town.node(spider, tasks=tasks)

    def built() -> Any:
        engine = build()
        spider._engine = engine
        return engine

    return built


def asked(town: Town) -> list[str]:
    return sorted(url.rpartition("/")[2] for url in town.chain.asked)


def test_tasks_of_the_list_are_crawled_and_told() -> None:
    town, spider = town_with("a", "d"), Works()
    (report,) = town.run(town.node(spider, tasks=LIST))
    assert (report.exit_code, report.state) == (0, "done")
    assert sorted(spider.told) == [("a", ""), ("d", "")]
    assert asked(town) == ["a", "b", "c", "d"]
    assert town.shard.task_lists[KEY] == []


def test_each_task_crawls_for_itself() -> None:
    town, spider = town_with("a", "a", "b"), Works()
    town.run(town.node(spider, tasks=LIST))
    assert asked(town) == sorted(["a", "b", "c"] * 2 + ["b"])
    assert len({row["_key"] for row in town.rows}) == len(town.rows) == 7


def test_tasks_may_share_what_is_seen() -> None:
    town, spider = town_with("a", "a", "b"), Works()
    town.run(town.node(spider, tasks=replace(LIST, shares_dedup=True)))
    assert asked(town) == ["a", "b", "c"]
    assert len(spider.told) == 3


def test_a_task_is_told_when_its_items_are_stored() -> None:
    town = town_with("a")

    class Looks(Works):
        def task_done(self, task: Any) -> Any:
            self.stored.append(len(town.rows))

    spider = Looks()
    town.run(town.node(spider, tasks=LIST))
    assert spider.stored == [3]


def test_a_page_that_is_given_up_fails_its_task() -> None:
    town, spider = town_with("gone", "d"), Works()
    (report,) = town.run(town.node(spider, tasks=LIST))
    assert report.exit_code == 0
    ((task, reason),) = [told for told in spider.told if told[1]]
    assert task == "gone"
    assert reason in report.reasons


def test_the_run_ends_after_so_many_looks_without_a_task() -> None:
    town, spider = town_with(), Works()
    (report,) = town.run(town.node(spider, tasks=LIST))
    assert report.exit_code == 3
    assert 2 * LIST.poll_seconds <= report.elapsed_seconds <= 4 * LIST.poll_seconds


def test_tasks_that_come_while_others_are_worked_on_are_taken() -> None:
    town, spider = town_with("d"), Works()
    town.chain.seconds = 60.0
    waiting = MemoryTaskList(town.shard.task_lists, KEY)

    async def later(engine: Any) -> None:
        await asyncio.sleep(40)
        await waiting.push([NewTask("late", "b")])

    (report,) = town.drive([town.start(town.node(spider, tasks=LIST), later)])
    assert report.exit_code == 0
    assert asked(town) == ["b", "d"]


def test_a_resident_spider_waits_for_tasks_until_an_operator_stops_it() -> None:
    town, spider = town_with("d", keep_alive=True), Works()
    waiting = MemoryTaskList(town.shard.task_lists, KEY)

    async def meanwhile(engine: Any) -> None:
        await asyncio.sleep(100)
        assert asked(town) == ["d"]
        await waiting.push([NewTask("late", "b")])
        await asyncio.sleep(10)
        assert asked(town) == ["b", "d"]
        operator = town.frontier()
        operator.attach(town.shard.current["job", ""])
        await operator.stop()

    (report,) = town.drive([town.start(town.node(spider, tasks=LIST), meanwhile)])
    assert (report.exit_code, report.state) == (0, "stopped")
    assert len(spider.told) == 2


def test_many_tasks_do_not_wait_for_the_interval() -> None:
    town, spider = town_with(*["b", "c", "d"] * 20), Works()
    (report,) = town.run(town.node(spider, tasks=LIST))
    assert len(spider.told) == 60
    assert report.elapsed_seconds < 20


def test_a_hook_that_raises_is_called_again_and_then_a_dead_letter() -> None:
    town = town_with("d")

    class Fails(Works):
        def task_done(self, task: Any) -> Any:
            super().task_done(task)
            raise OSError("the table is away")

    spider = Fails()
    (report,) = town.run(town.node(spider, tasks=LIST))
    assert spider.told == [("d", "")] * 2
    (run,) = town.shard.runs.values()
    ((id, buried),) = run.dead.items()
    assert id.endswith("@end")
    assert "the table is away" in buried.error
    assert report.run is not None
    assert report.run.dead == 1


def test_a_hook_may_yield_items() -> None:
    town = town_with("d")

    class Writes(Works):
        async def task_done(self, task: Any) -> Any:
            yield {"task": task}

    town.run(town.node(Writes(), tasks=LIST))
    assert {"task": "d"} in [
        {name: value for name, value in row.items() if name == "task"} for row in town.rows
    ]


@pytest.mark.parametrize("kind", ["generator", "async_generator", "coroutine", "list"])
def test_task_requests_of_every_kind(kind: str) -> None:
    class Kinds(Works):
        if kind == "async_generator":

            async def task_requests(self, task: Any) -> Any:
                yield mw.Request(f"{SITE}/{task}")

        elif kind == "coroutine":

            async def task_requests(self, task: Any) -> Any:
                return mw.Request(f"{SITE}/{task}")

        elif kind == "list":

            def task_requests(self, task: Any) -> Any:
                return [mw.Request(f"{SITE}/{task}")]

    town, spider = town_with("d"), Kinds()
    town.run(town.node(spider, tasks=LIST))
    assert spider.told == [("d", "")]
    assert asked(town) == ["d"]


@pytest.mark.parametrize(("error", "tries"), [(LookupError("no"), 2), (NotRetryError("no"), 1)])
def test_a_task_whose_requests_cannot_be_made_has_failed(error: Exception, tries: int) -> None:
    calls = []

    class Fails(Works):
        def task_requests(self, task: Any) -> Any:
            calls.append(task)
            raise error

    town, spider = town_with("d"), Fails()
    town.run(town.node(spider, tasks=LIST))
    assert len(calls) == tries
    assert [reason for _, reason in spider.told] in (["callback_error"], ["not_retry"])


@pytest.mark.parametrize("plain", [True, False])
def test_a_callback_may_add_tasks(plain: bool) -> None:
    class Adds(Works):
        if plain:

            def parse(self, request: Any, response: Any) -> Any:
                if request.url.endswith("/a"):
                    self.add_tasks("b", "c")

        else:

            async def parse(self, request: Any, response: Any) -> Any:
                if request.url.endswith("/a"):
                    self.add_tasks("b")
                    yield None
                    self.add_tasks("c")

    town, spider = town_with("a"), Adds()
    town.run(town.node(spider, tasks=LIST))
    assert sorted(spider.told) == [("a", ""), ("b", ""), ("c", "")]


def test_what_is_no_json_is_told_where_it_is_added() -> None:
    class Adds(Works):
        def parse(self, request: Any, response: Any) -> Any:
            self.add_tasks({"id": 1}, {"id": {2}})

    town, spider = town_with("d"), Adds()
    town.run(town.node(spider, tasks=LIST))
    (run,) = town.shard.runs.values()
    (buried,) = run.dead.values()
    assert "task['id'] is a set" in buried.error
    assert len(spider.told) == 1


class Rows(Works):
    """Takes rows of a table and marks them."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        self.table = dict.fromkeys(names, 0)
        self.fetches = 0

    async def fetch_tasks(self, limit: int) -> Any:
        self.fetches += 1
        found = [name for name, state in self.table.items() if state == 0][:limit]
        self.table |= dict.fromkeys(found, 1)
        await self.after_the_mark()
        return found

    async def after_the_mark(self) -> None:
        return

    def recover_tasks(self, open_tasks: list[Any]) -> Any:
        for name, state in self.table.items():
            if state == 1 and name not in open_tasks:
                self.table[name] = 0

    def task_done(self, task: Any) -> Any:
        super().task_done(task)
        self.table[task] = 2


def test_tasks_may_come_from_a_source_of_the_spiders_own() -> None:
    town, spider = town_with(), Rows("a", "b", "c", "d")
    (report,) = town.run(bound(spider, town, OWN))
    assert report.exit_code == 0
    assert set(spider.table.values()) == {2}
    assert sorted(task for task, _ in spider.told) == ["a", "b", "c", "d"]


def test_rows_that_a_dead_node_had_marked_are_put_back() -> None:
    town = town_with()
    spider = Rows("b", "c", "d")

    class Dies(Rows):
        async def after_the_mark(self) -> None:
            await asyncio.get_running_loop().create_future()

    dead, table = Dies(), spider.table
    dead.table = table
    victim = town.start(bound(dead, town, OWN))
    town.timeline.run(town.timeline.now_ms + 5_000, victim.done)
    (loop,) = town.timeline.loops
    loop.abandon()
    assert set(table.values()) == {1}
    (report,) = town.run(bound(spider, town, OWN))
    end(loop)
    assert report.exit_code == 0
    assert set(table.values()) == {2}
    assert asked(town) == ["b", "c", "d"]


def test_rows_that_were_lost_are_found_before_the_run_ends() -> None:
    town = town_with()

    class Loses(Rows):
        async def after_the_mark(self) -> None:
            if self.fetches == 1:
                raise OSError("the connection broke after the update")

    spider = Loses("b", "c")
    (report,) = town.run(bound(spider, town, OWN))
    assert report.exit_code == 0
    assert set(spider.table.values()) == {2}


def test_a_source_that_stays_away_ends_a_run_that_does_not_stay() -> None:
    class Broken(Works):
        def fetch_tasks(self, limit: int) -> Any:
            raise OSError("no database")

    town = town_with()
    (report,) = town.run(bound(Broken(), town, OWN))
    assert report.exit_code == 1
    assert "no database" in report.why


def test_a_source_must_give_a_list() -> None:
    class Wrong(Works):
        def fetch_tasks(self, limit: int) -> Any:
            return {"id": 1}

    town, spider = town_with(), Wrong()
    (report,) = town.run(bound(spider, town, OWN))
    assert report.exit_code == 1
    assert SpiderError.__name__ in report.why


def test_two_nodes_share_the_tasks_and_one_polls() -> None:
    town = town_with(*["b", "c", "d"] * 10)
    spiders = [Works(), Works()]
    reports = town.run(*(town.node(each, tasks=LIST, concurrency=2) for each in spiders))
    assert [report.exit_code for report in reports] == [0, 0]
    assert sorted(len(each.told) for each in spiders)[0] > 0
    assert sum(len(each.told) for each in spiders) == 30
    (run,) = town.shard.runs.values()
    assert run.state is RunState.DONE


# -- names and values


def test_class_and_spider_mean_the_same_list() -> None:
    from orbweb.spiders.task import _key

    class Named(Works):
        task_key = "named"

    assert _key(Works) == _key(Works()) == Works().task_key == "Works"
    assert _key(Named) == _key(Named()) == "named"
    assert mw.TaskSpider(task_key="other").task_key == "other"
    assert mw.TaskSpider(redis_key="job").task_key == "TaskSpider"


def test_start_requests_are_refused() -> None:
    class Wrong(Works):
        start_urls = ("http://shop.example/",)

    with pytest.raises(ConfigError, match="task_requests"):
        Wrong()


@pytest.mark.parametrize("value", [{"id": 1}, [1, "x", None], "x", 7, 0.5, True, None, "商品"])
def test_json_values_are_tasks(value: Any) -> None:
    assert NewTask("t", value).pack() == pack_task(value)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"at": {1}}, r"task\['at'\] is a set"),
        ([0, b"x"], r"task\[1\] is a bytes"),
        (float("nan"), "task is nan"),
        ({1: "x"}, "has the key 1"),
        ("\ud800", "surrogate"),
    ],
)
def test_other_values_are_refused_by_name(value: Any, where: str) -> None:
    with pytest.raises(UnserialisableError, match=where):
        pack_task(value)


@pytest.mark.parametrize("uid", ["", "a.b", "a b", "a@end", "x" * 65])
def test_names_of_tasks_are_plain(uid: str) -> None:
    with pytest.raises(UnserialisableError, match="cannot name a task"):
        task_request(NewTask(uid, 1))
