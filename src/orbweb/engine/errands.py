"""Errands: what a node does for a task itself. It has its requests made, and its end told."""

from __future__ import annotations

from typing import Any, Protocol

from orbweb.engine.callbacks import Callbacks, Flush
from orbweb.engine.outputs import Outputs
from orbweb.errors import OrbwebError
from orbweb.frontier.base import Lease
from orbweb.frontier.tasks import unpack_end, unpack_task
from orbweb.model.reasons import Reason
from orbweb.model.request import Request


class TaskWorker(Protocol):
    """What the engine calls of a spider for a task. `TaskSpider` documents each."""

    def task_requests(self, task: Any) -> Any: ...
    def task_ended(self, uid: str, task: Any, reason: str) -> Any: ...


class BadErrandError(OrbwebError):
    """The stored task is none that this version can read: keep it as a dead letter."""


class Errands:
    """Does the errand that a lease of `TASKS_HOST` stands for."""

    def __init__(self, worker: TaskWorker, callbacks: Callbacks) -> None:
        self._worker = worker
        self._callbacks = callbacks

    async def run(self, lease: Lease, outputs: Outputs, flush: Flush) -> Reason:
        """Call the spider and collect what it yields; returns how the errand has ended.

        Raises `BadErrandError`, and what the spider raises.
        """
        uid, _, what = lease.id.replace("@", ".").partition(".")
        try:
            if what == "end":
                end = unpack_end(uid, lease.payload)
            else:
                task = unpack_task(lease.payload)
        except ValueError as error:
            raise BadErrandError(f"task {uid} cannot be read: {error}") from error
        if what == "end":
            await self._callbacks.collect(self._worker.task_ended, tuple(end), {}, outputs, flush)
            return Reason.TASK_TOLD
        await self._callbacks.collect(self._worker.task_requests, (task,), {}, outputs, flush)
        return Reason.TASK_STARTED


def parent_of(lease: Lease) -> Request:
    """The request that an errand stands for, as the parent of what it yields."""
    request = Request(f"http://tasks.invalid/{lease.id}")
    request.id = lease.id
    request.depth = -1
    return request
