"""The frontier in one process: `AirSpider` runs on it, and the Lua is tested against it."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orbweb.errors import RunLost
from orbweb.frontier.base import (
    HOLD_ID,
    SEED_ID,
    Ack,
    Claim,
    Held,
    Lease,
    Nack,
    NackResult,
    NewRequest,
    Opened,
    RunConfig,
    RunState,
    SeedCode,
    SeedReply,
    Status,
    clock_step_ms,
)
from orbweb.frontier.memory_state import NO_LIMIT, Buried, MemoryShard, Place, Run, Task
from orbweb.model.reasons import Reason

SHARD_STEP_MS = 1000
RIVAL_MS = 1000
COURTESY_MS = 20


@dataclass(slots=True)
class Asking:
    """A node that claims: how many others of its run want more, and if it left them some."""

    node: str
    rivals: int
    courteous: bool = False


class MemoryFrontier:
    """See `Frontier` and `RunControl`. Never suspends: each call is one step for asyncio too."""

    def __init__(self, shard: MemoryShard, job: str = "job", run: str = "") -> None:
        self.shard = shard
        self.job = job
        self.run_id = run
        self._base = ""
        self._now = 0
        self._host_now = 0
        self._wall = 0

    # -- the run and its clocks

    def _run(self) -> Run:
        run = self.shard.runs.get(self._base)
        if run is None:
            raise RunLost(
                f"run {self.job}/{self.run_id or 'default'} is not in the frontier any more"
            )
        return run

    def _begin(self) -> Run:
        run = self._run()
        self._wall = self.shard.now_ms()
        self._now = run.clock.tick(self._wall, clock_step_ms(run.config))
        self._host_now = self.shard.clock.tick(self._wall, SHARD_STEP_MS)
        return run

    def _finish(self, run: Run) -> None:
        if run.state is RunState.RUNNING and not run.tasks:
            run.state = RunState.DONE
            run.finished = self._wall

    def _reopen(self, run: Run) -> None:
        if run.state is RunState.DONE:
            run.state = RunState.RUNNING
            run.finished = 0

    async def open(self, config: RunConfig) -> Opened:
        wall = self.shard.now_ms()
        name = (self.job, self.run_id)
        epoch = self.shard.current.get(name, "")
        found = self.shard.runs.get(self._base_of(epoch))
        if (
            found
            and found.state is RunState.DONE
            and wall - found.finished > config.finished_ttl_ms
        ):
            del self.shard.runs[found.base]
            found = None
        state = found.state if found else RunState.NEW
        if found is None:
            epoch = self.shard.new_epoch()
            found = Run(self._base_of(epoch), wall)
            self.shard.runs[found.base] = found
        found.config = config
        spider_wide = config.dedup_scope == "spider"
        found.seen = (
            self.shard.job_seen.setdefault(self.job, set()) if spider_wide else found.own_seen
        )
        found.stopping = False
        self.shard.current[name] = epoch
        self._base = found.base
        self._begin()
        if config.keep_alive:
            found.tasks[HOLD_ID] = Task(HOLD_ID, 0, None, place=Place.IDLE)
            self._reopen(found)
        return Opened(state, epoch, self._status(found))

    def _base_of(self, epoch: str) -> str:
        return f"{self.job}:{self.run_id}:{epoch}"

    # -- pieces of the transitions

    def _enqueue(self, run: Run, id: str, task: Task) -> None:
        run.seq += 1
        task.place, task.order, task.token = Place.QUEUED, run.seq, ""
        heapq.heappush(run.queues.setdefault(task.host, []), (task.priority, run.seq, id))
        if task.host not in run.ready:
            run.ready.set(task.host, self._host_now)

    def _push(self, run: Run, request: NewRequest) -> bool:
        id, host, priority, fingerprint, payload = request
        if (fingerprint is not None and not self._is_free(run, request)) or id in run.tasks:
            run.reasons[Reason.DUPLICATE_REQUEST] += 1
            return False
        task = Task(host, priority, payload)
        run.tasks[id] = task
        self._enqueue(run, id, task)
        if fingerprint is not None:
            run.seen.add(fingerprint)
        return True

    def _is_free(self, run: Run, request: NewRequest) -> bool:
        """Whether a page may enter. See `is_free` in `shard.lua`."""
        fingerprint = request.fingerprint
        if fingerprint is None or fingerprint not in run.seen:
            return True
        owner = run.visited.get(fingerprint)
        if owner is None:
            return False
        if owner in run.tasks:
            run.parked.setdefault(fingerprint, request)
            return False
        del run.visited[fingerprint]
        return True

    def _end_visits(self, run: Run, id: str, died: bool) -> None:
        """The fate of a request whose redirects took pages. See `end_visits` in `shard.lua`."""
        for fingerprint in run.visits.pop(id, ()):
            link = run.parked.pop(fingerprint, None)
            if link and died and link.id not in run.tasks:
                task = Task(link.host, link.priority, link.payload)
                run.tasks[link.id] = task
                self._enqueue(run, link.id, task)
            if link or not died:
                run.visited.pop(fingerprint, None)

    def _owned(self, run: Run, id: str, token: str) -> Task | None:
        task = run.tasks.get(id)
        return task if task and task.place is Place.LEASED and task.token == token else None

    def _unlease(self, run: Run, id: str, task: Task) -> None:
        task.place, task.token = Place.IDLE, ""
        run.deadline.drop(id)

    def _free_slot(self, run: Run, id: str, token: str, host: str) -> None:
        slots = self.shard.slots.get(host, {})
        if slots.pop(f"{run.base} {id} {token}", None) is None:
            return
        if not slots:
            del self.shard.slots[host]
        at = self._host_now
        if run.delay > 0:
            at = max(at + run.delay, self.shard.next_allowed.at.get(host, 0))
            self.shard.next_allowed.set(host, at)
        for base in self.shard.waiting.get(host, ()):
            waiter = self.shard.runs.get(base)
            if waiter and host in waiter.ready:
                waiter.ready.set(host, at)

    def _bury(self, run: Run, id: str, task: Task, tries: int, reason: str, error: str) -> None:
        run.dead[id] = Buried(task, str(reason), error, tries, self._wall)
        run.reasons[str(reason)] += 1

    def _forget(self, run: Run, id: str) -> None:
        run.tasks.pop(id, None)
        run.expired.pop(id, None)

    def _reap(self, run: Run, limit: int = 100) -> None:
        for id in run.deadline.due(self._now, limit):
            task, token = run.tasks[id], run.tasks[id].token
            self._unlease(run, id, task)
            run.counters["reaped"] += 1
            if id == SEED_ID:
                continue
            if run.delay == 0:
                self._free_slot(run, id, token, task.host)
            deliveries = run.expired[id] = run.expired.get(id, 0) + 1
            if deliveries >= run.config.max_deliveries:
                text = f"handed out {deliveries} times, never answered"
                self._bury(run, id, task, task.retries + deliveries, Reason.POISON, text)
                self._end_visits(run, id, died=True)
                self._forget(run, id)
            else:
                self._enqueue(run, id, task)
        for id in run.delayed.due(self._now, limit):
            run.delayed.drop(id)
            self._enqueue(run, id, run.tasks[id])

    # -- claim

    def _look_at(self, run: Run, host: str, asking: Asking) -> tuple[int | None, int]:
        """When the host is allowed again, or None and how many fetches the node may start now."""
        next_at = self.shard.next_allowed.at.get(host, 0)
        if next_at > self._host_now:
            return next_at, 0
        slots = self.shard.slots.get(host, {})
        for member in [m for m, end in slots.items() if end <= self._host_now]:
            del slots[member]
        free = for_node = run.concurrency - len(slots)
        if free > 0:
            free, for_node = self._fair(run, host, free, asking)
        if free > 0:
            return None, min(1, for_node) if run.delay > 0 else for_node
        waiting = self.shard.waiting.setdefault(host, {})
        for base in [b for b, at in waiting.items() if at <= self._host_now - 30 * RIVAL_MS]:
            del waiting[base]
        waiting[run.base] = self._host_now
        return min(slots.values()), 0

    def _fair(self, run: Run, host: str, free: int, asking: Asking) -> tuple[int, int]:
        """What of `free` slots the run and the node may take. See `fair` in `claim.lua`."""
        waiting = self.shard.waiting.get(host, {})
        since = self._host_now - RIVAL_MS
        runs = sum(at >= since and base != run.base for base, at in waiting.items())
        if run.concurrency >= NO_LIMIT or runs + asking.rivals == 0:
            return free, free
        mine = [m for m in self.shard.slots.get(host, ()) if m.startswith(f"{run.base} ")]
        of_node = sum(f" {asking.node}:" in member for member in mine)
        share = -(-run.concurrency // (runs + 1))
        for_run = min(free, share - len(mine))
        return for_run, min(for_run, -(-share // (asking.rivals + 1)) - of_node)

    def _lease_from(
        self, run: Run, host: str, most: int, token: str, lease_ms: int
    ) -> Iterator[str]:
        queue = run.queues[host]
        for _ in range(min(most, len(queue))):
            _, _, id = heapq.heappop(queue)
            task = run.tasks[id]
            task.place, task.token = Place.LEASED, token
            run.deadline.set(id, self._now + lease_ms)
            slots = self.shard.slots.setdefault(host, {})
            slots[f"{run.base} {id} {token}"] = self._host_now + run.config.fetch_timeout_ms
            yield id

    def _take(self, run: Run, want: int, token: str, lease_ms: int, asking: Asking) -> list[str]:
        taken: list[str] = []
        for host in run.ready.due(self._host_now, want + 20):
            wanted = want - len(taken)
            if wanted <= 0:
                break
            allowed_at, free = self._look_at(run, host, asking)
            if allowed_at is None and free <= 0:
                asking.courteous = True
            elif allowed_at is None:
                taken += self._lease_from(run, host, min(wanted, free), token, lease_ms)
                if run.delay > 0:
                    self.shard.next_allowed.set(host, self._host_now + run.delay)
                if not run.queues[host]:
                    del run.queues[host]
                    run.ready.drop(host)
                    self.shard.waiting.get(host, {}).pop(run.base, None)
                    continue
                allowed_at = self._look_at(run, host, asking)[0]
            run.ready.set(host, self._host_now if allowed_at is None else allowed_at)
        if len(taken) < want:
            run.hungry[asking.node] = self._now
        else:
            run.hungry.pop(asking.node, None)
        return taken

    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        run = self._begin()
        self._reap(run)
        token = f"{node}:{seq}"
        last, held = run.claims.get(node, (0, []))
        for other in [n for n, at in run.hungry.items() if at <= self._now - RIVAL_MS]:
            del run.hungry[other]
        asking = Asking(node, len(run.hungry) - (node in run.hungry))
        ids: list[str] = []
        if seq == last:
            ids = [id for id in held if self._owned(run, id, token)]
            for id in ids:
                run.deadline.set(id, self._now + lease_ms)
        elif seq > last:
            ids = self._take(run, want, token, lease_ms, asking)
            run.claims[node] = (seq, list(ids))
        self._finish(run)
        leases = tuple(self._lease(run, id, token) for id in ids)
        wait = COURTESY_MS if asking.courteous else self._wait_ms(run)
        wait = -1 if leases else wait
        return Claim(leases, run.state, len(run.tasks), wait, run.stopping, self._wall)

    def _lease(self, run: Run, id: str, token: str) -> Lease:
        task = run.tasks[id]
        deliveries = run.expired.get(id, 0) + 1
        return Lease(id, token, task.host, task.priority, task.retries, deliveries, task.payload)

    def _wait_ms(self, run: Run) -> int:
        step = clock_step_ms(run.config)
        looks = (
            (run.ready.first(), self._host_now, SHARD_STEP_MS),
            (run.delayed.first(), self._now, step),
            (run.deadline.first(), self._now, step),
        )
        waits = (max(0, min(at - clock, step)) for at, clock, step in looks if at is not None)
        return min(waits, default=-1)

    # -- what a holder of leases does

    async def renew(
        self, node: str, lease_ms: int, held: Sequence[Held], beat: bytes = b""
    ) -> tuple[list[Held], bool]:
        run = self._begin()
        lost = []
        for id, token in held:
            if self._owned(run, id, token):
                run.deadline.set(id, self._now + lease_ms)
            else:
                lost.append(Held(id, token))
        run.nodes.set(node, self._now)
        if beat:
            run.beats[node] = (self._wall, beat)
        for silent in run.nodes.due(self._now - 20 * lease_ms, 20):
            run.nodes.drop(silent)
            run.beats.pop(silent, None)
            run.claims.pop(silent, None)
        for host in self.shard.next_allowed.due(self._host_now, 500):
            self.shard.next_allowed.drop(host)
        return lost, run.stopping

    async def fetched(self, held: Sequence[Held]) -> None:
        run = self._begin()
        for id, token in held:
            task = self._owned(run, id, token)
            if task:
                self._free_slot(run, id, token, task.host)

    async def ack(self, acks: Sequence[Ack]) -> list[bool]:
        run = self._begin()
        answer = []
        for ack in acks:
            task = self._owned(run, ack.id, ack.token)
            if ack.emitted and run.emitted.get(ack.id) != (ack.token, ack.emitted):
                task = None
            answer.append(task is not None)
            if task is None:
                run.counters["fenced"] += 1
                continue
            for child in ack.children:
                self._push(run, child)
            self._end_visits(run, ack.id, died=bool(ack.error))
            self._forget(run, ack.id)
            self._unlease(run, ack.id, task)
            if ack.error:
                self._bury(run, ack.id, task, task.retries + 1, ack.reason, ack.error)
            else:
                run.reasons[str(ack.reason)] += 1
            self._free_slot(run, ack.id, ack.token, task.host)
            if ack.emitted:
                del run.emitted[ack.id]
            for reason, number in ack.skipped:
                run.reasons[str(reason)] += number
            run.counters["items"] += ack.items
        self._finish(run)
        return answer

    async def emit(self, id: str, token: str, step: int, children: Sequence[NewRequest]) -> bool:
        run = self._begin()
        if not self._owned(run, id, token):
            return False
        by, last = run.emitted.get(id, ("", 0))
        last = last if by == token else 0
        if step == last + 1:
            for child in children:
                self._push(run, child)
            run.emitted[id] = (token, step)
        return step <= last + 1

    async def nack(self, nacks: Sequence[Nack]) -> list[NackResult]:
        run = self._begin()
        answer = [self._give_back(run, nack) for nack in nacks]
        self._finish(run)
        return answer

    def _give_back(self, run: Run, nack: Nack) -> NackResult:
        task = self._owned(run, nack.id, nack.token)
        if task is None:
            run.counters["fenced"] += 1
            return NackResult.LOST
        if nack.id == SEED_ID:
            self._unlease(run, nack.id, task)
            return NackResult.REQUEUED
        if nack.payload is not None:
            task.payload = nack.payload
        counted = nack.counted or nack.fatal
        if counted:
            task.retries += 1
            run.expired.pop(nack.id, None)
        self._unlease(run, nack.id, task)
        if nack.fatal or (counted and task.retries > run.config.max_retries):
            self._bury(run, nack.id, task, task.retries, nack.reason, nack.error)
            self._end_visits(run, nack.id, died=True)
            self._forget(run, nack.id)
            result = NackResult.DEAD
        else:
            run.counters["retried"] += counted
            if nack.backoff_ms > 0:
                task.place = Place.DELAYED
                run.delayed.set(nack.id, self._now + nack.backoff_ms)
            else:
                self._enqueue(run, nack.id, task)
            result = NackResult.REQUEUED
        self._free_slot(run, nack.id, nack.token, task.host)
        return result

    async def hold_off(self, pauses: Sequence[tuple[str, int]]) -> None:
        self._begin()
        for host, ms in pauses:
            at = max(self._host_now + ms, self.shard.next_allowed.at.get(host, 0))
            self.shard.next_allowed.set(host, at)

    async def visit(self, id: str, token: str, fingerprint: int) -> bool | None:
        run = self._begin()
        if not self._owned(run, id, token):
            return None
        if fingerprint in run.seen:
            owner = run.visited.get(fingerprint)
            if owner is None or (owner != id and owner in run.tasks):
                return False
        visits = run.visits.setdefault(id, [])
        if fingerprint not in visits:
            visits.append(fingerprint)
        run.visited[fingerprint] = id
        run.seen.add(fingerprint)
        return True

    async def recover(self) -> int:
        self._begin()
        return 0

    # -- seeding and control

    async def seed_claim(self, node: str, seq: int, lease_ms: int) -> SeedReply:
        run = self._begin()
        self._reap(run)
        self._finish(run)
        token = f"{node}:{seq}"
        seed = run.tasks.get(SEED_ID)
        if seed is None:
            return SeedReply(SeedCode.DONE, run.cursor)
        if seed.place is Place.LEASED and seed.token != token:
            return SeedReply(SeedCode.BUSY, run.cursor)
        seed.place, seed.token = Place.LEASED, token
        run.deadline.set(SEED_ID, self._now + lease_ms)
        return SeedReply(SeedCode.OK, run.cursor, token)

    async def seed_push(
        self, token: str, batch: int, final: bool, requests: Sequence[NewRequest]
    ) -> SeedReply:
        run = self._begin()
        seed = self._owned(run, SEED_ID, token)
        if seed is None:
            return SeedReply(SeedCode.STALE, run.cursor)
        if batch != run.cursor + 1:
            code = SeedCode.DUPLICATE if batch <= run.cursor else SeedCode.GAP
            return SeedReply(code, run.cursor)
        added = sum(self._push(run, request) for request in requests)
        run.cursor = batch
        if final:
            self._forget(run, SEED_ID)
            self._unlease(run, SEED_ID, seed)
        self._finish(run)
        return SeedReply(SeedCode.OK, batch, "", added)

    async def add(self, requests: Sequence[NewRequest]) -> int:
        run = self._begin()
        added = sum(self._push(run, request) for request in requests)
        if added:
            self._reopen(run)
        self._finish(run)
        return added

    async def redrive(self, ids: Sequence[str], *, drop: bool = False) -> int:
        """Let dead letters return to their queues, or drop them; returns how many were found."""
        run = self._begin()
        found = 0
        for id in ids:
            buried = run.dead.pop(id, None)
            if buried is None:
                continue
            found += 1
            if not drop and id not in run.tasks:
                task = Task(buried.task.host, buried.task.priority, buried.task.payload)
                run.tasks[id] = task
                self._enqueue(run, id, task)
                self._reopen(run)
        self._finish(run)
        return found

    async def stop(self) -> None:
        run = self._begin()
        run.stopping = True
        self._forget(run, HOLD_ID)
        self._finish(run)

    async def status(self) -> Status:
        return self._status(self._run())

    def _status(self, run: Run) -> Status:
        count = run.counters
        idle = sum(
            task.place is Place.IDLE
            for task in (run.tasks.get(SEED_ID), run.tasks.get(HOLD_ID))
            if task
        )
        seed = run.tasks.get(SEED_ID)
        return Status(
            state=run.state,
            pending=len(run.tasks),
            queued=len(run.tasks) - len(run.deadline) - len(run.delayed) - idle,
            leased=len(run.deadline) - (seed is not None and seed.place is Place.LEASED),
            delayed=len(run.delayed),
            dead=len(run.dead),
            hosts=len(run.ready),
            items=count["items"],
            retried=count["retried"],
            reaped=count["reaped"],
            fenced=count["fenced"],
            repaired=0,
            seeds=run.cursor,
            seeding=seed is not None,
            hold=HOLD_ID in run.tasks,
            stopping=run.stopping,
            started_at_ms=run.started,
            finished_at_ms=run.finished,
            reasons=dict(run.reasons),
        )

    async def settled(self) -> bool:
        return (await self.status()).state is RunState.DONE
