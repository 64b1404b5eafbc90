"""What `orbweb consume` does: one process that moves items into a database, or several."""

from __future__ import annotations

import faulthandler
import json
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from orbweb.cli import show
from orbweb.cli.options import project_settings
from orbweb.cli.store import has_data
from orbweb.cli.worker import give_summary
from orbweb.cli.workers import Workers
from orbweb.consume.base import Source
from orbweb.consume.beat import telling
from orbweb.consume.consumer import Consumer, Patience, Stopped
from orbweb.consume.dead import DeadLetterSource
from orbweb.consume.ledger import Ledger
from orbweb.consume.store import Counts, ItemStore
from orbweb.consume.streams import StreamSource
from orbweb.engine.shutdown import ExitCode
from orbweb.errors import ConfigError, StoreUnavailable
from orbweb.frontier.embedded import FOLDER, EmbeddedStore
from orbweb.log import event, get_logger
from orbweb.pipelines.sql_rows import Conflict, RowWriter
from orbweb.pipelines.sql_tables import Tables
from orbweb.settings import Settings
from orbweb.settings.log import configure_log
from orbweb.spiders.progress import LIVE_SECONDS, LiveLine, on_terminal
from orbweb.sql.databases import open_engine

if TYPE_CHECKING:
    from sqlalchemy import Engine

SUMMARY_PREFIX = "ORBWEB_CONSUME_SUMMARY"
START_SECONDS = 30.0
"""How long the database and the brokers may take to answer at the start."""

LONGEST_GROUP = 200
STOPPING = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)

logger = get_logger("consume")


@dataclass(frozen=True, slots=True)
class ConsumePlan:
    """The options of `orbweb consume`, as they were given."""

    to: str | None = None
    topic: str | None = None
    brokers: str | None = None
    stream: str | None = None
    group: str = "orbweb"
    workers: int = 1
    from_beginning: bool = False
    until_empty: bool = False
    retry_dead: bool = False
    create_tables: bool = False
    batch_messages: int = 500
    changes: tuple[str, ...] = ()
    store: str | None = None
    progress: bool | None = None
    summary_fd: int | None = None
    """A worker of `-w N` gives its summary there and not on stdout."""


def consume(plan: ConsumePlan) -> int:
    """Consume until stopped or, if asked, until nothing is left; returns the exit code.

    Raises `ConfigError` and `StoreUnavailable` when it cannot begin.
    """
    _refuse_contradictions(plan)
    settings = project_settings(plan.changes, plan.store)
    configure_log(settings)
    if plan.workers > 1:
        return _run_workers(plan)
    try:
        return _consume_here(plan, settings)
    except Stopped as stopped:
        event(logger, "stopped_before_it_began", level=logging.WARNING, why=str(stopped))
        return int(ExitCode.STOPPED)


def _consume_here(plan: ConsumePlan, settings: Settings) -> int:
    with ExitStack() as stack:
        stop = stack.enter_context(stop_on_signals())
        patience = Patience(stop)
        engine = open_engine(_database(plan, settings))
        stack.callback(engine.dispose)
        ledger = Ledger(engine, plan.group)
        store = _item_store(plan, settings, engine, ledger)
        patience.ask(store.prepare, within_seconds=START_SECONDS)
        source = _open_source(plan, settings, ledger, patience, stack)
        stack.callback(source.close)
        line = stack.enter_context(LiveLine()) if _is_live(plan) else None
        progress = Progress(source, line, settings["LOGSTATS_INTERVAL"])
        consumer = Consumer(
            source,
            store,
            stop=stop,
            batch_messages=plan.batch_messages,
            on_progress=progress.tell,
        )
        watched = _watching_store(plan, settings, stack)
        prefix, place = settings["REDIS_KEY_PREFIX"], _source_name(plan, settings)
        stack.enter_context(telling(watched, prefix, consumer, place))
        until_empty = plan.until_empty or plan.retry_dead
        emptied = consumer.run(until_empty=until_empty)
        code = ExitCode.STOPPED if until_empty and not emptied else ExitCode.DONE
        summary = {
            "schema": 1,
            "from": _source_name(plan, settings),
            "to": engine.url.render_as_string(hide_password=True),
            "group": plan.group,
            **asdict(consumer.counts),
            "lag": progress.look(),
            "elapsed": round(progress.elapsed_seconds, 2),
            "exit_code": int(code),
        }
    return _tell_end(plan, summary)


