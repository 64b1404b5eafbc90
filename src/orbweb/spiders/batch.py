"""BatchSpider: works through every row of a table, and again each time that a batch is due."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from orbweb.batch.work import BatchWork
from orbweb.errors import ConfigError, StoreUnavailable, StoreUnsafe
from orbweb.log import mask_secrets
from orbweb.model.item import snake_case
from orbweb.sources.base import DONE, FAILED, BatchStore, TaskState
from orbweb.spiders.base import INTERRUPTED, USAGE, BaseParser, ItemHandler
from orbweb.spiders.batch_tasks import BatchTasks
from orbweb.spiders.task import TaskSpider

if TYPE_CHECKING:
    from orbweb.engine.report import RunReport
    from orbweb.spiders.start import Start

REFUSED = {
    "auto_start_next_batch": "start_monitor(once=True) ends with the batch",
    "check_task_interval": "the setting BATCH_MONITOR_INTERVAL",
    "min_task_count": "the setting MAX_PENDING",
    "related_batch_record": "no batch waits for another: let their schedules follow each other",
    "related_redis_key": "no batch waits for another: let their schedules follow each other",
    "task_limit": "the setting BATCH_PUSH_LIMIT",
    "task_order_by": "rows are taken in the order of their ids",
}
"""Arguments of feapder that have no effect here, and what takes their place."""


class BatchSpider(TaskSpider):
    """A spider whose tasks are the rows of a table in a database.

    A batch is one pass over the table: all rows get the state 0 (to do), 2 while they are worked
    on, and in the end 1 (done) or -1 (failed), by themselves. `start` works on the batch that is
    open; one node at a time, the master (`start_monitor`), opens batches when they are due. The
    batch is the run: every batch crawls every row, and `RUN_ID` does not apply.
    """

    __task_table__: ClassVar[str] = ""

    def __init__(
        self,
        *,
        redis_key: str | None = None,
        task_table: str | None = None,
        batch_store: BatchStore | None = None,
        batch_interval: float | str | None = None,
        keep_alive: bool | None = None,
        thread_count: int | None = None,
        item_handler: ItemHandler | None = None,
        pipelines: Iterable[Any] | None = None,
        task_keys: Sequence[str] = (),
        task_state: str | None = None,
        task_condition: str | None = None,
        batch_record_table: str | None = None,
        batch_name: str | None = None,
        **others: Any,
    ) -> None:
        """`task_table`: default `__task_table__`, else the name of the job in snake case.

        `batch_store` takes the place of a database. `batch_interval`: days (or the unit
        `BATCH_INTERVAL_UNIT`), or a cron line. `keep_alive`: wait for the next batch when one has
        ended. `task_keys`: the columns that a task is given, default all. `task_state`,
        `task_condition` and `batch_record_table` stand for the settings of their names.
        `batch_name`: what log lines call the batches, default the name of the job.
        """
        super().__init__(
            redis_key=redis_key,
            thread_count=thread_count,
            keep_alive=keep_alive,
            item_handler=item_handler,
            pipelines=pipelines,
        )
        _refuse(others)
        self.task_table = task_table or self.__task_table__ or snake_case(self.redis_key)
        self.task_keys = tuple(task_keys)
        self.batch_store = batch_store
        self.batch_name = batch_name or self.redis_key
        for name, value in (
            ("BATCH_INTERVAL", batch_interval),
            ("BATCH_TASK_STATE_FIELD", task_state),
            ("BATCH_TASK_CONDITION", task_condition),
            ("BATCH_RECORD_TABLE", batch_record_table),
        ):
            if value is not None:
                self._arguments[name] = value
        self._work: BatchWork | None = None
        self._store = batch_store

    def _refuse_misplaced_hooks(self) -> None:
        """Other hooks that have no place here too.

        feapder's `start_requests(task)` is fine where there is no `task_requests`.
        """
        name, kind = type(self).__name__, type(self)
        if kind.fetch_tasks is not TaskSpider.fetch_tasks:
            raise ConfigError(
                f"{name}.fetch_tasks: the tasks of a BatchSpider are the rows of its table. A "
                "TaskSpider fetches its tasks itself"
            )
        for hook in ("init_task", "add_task"):
            if hasattr(kind, hook):
                raise ConfigError(
                    f"{name}.{hook}: rows enter each batch by themselves; BATCH_TASK_CONDITION "
                    "says which, and rows that are put into the table belong to the next batch"
                )
        of_feapder = kind.task_requests is BatchSpider.task_requests
        if self.start_urls or (kind.start_requests is not BaseParser.start_requests
                               and not of_feapder):  # fmt: skip
            super()._refuse_misplaced_hooks()

    # -- what a spider overrides

    def task_requests(self, task: Any) -> Any:
        """Yield the requests of a task, which is a row as a dict. Must be overridden.

        Callbacks that take an argument `task` are given it. feapder's name for this hook is
        `start_requests(task)`.
        """
        if type(self).start_requests is BaseParser.start_requests:
            raise NotImplementedError(f"{type(self).__name__} needs a method task_requests(task)")
        return self.start_requests(Row(task))  # type: ignore[call-arg]

    # -- what a spider calls

    @property
    def store(self) -> BatchStore:
        """The table and the records of its batches; only while the spider runs."""
        if self._store is None:
            raise ConfigError(f"{self.name} has not been started, so it has no store")
        return self._store

    @property
    def batch(self) -> int:
        """The number of the batch that this node works on."""
        return self._batch_work("batch").number

    def update_task(self, task_id: Any, *, ok: bool = True) -> bool:
        """Say at once how a row has ended; False when the open batch has no such row. Blocks.

        Needless in most spiders: a row is done when all its requests are, and failed when one of
        them was given up. What is said here stands over that. Raises `StoreUnavailable`.
        """
        return self._batch_work("update_task").mark(task_id, DONE if ok else FAILED)

    def update_task_state(self, task_id: Any, state: int = 1) -> None:
        """feapder's `update_task`: `state` is 1 or -1."""
        self._batch_work("update_task_state").mark(task_id, _ended(state))

    def update_task_batch(self, task_id: Any, state: int = 1) -> None:
        """feapder's other `update_task`; it may be yielded, and is done at once."""
        self.update_task_state(task_id, state)

    def add_tasks(self, *tasks: Any) -> None:
        """Refused: see `push_tasks`."""
        self.push_tasks(*tasks)

    @classmethod
    def push_tasks(cls, *tasks: Any, task_key: str | None = None) -> int:
        """Refused: a row that is put into the table is a task of the next batch."""
        raise ConfigError(
            f"the tasks of {cls.__name__} are the rows of its table: put a row there, and it is a "
            "task of the next batch"
        )

    def add_parser(self, parser: Any) -> None:
        """Refused: feapder's parsers are classes of their own, here a spider is one class."""
        raise ConfigError(
            f"add_parser({getattr(parser, '__name__', parser)!r}): a spider is one class here; "
            "let the spider inherit the parser's methods instead"
        )

    # -- how it is started

    def run(self, start: Start | None = None) -> RunReport:
        """Work on the open batch, or with `keep_alive` on each; blocks."""
        from orbweb.spiders.build_batch import run_batches

        return run_batches(self, start)

    def start_monitor(self, *, once: bool = False) -> None:
        """Be the master of the batches, or stand by while another node is it; blocks.

        With `once` only until the batch that is open or due now has ended. Raises `SystemExit`
        with 3 when there was none, and with 2 when a setting, the store or the database is wrong.
        """
        from orbweb.spiders.build_batch import run_monitor

        try:
            code = run_monitor(self, once=once)
        except (ConfigError, StoreUnsafe, StoreUnavailable) as error:
            print(f"orbweb: {mask_secrets(str(error))}", file=sys.stderr)
            raise SystemExit(USAGE) from error
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        if code:
            raise SystemExit(code)

    start_monitor_task = start_monitor

    # -- what the engine calls

    def use_store(self, store: BatchStore) -> None:
        """Called by the assembly when the store is ready."""
        self._store = store

    def begin_batch(self, work: BatchWork) -> None:
        """Called by the assembly before a batch is worked on."""
        self._work = work

    @property
    def calls(self) -> BatchTasks:
        """See `TaskSpider`."""

        async def call(function: Callable[..., Any], *args: Any) -> Any:
            return await self._started("hooks").call(function, *args)

        return BatchTasks(self, self._batch_work("calls"), call)

    @property
    def has_source(self) -> bool:
        """See `TaskSpider`: the table."""
        return True

    @property
    def wants_done(self) -> bool:
        """See `TaskSpider`: the state of the row."""
        return True

    wants_failed = wants_done

    def _batch_work(self, what: str) -> BatchWork:
        if self._work is None:
            raise ConfigError(f"{what} is for a spider that works on a batch: {self.name} does not")
        return self._work


class Row(dict[str, Any]):
    """A row whose columns are attributes too, as feapder's tasks have them."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the task has no column {name!r}") from None

    def __iter__(self) -> Iterator[Any]:
        """The values, so that `id, url = task` works."""
        return iter(self.values())


def _refuse(others: dict[str, Any]) -> None:
    for name in others:
        if name in REFUSED:
            raise ConfigError(f"BatchSpider({name}=…) of feapder is not there: {REFUSED[name]}")
        raise TypeError(f"BatchSpider got an unexpected keyword argument {name!r}")


def _ended(state: int) -> TaskState:
    if state not in (DONE, FAILED):
        raise ConfigError(f"a task ends with the state 1 (done) or -1 (failed), not {state!r}")
    return TaskState(state)
