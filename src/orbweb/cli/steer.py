"""What `stop` and `reset` do to a run."""

from __future__ import annotations

import asyncio

from orbweb.cli import show
from orbweb.cli.acts import user_name
from orbweb.cli.store import ask
from orbweb.cli.watch import go_on, living, meant_run, refuse_unclear_run, run_name, unfinished
from orbweb.errors import ConfigError
from orbweb.frontier.admin import Admin, NodeInfo, RunInfo
from orbweb.frontier.base import RunState, Status
from orbweb.frontier.operator import Author
from orbweb.model.reasons import Reason
from orbweb.settings import Settings


def stop(settings: Settings, job: str, run: str | None) -> None:
    """Ask all nodes of a run to stop; what waits stays."""

    async def act(admin: Admin) -> None:
        info = await meant_run(admin, job, run, unfinished=True)
        nodes = await admin.nodes(info)
        if info.status.state is RunState.DONE:
            print(f"{job} · run {run_name(info.run)} has ended already: nothing was done")
            return
        await admin.stop(info)
        asked, waiting = show.counted(len(living(nodes)), "node"), unfinished(info.status)
        if not waiting and not info.status.seeding:
            print(f"{asked} asked to stop; nothing waits, so the run ends")
            return
        print(f"{asked} asked to stop; {show.counted(waiting, 'request')} kept")
        show.note(f"undo: {go_on(info)}")

    ask(settings, act)


def reset(settings: Settings, job: str, run: str | None, *, seen: bool, yes: bool) -> None:
    """Forget a run, with `seen` also what its job has seen, after a question."""

    async def act(admin: Admin) -> None:
        info = await _find(admin, job, run, seen)
        working = living(await admin.nodes(info)) if info.epoch else []
        if not await asyncio.to_thread(show.agree, _question(info, working, seen), yes):
            print("nothing was done")
            return
        await admin.reset(info, seen=seen, author=Author(user_name()))
        while (await admin.collect())[0]:
            pass
        print(f"{job} · run {run_name(info.run)} is forgotten; this cannot be undone")
        if not seen and not info.run:
            show.note(
                "the URLs that the job has seen are kept, so the next start crawls only new ones; "
                f"to crawl all again: orbweb reset {job} --seen"
            )

    ask(settings, act)


async def _find(admin: Admin, job: str, run: str | None, seen: bool) -> RunInfo:
    await refuse_unclear_run(admin, job, run)
    try:
        return await admin.find(job, run)
    except ConfigError:
        if not seen:
            raise
        return RunInfo(job, run or "", "", Status(RunState.DONE))


def _question(info: RunInfo, working: list[NodeInfo], seen: bool) -> str:
    counts = info.status
    lost = (
        f"{show.counted(unfinished(counts), 'waiting request')}, "
        f"{show.counted(counts.dead, 'failed request')}, "
        f"the record of {show.counted(counts.reasons.get(Reason.DONE, 0), 'page')}"
    )
    also = " and which URLs the job has ever seen" if seen else ""
    harm = (
        f" {show.counted(len(working), 'node')} still at work will end with an error."
        if working
        else ""
    )
    return f"Forget {info.job} · run {run_name(info.run)}: {lost}{also}?{harm}"