class Progress:
    """What a person sees while messages are consumed: a live line, or a log line in a while."""

    def __init__(self, source: Source, line: LiveLine | None, interval_seconds: float) -> None:
        self._source = source
        self._line = line
        self._interval_seconds = LIVE_SECONDS if line else interval_seconds
        self._began = time.monotonic()
        self._told_at = self._began
        self._stored = 0

    @property
    def elapsed_seconds(self) -> float:
        return time.monotonic() - self._began

    def look(self) -> int | None:
        """The lag; None when it cannot be known now."""
        try:
            return self._source.lag()
        except StoreUnavailable:
            return None

    def tell(self, counts: Counts) -> None:
        """Show how far it is, if it is time again."""
        now = time.monotonic()
        passed = now - self._told_at
        if not self._interval_seconds or passed < self._interval_seconds:
            return
        stored = counts.new + counts.duplicate + counts.stale + counts.dead
        rate = round((stored - self._stored) / passed, 1)
        self._told_at, self._stored = now, stored
        fields = {**asdict(counts), "rate": rate, "lag": self.look()}
        if self._line is None:
            event(logger, "consumed", **fields)
        else:
            minutes, seconds = divmod(int(self.elapsed_seconds), 60)
            words = "  ".join(f"{name} {value}" for name, value in fields.items())
            self._line.say(f"{minutes:02}:{seconds:02}  {words}")


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """The event that is set by the first SIGTERM, SIGINT or SIGUSR1; the second one interrupts."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        event(logger, "stopping", signal=signal.Signals(number).name)

    before = {number: signal.signal(number, ask) for number in STOPPING}
    faulthandler.register(signal.SIGUSR2)
    try:
        yield stop
    finally:
        faulthandler.unregister(signal.SIGUSR2)
        for number, handler in before.items():
            signal.signal(number, handler)


def _item_store(plan: ConsumePlan, settings: Settings, engine: Engine, ledger: Ledger) -> ItemStore:
    tables = Tables(engine, create=plan.create_tables or settings["SQL_CREATE_TABLES"])
    rows = RowWriter(engine, tables, Conflict(settings["SQL_ON_CONFLICT"]))
    return ItemStore(engine, ledger, rows, tables, dead_letters=plan.retry_dead)


def _database(plan: ConsumePlan, settings: Settings) -> str:
    url: str = plan.to or settings["SQL_URL"]
    if not url:
        raise ConfigError("say where items go: --to URL, or the setting SQL_URL")
    return url


def _open_source(
    plan: ConsumePlan, settings: Settings, ledger: Ledger, patience: Patience, stack: ExitStack
) -> Source:
    if plan.retry_dead:
        return DeadLetterSource(ledger.book())
    if plan.topic is None:
        return _open_stream(plan, settings, stack)
    from orbweb.consume.topics import TopicSource
    from orbweb.kafka.client import option_pairs

    source = TopicSource(
        _brokers(plan, settings),
        plan.topic,
        plan.group,
        lambda places: patience.ask(lambda: ledger.positions(places)),
        options=option_pairs(settings["KAFKA_OPTIONS"], "KAFKA_OPTIONS"),
        from_beginning=plan.from_beginning,
    )
    patience.ask(source.reach, within_seconds=START_SECONDS)
    return source


def _open_stream(plan: ConsumePlan, settings: Settings, stack: ExitStack) -> StreamSource:
    url = settings["ITEM_REDIS_URL"] or settings["REDIS_URL"]
    revive: Callable[[], object] = str
    if not url:
        directory = Path.cwd()
        if not has_data(directory):
            raise ConfigError(
                f"there is no store here: {directory / FOLDER} does not exist. Go to the directory "
                "where the spider ran, or name the store with --store URL, or a Kafka --topic"
            )
        embedded = EmbeddedStore(directory)
        url = stack.enter_context(embedded)
        revive = embedded.ensure
    return StreamSource(
        url,
        plan.stream or settings["ITEM_STREAM"],
        plan.group,
        from_beginning=plan.from_beginning,
        timeout_seconds=settings["STORE_TIMEOUT"],
        revive=revive,
    )


def _watching_store(plan: ConsumePlan, settings: Settings, stack: ExitStack) -> str:
    """URL of the store in which alarms are judged; empty when there is none here."""
    url: str = settings["REDIS_URL"]
    if url or plan.topic is not None or plan.retry_dead or settings["ITEM_REDIS_URL"]:
        return url
    return stack.enter_context(EmbeddedStore(Path.cwd()))


def _brokers(plan: ConsumePlan, settings: Settings) -> Sequence[str]:
    if plan.brokers is not None:
        return plan.brokers.split(",")
    servers: Sequence[str] = settings["KAFKA_BOOTSTRAP_SERVERS"]
    return servers


def _source_name(plan: ConsumePlan, settings: Settings) -> str:
    if plan.retry_dead:
        return "dead letters"
    if plan.topic is not None:
        return f"topic {plan.topic}"
    return f"stream {plan.stream or settings['ITEM_STREAM']}"


def _is_live(plan: ConsumePlan) -> bool:
    return on_terminal() if plan.progress is None else plan.progress


def _run_workers(plan: ConsumePlan) -> int:
    workers = Workers(_worker_command(plan), plan.workers)
    code = workers.run()
    found = workers.summaries()
    if found:
        added = {name: sum(each[name] for each in found) for name in asdict(Counts())}
        summary = {**found[-1], **added, "workers": plan.workers, "exit_code": code}
        lags = [each["lag"] for each in found if each["lag"] is not None]
        of_all = sum if plan.topic else min  # partitions have one member each, a stream is shared
        summary["lag"] = of_all(lags) if lags else None
        return _tell_end(plan, summary)
    return code


def _worker_command(plan: ConsumePlan) -> list[str]:
    """The command line of one worker: this one, without `-w`."""
    command = [sys.executable, "-m", "orbweb", "consume", "--no-progress"]
    command += ["--group", plan.group, "--batch", str(plan.batch_messages)]
    for option, value in (
        ("--to", plan.to),
        ("--topic", plan.topic),
        ("--brokers", plan.brokers),
        ("--stream", plan.stream),
        ("--store", plan.store),
    ):
        if value is not None:
            command += [option, value]
    for option, wanted in (
        ("--from-beginning", plan.from_beginning),
        ("--until-empty", plan.until_empty),
        ("--create-tables", plan.create_tables),
    ):
        if wanted:
            command.append(option)
    for change in plan.changes:
        command += ["-s", change]
    return command


def _tell_end(plan: ConsumePlan, summary: dict[str, Any]) -> int:
    """Print the summary; returns the exit code, which a consumer that has stored nothing fails."""
    if plan.summary_fd is not None:
        give_summary(plan.summary_fd, json.dumps(summary, ensure_ascii=False))
        return int(summary["exit_code"])
    stored = summary["new"] + summary["duplicate"] + summary["stale"]
    if summary["dead"] and not stored and summary["exit_code"] == ExitCode.DONE:
        summary["exit_code"] = int(ExitCode.GATE_FAILED)
    line = f"{SUMMARY_PREFIX} {json.dumps(summary, ensure_ascii=False)}"
    live = _is_live(plan)
    if not (live and sys.stdout.isatty()):
        print(line, flush=True)
    if live:
        lag = summary["lag"]
        show.note(
            f"{show.number(summary['new'])} new · {show.number(summary['duplicate'])} duplicate · "
            f"{show.number(summary['stale'])} stale · {show.number(summary['dead'])} dead · "
            f"lag {'unknown' if lag is None else show.number(lag)} · "
            f"{show.duration(summary['elapsed'])}"
        )
    if summary["dead"]:
        how_many = "all" if not stored else show.number(summary["dead"])
        show.note(
            f"warning: {how_many} of {show.counted(stored + summary['dead'], 'message')} became "
            "dead letters, which wait in the database: orbweb ledger dead, with the same --to"
        )
    return int(summary["exit_code"])


def _refuse_contradictions(plan: ConsumePlan) -> None:
    if plan.topic is not None and plan.stream is not None:
        raise ConfigError("--topic names a Kafka topic and --stream a stream: keep one")
    if plan.brokers is not None and plan.topic is None:
        raise ConfigError("--brokers goes with --topic")
    if not 0 < len(plan.group) <= LONGEST_GROUP:
        raise ConfigError(f"--group has 1 to {LONGEST_GROUP} characters")
    if plan.retry_dead and (plan.topic or plan.stream or plan.from_beginning):
        raise ConfigError("--retry-dead reads the database and nothing else")
    if plan.retry_dead and plan.workers > 1:
        raise ConfigError("--retry-dead is the work of one process: leave -w out")
