"""The frontier in one process: `AirSpider` runs on it, and the Lua is tested against it."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from orbweb.errors import RunLost
from orbweb.frontier.base import (
    HOLD_ID,
    SEED_ID,
    SLACK_MS,
    TASKS_HOST,
    TUNED,
    Ack,
    Claim,
    Held,
    Lease,
    Nack,
    NackResult,
    NewRequest,
    Opened,
    Permit,
    PermitCode,
    RunConfig,
    RunState,
    SeedCode,
    SeedReply,
    SettledTask,
    Signal,
    Status,
    TaskLook,
    TaskVerdict,
    Tuning,
    clock_step_ms,
    wrong_shards,
)
from orbweb.frontier.memory_hosts import (
    GRACE_MS,
    LATEST_MS,
    LOOK_AHEAD_MS,
    NO_LIMIT,
    SPARE_MS,
    Weighed,
)
from orbweb.frontier.memory_hosts import mark as name_of
from orbweb.frontier.memory_seen import Seen
from orbweb.frontier.memory_state import Buried, MemoryShard, Place, Run, Task
from orbweb.frontier.memory_turns import RIVAL_MS, Turns
from orbweb.frontier.seen import other_kind
from orbweb.frontier.tasks import TASK_PRIORITY, adopted, task_of
from orbweb.model.reasons import Reason

SHARD_STEP_MS = 1000
COURTESY_MS = 20
MOST_SCANNED = 256
END_PRIORITY = 0


@dataclass(slots=True)
class Asking:
    """One claim at work: what it wants, what it has got, and whose turn it is."""

    turns: Turns
    want: int
    token: str
    lease_ms: int
    leases: list[Lease] = field(default_factory=list)
    courteous: bool = False
    errands: int = 0
    """Of what is handed out: tasks, which are no fetches."""

    @property
    def wanted(self) -> int:
        return self.want - len(self.leases)


class MemoryFrontier:
    """See `Frontier` and `RunControl`. Never suspends: each call is one step for asyncio too."""

    def __init__(
        self, shard: MemoryShard, job: str = "job", run: str = "", *, shards: int = 1
    ) -> None:
        """`shards`: over how many the run is spread. See `ShardControl`."""
        self.shard = shard
        self.shards = shards
        self.job = job
        self.run_id = run
        self._base = ""
        self._now = 0
        self._wall = 0
        self._hosts = shard.hosts

    # -- the run and its clocks

    def _run(self) -> Run:
        run = self.shard.runs.get(self._base)
        if run is None:
            raise self._lost()
        return run

    @property
    def seen(self) -> Seen:
        """What the run has seen."""
        return self._run().seen

    def _lost(self) -> RunLost:
        return RunLost(f"run {self.job}/{self.run_id or 'default'} is not in the frontier any more")

    def attach(self, epoch: str) -> None:
        """Work on this incarnation of the run without opening it (a node's second connection)."""
        self._base = self._base_of(epoch)

    def _begin(self) -> Run:
        run = self._run()
        self._wall = self.shard.now_ms()
        self._now = run.clock.tick(self._wall, clock_step_ms(run.config))
        self._hosts.wall = self._wall
        self._hosts.now = self._hosts.clock.tick(self._wall, SHARD_STEP_MS)
        return run

    def _speak(self, run: Run) -> None:
        self._hosts.pace[run.base] = (run, self._hosts.now)

    def _finish(self, run: Run) -> None:
        self._end_tasks(run)
        if run.shards == 1 and run.state is RunState.RUNNING and not run.tasks:
            self._mark_done(run)

    def _mark_done(self, run: Run) -> None:
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
        found, old = self.shard.runs.get(self._base_of(epoch)), None
        if (
            found
            and found.state is RunState.DONE
            and wall - found.finished > config.finished_ttl_ms
        ):
            old, found = found, None
            wall = max(wall, old.started + 1)
        state = found.state if found else RunState.NEW
        if found is None:
            epoch = self.shard.new_epoch()
        run = self._join(found, epoch, wall, config)
        if old:
            self.shard.forget(old.base)
        if found is None:
            run.tasks[SEED_ID] = Task(SEED_ID, 0, None, place=Place.IDLE)
            run.laid = None if run.shards == 1 else False
        wakes = config.polls and SEED_ID not in run.tasks
        if wakes:
            run.tasks[SEED_ID] = Task(SEED_ID, 0, None, place=Place.IDLE)
        if config.keep_alive:
            run.tasks[HOLD_ID] = Task(HOLD_ID, 0, None, place=Place.IDLE)
        if wakes or config.keep_alive:
            run.seq += 1
            self._reopen(run)
        return Opened(state, epoch, self._status(run), run.laid is not False)

    async def tune(self, tuning: Tuning) -> bool:
        """See `Tunable`."""
        run = self._run()
        if run.tuned > tuning.version:
            return False
        wanted = tuning.config
        if not tuning.repeats:
            run.tuned = tuning.version
            run.config = replace(run.config, **{name: getattr(wanted, name) for name in TUNED})
        self._begin()
        self._speak(run)
        self._hosts.tune(run, tuning)
        return True

    async def open_part(self, config: RunConfig, whole: Opened) -> None:
        name, started = (self.job, self.run_id), whole.status.started_at_ms
        found = self.shard.runs.get(self._base_of(self.shard.current.get(name, "")))
        if found and found.base != self._base_of(whole.epoch):
            if found.started >= started:
                raise self._lost()
            found = None
        if found is None and whole.laid:
            raise self._lost()
        old = self.shard.current.get(name)
        self._join(found, whole.epoch, started, config)
        if old not in (None, whole.epoch):
            self.shard.forget(self._base_of(old))

    def _join(self, found: Run | None, epoch: str, started: int, config: RunConfig) -> Run:
        """Make the run in this shard if it is not `found`, and take its settings from `config`."""
        self._check_kind(found, config)
        spider_wide = config.dedup_scope == "spider"
        known = self.shard.job_shards.get(self.job) if spider_wide else None
        spread_over = found.shards if found else known
        if spread_over is not None and spread_over != self.shards:
            raise wrong_shards(spread_over, self.shards)
        if found is None:
            found = Run(self._base_of(epoch), started)
            found.shards = self.shards
            self.shard.runs[found.base] = found
        found.config = config
        found.seen = self._open_seen(found, config, self.shard.now_ms())
        if spider_wide:
            self.shard.job_shards[self.job] = self.shards
        found.stopping = False
        self.shard.current[self.job, self.run_id] = epoch
        self._base = found.base
        run = self._begin()
        self._speak(run)
        return run

    def _check_kind(self, run: Run | None, config: RunConfig) -> None:
        wanted, shared = config.seen.kind, self.shard.job_seen.get(self.job)
        if run and run.config.seen.kind is not wanted:
            raise other_kind("run", self.job, run.config.seen.kind, wanted)
        if config.dedup_scope != "spider" or shared is None:
            return
        if shared.config.kind is not wanted:
            raise other_kind("job", self.job, shared.config.kind, wanted)

    def _open_seen(self, run: Run, config: RunConfig, wall: int) -> Seen:
        if config.dedup_scope == "spider":
            if self.job not in self.shard.job_seen:
                self.shard.job_seen[self.job] = Seen(config.seen, wall)
            return self.shard.job_seen[self.job]
        if run.own_seen is None:
            run.own_seen = Seen(config.seen, wall)
        return run.own_seen

    def _base_of(self, epoch: str) -> str:
        return f"{self.job}:{self.run_id}:{epoch}"

    # -- pieces of the transitions

    def _enqueue(self, run: Run, id: str, task: Task) -> None:
        run.seq += 1
        task.place, task.order, task.token = Place.QUEUED, run.seq, ""
        heapq.heappush(run.queues.setdefault(task.host, []), (task.priority, run.seq, id))
        if task.host not in run.ready:
            run.ready.set(task.host, self._hosts.now)

    def _push(self, run: Run, request: NewRequest) -> bool:
        if request.shard is not None:
            return self._send(run, request)
        id, host, priority, fingerprint, payload, sure, _ = request
        is_task = host == TASKS_HOST
        if (
            (fingerprint is not None and not self._is_free(run, request))
            or id in run.tasks
            or (is_task and self._is_known(run, task_of(id)))
        ):
            run.reasons[Reason.DUPLICATE_REQUEST] += 1
            return False
        task = Task(host, priority, payload)
        self._enter(run, id, task)
        if is_task:
            run.of_tasks.living[task_of(id)] = payload
        if fingerprint is not None and not self._is_seen(run, request):
            run.seen.put(fingerprint, host, sure=sure)
        return True

    def _enter(self, run: Run, id: str, task: Task) -> None:
        """Let a request be pending, of its task too."""
        run.of_tasks.attach(id, run.version)
        run.tasks[id] = task
        self._enqueue(run, id, task)

    def _is_known(self, run: Run, task: str) -> bool:
        """Whether a task is open, or its end was not told yet."""
        return task in run.of_tasks.living or f"{task}@end" in run.tasks

    def _is_seen(self, run: Run, request: NewRequest) -> bool:
        mark = request.fingerprint
        return mark is not None and run.seen.has(mark, request.host, self._wall, sure=request.sure)

    def _in_order(self, requests: Sequence[NewRequest]) -> Sequence[NewRequest]:
        """Those of other shards go to the outbox after the rest has entered."""
        if self.shards == 1:
            return requests
        return sorted(requests, key=lambda request: request.shard is not None)

    def _send(self, run: Run, request: NewRequest) -> bool:
        """Put a request of another shard into the outbox. Never counted as new here."""
        if request not in run.outbox:
            run.of_tasks.attach(request.id, run.version, f"{request.id}>{run.seq + 1}")
            run.seq += 1
            run.outbox[request] = run.seq
        return False

    def _is_free(self, run: Run, request: NewRequest) -> bool:
        """Whether a page may enter. See `is_free` in `shard.lua`."""
        fingerprint = request.fingerprint
        if fingerprint is None or not self._is_seen(run, request):
            return True
        owner = run.visited.get(fingerprint)
        if owner is None:
            return False
        if owner in run.tasks:
            if request.host != TASKS_HOST:
                request = request._replace(id=adopted(request.id, owner))
            run.parked.setdefault(fingerprint, request)
            return False
        del run.visited[fingerprint]
        return True

    def _end_visits(self, run: Run, id: str, died: bool) -> None:
        """The fate of a request whose redirects took pages. See `end_visits` in `shard.lua`."""
        for fingerprint in run.visits.pop(id, ()):
            link = run.parked.pop(fingerprint, None)
            if link and died and link.id not in run.tasks:
                self._enter(run, link.id, Task(link.host, link.priority, link.payload))
            if link or not died:
                run.visited.pop(fingerprint, None)

    def _owned(self, run: Run, id: str, token: str) -> Task | None:
        task = run.tasks.get(id)
        return task if task and task.place is Place.LEASED and task.token == token else None

    def _unlease(self, run: Run, id: str, task: Task) -> None:
        task.place, task.token = Place.IDLE, ""
        run.deadline.drop(id)

    def _free_slot(self, run: Run, id: str, token: str, host: str) -> None:
        slots = self._hosts.slots.get(host, {})
        if slots.pop(f"{run.base} {id} {token}", None) is None:
            return
        if not slots:
            del self._hosts.slots[host]
        at = max(self._hosts.now, self._hosts.next_allowed.at.get(host, 0))
        for base in self._hosts.waiting.get(host, ()):
            waiter = self.shard.runs.get(base)
            if waiter and host in waiter.ready:
                waiter.ready.set(host, at)

    def _bury(
        self, run: Run, held: Held, task: Task, tries: int, reason: str, error: str, answer: bytes
    ) -> None:
        id, token = held
        run.of_tasks.fault(id, self._wall, str(reason))
        node = token.rpartition(":")[0]
        run.dead[id] = Buried(task, str(reason), error, tries, self._wall, node)
        run.responses.pop(id, None)
        if answer and len(run.responses) < run.config.kept_responses:
            run.responses[id] = answer
        run.reasons[str(reason)] += 1

    def _forget(self, run: Run, id: str) -> None:
        run.tasks.pop(id, None)
        run.expired.pop(id, None)
        run.of_tasks.detach(id)

    def _end_tasks(self, run: Run) -> None:
        """End the tasks that have nothing left. See `end_tasks` in `shard.lua`."""
        for task in run.of_tasks.take_left():
            if run.shards > 1:
                run.of_tasks.idle[task] = run.seq
            else:
                self._end_task(run, task, run.of_tasks.fault_of(task))

    def _end_task(self, run: Run, task: str, reason: str) -> None:
        value = run.of_tasks.living.pop(task, None)
        if value is None:
            if not reason:
                run.of_tasks.failed.pop(task, None)
            return
        run.reasons[Reason.TASK_FAILED if reason else Reason.TASK_DONE] += 1
        if run.config.tells_failed if reason else run.config.tells_done:
            id = f"{task}@end"
            if id in run.tasks:
                run.deadline.drop(id)
                run.delayed.drop(id)
                self._leave_queue(run, id)
            run.tasks[id] = Task(TASKS_HOST, END_PRIORITY, reason.encode() + b"\n" + value)
            self._enqueue(run, id, run.tasks[id])
        if reason:
            run.of_tasks.failed[task] = value

    def _leave_queue(self, run: Run, id: str) -> None:
        queue = run.queues.get(TASKS_HOST, [])
        queue[:] = [entry for entry in queue if entry[2] != id]
        heapq.heapify(queue)

    def _reap(self, run: Run, limit: int = 100) -> None:
        for id in run.deadline.due(self._now, limit):
            task, token = run.tasks[id], run.tasks[id].token
            self._unlease(run, id, task)
            run.counters["reaped"] += 1
            if id == SEED_ID:
                continue
            if not self._hosts.has_gap(run, task.host):
                self._free_slot(run, id, token, task.host)
            deliveries = run.expired[id] = run.expired.get(id, 0) + 1
            if deliveries >= run.config.max_deliveries:
                text = f"handed out {deliveries} times, never answered"
                tries = task.retries + deliveries
                self._bury(run, Held(id, token), task, tries, Reason.POISON, text, b"")
                self._end_visits(run, id, died=True)
                self._forget(run, id)
            else:
                self._enqueue(run, id, task)
        for id in run.delayed.due(self._now, limit):
            run.delayed.drop(id)
            self._enqueue(run, id, run.tasks[id])

    # -- claim

    def _contenders(self, run: Run, host: str, gap: float) -> int:
        """Other runs that want the host."""
        if not any(True for _ in self._hosts.others(run)):
            return 0
        since = self._hosts.now - RIVAL_MS - 2 * gap
        waiting = self._hosts.waiting.get(host, {})
        return sum(at >= since and base != run.base for base, at in waiting.items())

    def _fair(
        self, run: Run, host: str, found: Weighed, free: int, turns: Turns
    ) -> tuple[int, int]:
        """What of `free` slots the run and the node may take. See `fair` in `claim.lua`."""
        if found.most >= NO_LIMIT:
            return free, free
        runs = self._contenders(run, host, found.gap)
        if runs + turns.rivals == 0:
            return free, free
        mine = [m for m in self._hosts.slots.get(host, ()) if m.startswith(f"{run.base} ")]
        of_node = sum(f" {turns.me}:" in member for member in mine)
        share = -(-found.most // (runs + 1))
        for_run = min(free, share - len(mine))
        if found.gap > 0:
            return for_run, for_run
        return for_run, min(for_run, -(-share // (turns.rivals + 1)) - of_node)

    def _wait_for(self, run: Run, host: str) -> None:
        waiting = self._hosts.waiting.setdefault(host, {})
        for base in [b for b, at in waiting.items() if at <= self._hosts.now - 30 * RIVAL_MS]:
            del waiting[base]
        waiting[run.base] = self._hosts.now

    def _first_end(self, host: str) -> int:
        return min(self._hosts.slots[host].values())

    def _lease_from(
        self, run: Run, host: str, found: Weighed, limit: int, at: float, asking: Asking
    ) -> int:
        queue, hosts, got = run.queues[host], self._hosts, 0
        while queue and got < limit and (found.gap == 0 or at <= hosts.now + LOOK_AHEAD_MS):
            _, _, id = heapq.heappop(queue)
            task = run.tasks[id]
            task.place, task.token = Place.LEASED, asking.token
            run.deadline.set(id, self._now + asking.lease_ms)
            slots = hosts.slots.setdefault(host, {})
            slots[f"{run.base} {id} {asking.token}"] = hosts.now + run.config.fetch_timeout_ms
            start, reserved = 0, 0
            if found.gap > 0:
                start = math.ceil(at - hosts.now)
                at = hosts.reserve(run, host, found, at)
                reserved = name_of(at)
            asking.leases.append(self._lease(run, id, asking.token, start, reserved))
            got += 1
        hosts.note_taken(run, host, found, got)
        asking.turns.note_weight(host)
        return got

    def _take_from(self, run: Run, host: str, own: bool, since: float, asking: Asking) -> None:
        """See `take_from` in `claim.lua`."""
        hosts, turns = self._hosts, asking.turns
        found = hosts.weigh(run, host)
        allowed = hosts.next_of(host, found)
        at = max(since, allowed)
        has_others = any(True for _ in hosts.others(run))
        if at > hosts.now + LOOK_AHEAD_MS:
            if has_others:
                self._wait_for(run, host)
            run.ready.set(host, at)
            return
        slots = hosts.slots.get(host, {})
        for member in [m for m, end in slots.items() if end <= hosts.now]:
            del slots[member]
        free = for_node = found.most - len(slots)
        if free > 0:
            free, for_node = self._fair(run, host, found, free, turns)
        if free <= 0:
            self._wait_for(run, host)
            run.ready.set(host, self._first_end(host) if slots else hosts.now)
            return
        if for_node <= 0:
            asking.courteous = True
            run.ready.set(host, hosts.now)
            return
        if found.gap > 0:
            its_turn = (
                not has_others
                or hosts.last.get(host) != run.base
                or self._contenders(run, host, found.gap) == 0
            )
            if not its_turn:
                asking.courteous = True
            fresh = allowed == 0 or since > allowed
            if hosts.now < at + (turns.patience(own, fresh) if its_turn else GRACE_MS):
                run.ready.set(host, at)
                return
        at = max(hosts.now, at)
        got = self._lease_from(run, host, found, min(asking.wanted, for_node), at, asking)
        if not run.queues[host]:
            del run.queues[host]
            run.ready.drop(host)
            hosts.waiting.get(host, {}).pop(run.base, None)
        elif found.gap > 0:
            run.ready.set(host, max(hosts.now, hosts.next_of(host, found)))
        elif got >= free:
            self._wait_for(run, host)
            run.ready.set(host, self._first_end(host))
        else:
            run.ready.set(host, hosts.now)

    def _take_errands(self, run: Run, asking: Asking, most: int) -> None:
        """Tasks ask nobody for anything, so there is nothing to be polite about."""
        queue, most = run.queues[TASKS_HOST], asking.errands + most
        while queue and asking.wanted > 0 and asking.errands < most:
            _, _, id = heapq.heappop(queue)
            run.tasks[id].place, run.tasks[id].token = Place.LEASED, asking.token
            run.deadline.set(id, self._now + asking.lease_ms)
            asking.leases.append(self._lease(run, id, asking.token, 0, 0))
            asking.errands += 1
        if queue:
            run.ready.set(TASKS_HOST, self._hosts.now)
        else:
            del run.queues[TASKS_HOST]
            run.ready.drop(TASKS_HOST)

    def _take_from_each(
        self, run: Run, hosts: list[tuple[str, bool, float]], at_a_time: int, asking: Asking
    ) -> None:
        """See `take_from_each` in `claim.lua`."""
        slots = self._hosts.slots
        for first in range(0, len(hosts), at_a_time):
            some = hosts[first : first + at_a_time]
            for host, own, since in sorted(some, key=lambda each: len(slots.get(each[0], ()))):
                if asking.wanted <= 0:
                    return
                self._take_from(run, host, own, since, asking)

    def _take(self, run: Run, asking: Asking) -> None:
        """See `take_from_ready_hosts` in `claim.lua`."""
        turns, now = asking.turns, self._hosts.now
        scanned = step = asking.want + 20
        if len(turns.nodes) > 1:
            scanned = min(MOST_SCANNED, step * len(turns.nodes))
        has_errands = False
        foreign: list[tuple[str, bool, float]] = []
        crowded: list[tuple[str, bool, float]] = []
        limit = run.config.host_backlog_limit
        due = run.ready.due(now + LOOK_AHEAD_MS, scanned)
        since_of = {host: run.ready.at[host] for host in due}
        for first in range(0, len(due), step):
            if asking.wanted <= 0:
                break
            hosts: list[tuple[str, bool, float]] = []
            for host in due[first : first + step]:
                own, since = turns.is_own(host), since_of[host]
                if host == TASKS_HOST:
                    has_errands = True
                    self._take_errands(run, asking, -(-asking.want // 2))
                elif limit and len(run.queues[host]) > limit:
                    crowded.append((host, own, since))
                elif own or turns.behind:
                    hosts.append((host, own, since))
                elif run.delay == 0 or since - SPARE_MS <= now:
                    foreign.append((host, own, since))
            self._take_from_each(run, hosts, step, asking)
        self._take_from_each(run, foreign, step, asking)
        self._take_from_each(run, crowded, step, asking)
        if has_errands and asking.wanted > 0 and TASKS_HOST in run.queues:
            self._take_errands(run, asking, asking.want)

    def _note_claim(self, run: Run, seq: int, asking: Asking) -> None:
        turns, hosts = asking.turns, self._hosts
        run.claims[turns.me] = (seq, [lease.id for lease in asking.leases])
        if asking.wanted > 0:
            run.hungry[turns.me] = self._now
        else:
            run.hungry.pop(turns.me, None)
        got = len(asking.leases) - asking.errands
        if len(turns.nodes) > 1 and (got or turns.me not in run.loads):
            run.loads[turns.me] = turns.load + got
        if got:
            hosts.rate, hosts.rate_at = turns.all_rate + 1000 * got, hosts.now

    async def claim(self, node: str, seq: int, want: int, lease_ms: int) -> Claim:
        run = self._begin()
        self._reap(run)
        asking = Asking(Turns(self._hosts, run, node, self._now), want, f"{node}:{seq}", lease_ms)
        last, held = run.claims.get(node, (0, []))
        wait = -1
        if seq == last:
            for id in held:
                if self._owned(run, id, asking.token):
                    run.deadline.set(id, self._now + lease_ms)
                    asking.leases.append(self._lease(run, id, asking.token, 0, -1))
        elif seq > last:
            asking.turns.read()
            if not run.paused:
                self._take(run, asking)
            self._note_claim(run, seq, asking)
        self._finish(run)
        if seq > last and asking.wanted > 0:
            wait = self._wait_ms(run, asking)
        return Claim(
            tuple(asking.leases),
            run.state,
            run.pending,
            wait,
            run.stopping,
            paused=run.paused,
            away=len(run.outbox),
            idle_tasks=len(run.of_tasks.idle),
            at_ms=self._wall,
        )

    def _lease(self, run: Run, id: str, token: str, start_ms: int, mark: int) -> Lease:
        task = run.tasks[id]
        deliveries = run.expired.get(id, 0) + 1
        return Lease(
            id,
            token,
            task.host,
            task.priority,
            task.retries,
            deliveries,
            task.payload,
            start_ms,
            mark,
        )

    def _wait_ms(self, run: Run, asking: Asking) -> int:
        step = clock_step_ms(run.config)
        looks = [(run.delayed.first(), self._now, step), (run.deadline.first(), self._now, step)]
        if not run.paused:
            for host, at in run.ready.earliest(16):
                turns = asking.turns
                at += turns.patience(turns.is_own(host), fresh=False)
                looks.append((at, self._hosts.now, SHARD_STEP_MS))
        waits = [
            math.ceil(max(0, min(at - clock, step))) for at, clock, step in looks if at is not None
        ]
        wait = min(waits, default=-1)
        return max(wait, COURTESY_MS) if asking.courteous else wait

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
        self._speak(run)
        if beat:
            run.beats[node] = (self._wall, beat)
        for silent in run.nodes.due(self._now - 20 * lease_ms, 20):
            run.nodes.drop(silent)
            run.beats.pop(silent, None)
            run.claims.pop(silent, None)
            run.loads.pop(silent, None)
        for host in self._hosts.next_allowed.due(self._hosts.now, 500):
            self._hosts.next_allowed.drop(host)
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
            for child in self._in_order(ack.children):
                self._push(run, child)
            self._end_visits(run, ack.id, died=bool(ack.error))
            self._forget(run, ack.id)
            self._unlease(run, ack.id, task)
            if ack.error:
                held, tries = Held(ack.id, ack.token), task.retries + 1
                self._bury(run, held, task, tries, ack.reason, ack.error, ack.response)
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
            for child in self._in_order(children):
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
            held = Held(nack.id, nack.token)
            self._bury(run, held, task, task.retries, nack.reason, nack.error, b"")
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

    async def permit(self, id: str, token: str, mark: int, slack_ms: int = SLACK_MS) -> Permit:
        run, hosts = self._begin(), self._hosts
        task = self._owned(run, id, token)
        if task is None:
            return Permit(PermitCode.LOST)
        found = hosts.weigh(run, task.host)
        at = max(hosts.now, hosts.next_of(task.host, found))
        if mark and mark == name_of(hosts.next_allowed.at.get(task.host, 0)):
            at = max(hosts.now, found.closed_until)
        if at > hosts.now + LATEST_MS:
            return Permit(PermitCode.LATER)
        slots = hosts.slots.setdefault(task.host, {})
        slot = f"{run.base} {id} {token}"
        if slot not in slots:
            for member in [m for m, end in slots.items() if end <= hosts.now]:
                del slots[member]
            if len(slots) >= found.most:
                return Permit(PermitCode.LATER)
        slots[slot] = math.ceil(at) + run.config.fetch_timeout_ms
        reserved = (
            name_of(hosts.reserve(run, task.host, found, at, slack_ms)) if found.gap > 0 else 0
        )
        return Permit(PermitCode.GRANTED, math.ceil(at - hosts.now), reserved)

    async def report(self, signals: Sequence[Signal]) -> None:
        run = self._begin()
        for signal in signals:
            self._hosts.report(run, signal)

    async def hold_off(self, pauses: Sequence[tuple[str, int]]) -> None:
        self._begin()
        for host, ms in pauses:
            self._hosts.hold_off(host, ms)

    async def visit(self, id: str, token: str, fingerprint: int, host: str = "") -> bool | None:
        run = self._begin()
        if not self._owned(run, id, token):
            return None
        seen = run.seen.has(fingerprint, host, self._wall)
        if seen:
            owner = run.visited.get(fingerprint)
            if owner is None or (owner != id and owner in run.tasks):
                return False
        visits = run.visits.setdefault(id, [])
        if fingerprint not in visits:
            visits.append(fingerprint)
        run.visited[fingerprint] = id
        if not seen:
            run.seen.put(fingerprint, host)
        return True

    async def recover(self) -> int:
        run = self._begin()
        run.of_tasks.look_again()
        self._end_tasks(run)
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

    def _refusal(self, run: Run, token: str, batch: int) -> SeedReply | None:
        """See `refusal` in `batch.lua`."""
        if self._owned(run, SEED_ID, token) is None:
            return SeedReply(SeedCode.STALE, run.cursor)
        if batch != run.cursor + 1:
            code = SeedCode.DUPLICATE if batch <= run.cursor else SeedCode.GAP
            return SeedReply(code, run.cursor)
        return None

    def _take_in(self, run: Run, batch: int, number: int, *, final: bool) -> SeedReply:
        """See `take_in` in `batch.lua`."""
        run.cursor = batch
        if final:
            seed = run.tasks[SEED_ID]
            self._forget(run, SEED_ID)
            self._unlease(run, SEED_ID, seed)
        self._finish(run)
        return SeedReply(SeedCode.OK, batch, "", number)

    async def seed_push(
        self,
        token: str,
        batch: int,
        final: bool,
        requests: Sequence[NewRequest],
        refused: Sequence[tuple[str, int]] = (),
    ) -> SeedReply:
        run = self._begin()
        if answer := self._refusal(run, token, batch):
            return answer
        added = sum(self._push(run, request) for request in self._in_order(requests))
        for reason, total in refused:
            if total > run.refused[reason]:
                run.reasons[str(reason)] += total - run.refused[reason]
                run.refused[reason] = total
        return self._take_in(run, batch, added, final=final)

    async def take_tasks(
        self, token: str, batch: int, final: bool, most: int, key: str
    ) -> SeedReply:
        run = self._begin()
        if refused := self._refusal(run, token, batch):
            return refused
        waiting = self.shard.task_lists.setdefault(key, [])
        rows = waiting[:most]
        for task, value in rows:
            self._push(run, NewRequest(f"{task}.task", TASKS_HOST, TASK_PRIORITY, None, value))
        del waiting[: len(rows)]
        return self._take_in(run, batch, len(rows), final=final and not rows)

    async def open_tasks(self) -> list[tuple[str, bytes]]:
        run = self._run()
        found = dict(run.of_tasks.living)
        ends = {id: task.payload for id, task in run.tasks.items()}
        ends |= {id: buried.task.payload for id, buried in run.dead.items()}
        for id, payload in ends.items():
            if id.endswith("@end"):
                found.setdefault(id.removesuffix("@end"), payload.partition(b"\n")[2])
        return list(found.items())

    async def add(self, requests: Sequence[NewRequest]) -> int:
        run = self._begin()
        version = run.seq
        added = sum(self._push(run, request) for request in self._in_order(requests))
        if run.seq > version:
            self._reopen(run)
        self._finish(run)
        return added

    async def redrive(self, ids: Sequence[str], *, drop: bool = False) -> int:
        """Let dead letters return to their queues, or drop them; returns how many were found."""
        run = self._begin()
        found = 0
        for id in ids:
            if not drop and (id in run.dead or run.shards > 1):
                self._revive(run, task_of(id))
            buried = run.dead.pop(id, None)
            if buried is None:
                continue
            found += 1
            run.responses.pop(id, None)
            run.of_tasks.absolve(id)
            if drop:
                run.reasons[Reason.CANCELLED] += 1
            elif id not in run.tasks:
                self._enter(
                    run, id, Task(buried.task.host, buried.task.priority, buried.task.payload)
                )
                self._reopen(run)
        self._finish(run)
        return found

    def _revive(self, run: Run, task: str) -> None:
        if run.of_tasks.revive(task):
            run.dead.pop(f"{task}@end", None)
            run.responses.pop(f"{task}@end", None)

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
            pending=run.pending,
            queued=len(run.tasks) - len(run.deadline) - len(run.delayed) - idle,
            leased=len(run.deadline) - (seed is not None and seed.place is Place.LEASED),
            delayed=len(run.delayed),
            dead=len(run.dead),
            hosts=len(run.ready) - (TASKS_HOST in run.ready),
            items=count["items"],
            retried=count["retried"],
            reaped=count["reaped"],
            fenced=count["fenced"],
            repaired=0,
            seeds=run.cursor,
            seeding=seed is not None,
            hold=HOLD_ID in run.tasks,
            stopping=run.stopping,
            paused=run.paused,
            started_at_ms=run.started,
            finished_at_ms=run.finished,
            away=len(run.outbox),
            version=run.seq,
            shards=run.shards,
            tasks=len(run.of_tasks.living),
            reasons=dict(run.reasons),
        )

    async def settled(self) -> bool:
        return (await self.status()).state is RunState.DONE

    # -- one shard of several; see `ShardControl`

    async def lay(self) -> None:
        self._begin().laid = True

    async def outbox(self, limit: int) -> list[NewRequest]:
        return sorted(self._run().outbox, key=self._run().outbox.__getitem__)[:limit]

    async def deliver(self, requests: Sequence[NewRequest]) -> int:
        run = self._begin()
        added = sum(self._push(run, request._replace(shard=None)) for request in requests)
        if added:
            self._reopen(run)
        self._finish(run)
        return added

    async def trim(self, requests: Sequence[NewRequest]) -> None:
        run = self._begin()
        for request in requests:
            if request in run.outbox:
                order = run.outbox.pop(request)
                run.of_tasks.detach(request.id, f"{request.id}>{order}")
        self._finish(run)

    async def close(self, version: int) -> bool:
        run = self._begin()
        left = run.pending + len(run.of_tasks.living)
        if run.state is RunState.RUNNING and run.seq == version and not left:
            self._mark_done(run)
        return run.state is RunState.DONE

    async def reopen(self) -> None:
        self._reopen(self._begin())

    # -- tasks over several shards; see `TaskControl`

    async def idle_tasks(self, limit: int) -> list[str]:
        idle = self._run().of_tasks.idle
        return sorted(idle, key=lambda task: (idle[task], task))[:limit]

    async def look_at_tasks(self, tasks: Sequence[str]) -> list[TaskLook]:
        book = self._run().of_tasks
        return [book.look(task) for task in tasks]

    async def settle_tasks(self, settled: Sequence[SettledTask]) -> list[bool]:
        run = self._begin()
        book, answer = run.of_tasks, []
        for task, moved, verdict, reason in settled:
            still = task not in book.open and book.word(task) == moved
            if still:
                if verdict is TaskVerdict.OVER:
                    self._end_task(run, task, reason)
                book.idle.pop(task, None)
                if verdict is not TaskVerdict.OPEN:
                    book.moved.pop(task, None)
            answer.append(still)
        self._finish(run)
        return answer
