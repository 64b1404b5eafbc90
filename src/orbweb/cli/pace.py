"""What `limit`, `pause` and `resume` do to a host or a run."""

from __future__ import annotations

from orbweb.cli import show
from orbweb.cli.acts import (
    Asked,
    ends,
    limit_words,
    pause_words,
    read_host,
    read_rate,
    say_undo,
)
from orbweb.cli.store import ask
from orbweb.cli.watch import run_name, unfinished
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin, RunInfo
from orbweb.frontier.base import RunState
from orbweb.frontier.steering import LimitChange
from orbweb.model.rate import rate_text
from orbweb.settings import Settings

OFF = "off"


def limit(settings: Settings, host_text: str, rate: str, asked: Asked) -> None:
    """Set the fastest pace of a host over all nodes and jobs, or take it away."""
    host, for_ms = read_host(host_text), asked.for_ms
    gap = None if rate.strip().lower() == OFF else read_rate(rate)
    if gap is None and for_ms:
        raise ConfigError("--for goes with a rate: `off` takes the limit away at once")

    async def act(admin: Admin) -> None:
        known = await admin.hosts.knows(host)
        change = await admin.hosts.limit(host, gap, asked.author, for_ms)
        if change.before is None and change.after is None:
            print(f"{host} has no limit: nothing was done")
            return
        print(f"{host}: {_limit_change(change)}")
        if change.clamped and gap is not None and change.after:
            show.note(
                f"{rate_text(gap)} is above the approved {rate_text(change.after.gap_ms)}, which "
                f"holds; to have more approved: orbweb rates request {host} {rate_text(gap)}"
            )
        row = await admin.hosts.look(host)
        if row.gap.ms > (change.after.gap_ms if change.after else 0):
            show.note(f"it is fetched at {row.gap.rate} at most: {row.gap.text}")
        _say_unknown(host, known=known)
        say_undo(asked, limit_words(host, change.before, change.at_ms))

    ask(settings, act)


def pause(settings: Settings, target: Target, asked: Asked, *, go_on: bool) -> None:
    """Hold a host or a run, or let it go on."""
    for_ms = asked.for_ms

    async def act(admin: Admin) -> None:
        found = await target.find(admin)
        if isinstance(found, RunInfo):
            await _pause_run(admin, found, asked, for_ms, go_on=go_on)
        else:
            await _pause_host(admin, found, asked, for_ms, go_on=go_on)

    ask(settings, act)


class Target:
    """The host or the job that a name means."""

    def __init__(self, name: str, *, as_host: bool, as_job: bool, run: str | None) -> None:
        if as_host and (as_job or run is not None):
            raise ConfigError("--host and --job (or --run-id) exclude each other")
        self._name = name
        self._as_host = as_host
        self._as_job = as_job or run is not None
        self._run = run

    async def find(self, admin: Admin) -> RunInfo | str:
        """The run or the host; `ConfigError` when the name could mean both, or neither."""
        name = self._name
        if self._as_host:
            return read_host(name)
        jobs = sorted({info.job for info in await admin.runs()})
        host = None if self._as_job else _maybe_host(name)
        if name not in jobs and host is not None and _looks_like_host(name):
            return host
        if host is not None and await admin.hosts.knows(host):
            if name in jobs:
                raise ConfigError(f"{name} is a job and a host: say which with --job or --host")
            return host
        if name in jobs or self._as_job:
            return await admin.find(name, self._run, unfinished=True)
        raise ConfigError(
            f"{name!r} is neither a job nor a host of this store; jobs there: "
            f"{', '.join(jobs) or 'none'}; a host that is not known yet needs --host"
        )


async def _pause_host(admin: Admin, host: str, asked: Asked, for_ms: int, *, go_on: bool) -> None:
    known = await admin.hosts.knows(host)
    if go_on:
        change = await admin.hosts.resume(host, asked.author)
    else:
        change = await admin.hosts.pause(host, asked.author, for_ms)
    if change.before is None and change.after is None:
        print(f"{host} is not paused: nothing was done")
        return
    row = await admin.hosts.look(host)
    waiting = show.counted(row.waiting, "request")
    if change.after:
        print(f"{host}: paused {_pause_end(change.after.until_ms, change.at_ms)}; {waiting} wait")
    else:
        print(f"{host}: goes on; {waiting} wait")
    _say_unknown(host, known=known)
    target = [host, *(() if _looks_like_host(host) else ("--host",))]
    say_undo(asked, pause_words(target, change.before, change.at_ms))


async def _pause_run(
    admin: Admin, info: RunInfo, asked: Asked, for_ms: int, *, go_on: bool
) -> None:
    title = f"{info.job} · run {run_name(info.run)}"
    if info.status.state is RunState.DONE:
        print(f"{title} has ended already: nothing was done")
        return
    run = (info.job, info.run, info.epoch)
    if go_on:
        change = await admin.hosts.resume_run(*run, asked.author)
    else:
        change = await admin.hosts.pause_run(*run, asked.author, for_ms)
    if change.before is None and change.after is None:
        print(f"{title} is not paused: nothing was done")
        return
    waiting = show.counted(unfinished(info.status), "request")
    if change.after:
        print(f"{title}: paused {_pause_end(change.after.until_ms, change.at_ms)}; {waiting} kept")
    else:
        print(f"{title}: goes on; {waiting} wait")
    target = [info.job, "--job", *(("--run-id", info.run) if info.run else ())]
    say_undo(asked, pause_words(target, change.before, change.at_ms))


def _limit_change(change: LimitChange) -> str:
    before = rate_text(change.before.gap_ms) if change.before else "no limit"
    if change.after is None:
        return f"{before} → no limit"
    end = f", {ends(change.after.until_ms, change.at_ms)}" if change.after.until_ms else ""
    return f"{before} → {rate_text(change.after.gap_ms)}{end}"


def _pause_end(until_ms: int, at_ms: int) -> str:
    return ends(until_ms, at_ms) if until_ms else "until it is resumed"


def _say_unknown(host: str, *, known: bool) -> None:
    if not known:
        show.note(f"nothing is queued for {host}; it holds as soon as something is")


def _looks_like_host(name: str) -> bool:
    return any(sign in name for sign in ".:/")


def _maybe_host(name: str) -> str | None:
    try:
        return read_host(name)
    except ConfigError:
        return None
