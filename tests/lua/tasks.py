"""The machine once more, with tasks: they are taken, split up, lost, given up, and end."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.lua.machine import codes, nodes, recent, runs
from tests.lua.spread import SPREAD_RARE, SpreadMachine, distant, spread_runs
from tests.lua.twins import new_request

from orbweb.errors import RunLost
from orbweb.frontier.base import (
    SEED_ID,
    TASKS_HOST,
    Ack,
    Claim,
    Nack,
    NewRequest,
    SettledTask,
    TaskVerdict,
)
from orbweb.frontier.tasks import task_of

KEY = "list"
names = st.sampled_from(["t1", "t2", "t11"])
verdicts = st.sampled_from(list(TaskVerdict))


def of_task(id: str, request: NewRequest) -> NewRequest:
    """The request as a child of the one of that id."""
    task, dot, _ = id.partition(".")
    return request._replace(id=f"{task}.{request.id}") if dot else request


def new_task(name: str, mark: int | None = None) -> NewRequest:
    return NewRequest(f"{name}.task", TASKS_HOST, 300, mark, b'"%s"' % name.encode())


class TaskMachine(SpreadMachine):
    """A rule steers a task a good way: by chance walks would hardly ever come to its end."""

    @rule(
        run=runs,
        tasks=st.lists(names, max_size=3),
        most=st.integers(1, 3),
        ahead=st.sampled_from([1, 1, 1, 0, 2]),
        final=st.booleans(),
        node=nodes,
    )
    def take(
        self, run: int, tasks: list[str], most: int, ahead: int, final: bool, node: str
    ) -> None:
        run = self.run(run)
        self.take_seeding(run, node)
        self.twins.put_on_list(KEY, [(name, b'"%s"' % name.encode()) for name in tasks])
        answer = self.twins.step(
            run, "take_tasks", self.seed_token[run], self.cursor(run) + ahead, final, most, KEY
        )
        if answer is not RunLost:
            self.note(f"take {answer.code}")
            if final and self.memory(run) and SEED_ID not in self.memory(run).tasks:
                self.note("the list is empty")

    @rule(run=runs, name=names, mark=st.sampled_from([None, None, 4_712]))
    def push_task(self, run: int, name: str, mark: int | None) -> None:
        self.twins.step(self.run(run), "add", [new_task(name, mark)])

    @rule(run=runs, which=recent, children=codes, how=st.sampled_from(["ack", "ack", "emit"]))
    def split(self, run: int, which: int, children: list[int], how: str) -> None:
        """A request of a task yields others, of which some are tasks of their own."""
        run = self.run(run)
        for id, token in self.pick(run, [which]):
            found = [of_task(id, new_request(code)) for code in children]
            found += [new_task(f"{id[:2]}-{code}", code) for code in children if code < 3]
            if how == "ack":
                self.twins.step(run, "ack", [Ack(id, token, "done", 0, found)])
            else:
                step = self.emitted(run, id, token) + 1
                self.twins.step(run, "emit", id, token, step, found)

    @rule(
        run=runs,
        node=nodes,
        name=names,
        children=codes,
        ends=st.lists(st.sampled_from(["done", "done", "dead", "error"]), min_size=1, max_size=4),
        retried=st.sampled_from(["", "retry", "retry", "drop"]),
        how_many=st.integers(1, 2),
        slow=st.booleans(),
    )
    def life(
        self,
        run: int,
        node: str,
        name: str,
        children: list[int],
        ends: list[str],
        retried: str,
        how_many: int,
        slow: bool,
    ) -> None:
        """A task from its beginning to its end, and what an operator may do then."""
        run = self.run(run)
        self.twins.step(run, "add", [new_task(name)])
        for n in range(5):
            links = [of_task(f"{name}.", new_request(code)) for code in children] if n < 2 else []
            self.finish(run, node, ends, links, slow=slow)
        self.tell_ends(run)
        if retried and self.memory(run):
            dead = [id for id in self.memory(run).dead if id.startswith(f"{name}.")][:how_many]
            self.twins.step(run, "redrive", dead, drop=retried == "drop")
            if dead:
                self.note(f"task {retried}")
            self.finish(run, node, ["done"], [])

    def finish(
        self, run: int, node: str, ends: list[str], links: list[NewRequest], *, slow: bool = False
    ) -> None:
        """Finish what a claim gives, where the links are of the request's own task.

        `slow`: the ends of tasks stay in work.
        """
        self.seq[node] += 1
        self.twins.wall += 100
        answer = self.claim_as(run, node, self.seq[node], 9)
        for n, lease in enumerate(answer.leases if isinstance(answer, Claim) else ()):
            if slow and lease.id.endswith("@end"):
                continue
            end = ends[n % len(ends)]
            if end == "dead":
                nack = Nack(*lease.held, fatal=True, reason="timeout", error="late")
                self.twins.step(run, "nack", [nack])
            else:
                error = "raised" if end == "error" else ""
                found = [link for link in links if task_of(link.id) == task_of(lease.id)]
                ack = Ack(*lease.held, "done", 0, found, error, response=error.encode())
                self.twins.step(run, "ack", [ack])

    def lives(self, run: int, name: str) -> bool:
        """Whether the task has not ended: of one that has, nothing more can come."""
        return name in self.memory(run).of_tasks.living

    def tell_ends(self, run: int) -> None:
        memory = self.memory(run)
        if memory:
            for reason in ("task_done", "task_failed"):
                self.counts[reason] += memory.reasons[reason]

    @rule(run=runs, node=nodes, name=names, number=st.integers(0, 9), dies=st.booleans())
    def page_of_a_task_behind_a_redirect(
        self, run: int, node: str, name: str, number: int, dies: bool
    ) -> None:
        """A redirect takes a page, to which a link of the same task leads."""
        run = self.run(run)
        self.twins.step(run, "add", [new_task(name)])
        self.seq[node] += 1
        answer = self.claim_as(run, node, self.seq[node], 9)
        for lease in answer.leases if isinstance(answer, Claim) else ():
            if task_of(lease.id) != name:
                continue
            mark, host = 8_000 + number, f"h{number % 3}"
            link = of_task(lease.id, NewRequest(f"w{number}", host, 0, mark, b"behind"))
            self.twins.step(run, "visit", *lease.held, mark, host)
            self.twins.step(run, "add", [link])
            nack = Nack(*lease.held, fatal=dies, counted=dies, reason="timeout")
            self.twins.step(run, "nack", [nack])

    @rule(run=runs)
    def which_are_open(self, run: int) -> None:
        found = self.twins.step(self.run(run), "open_tasks")
        if found is not RunLost and found:
            self.note("open tasks")

    @rule(run=spread_runs, which=recent, others=distant)
    def split_away(self, run: int, which: int, others: list[int]) -> None:
        run = self.run(run)
        for id, token in self.pick(run, [which]):
            found = [of_task(id, each) for each in self.away(run, others)]
            self.twins.step(run, "ack", [Ack(id, token, "done", 0, found)])

    @rule(
        node=nodes,
        name=names,
        ends=st.lists(st.sampled_from(["done", "dead"]), min_size=1, max_size=3),
        others=distant,
        verdict=st.sampled_from([TaskVerdict.OVER] * 3 + list(TaskVerdict)),
        reason=st.sampled_from(["", "timeout"]),
        late=st.sampled_from(["", "", "open", "ended"]),
    )
    def settle(
        self,
        node: str,
        name: str,
        ends: list[str],
        others: list[int],
        verdict: TaskVerdict,
        reason: str,
        late: str,
    ) -> None:
        """A task whose requests go to other shards; nodes look at it, and say what they saw."""
        run = self.run(2)
        self.twins.step(run, "add", [new_task(name)])
        links = [of_task(f"{name}.", each) for each in self.away(run, others)]
        self.finish(run, node, ends, links)
        rows = self.twins.step(run, "outbox", 9)
        if rows is RunLost:
            return
        self.twins.step(run, "trim", rows)
        tasks = self.twins.step(run, "idle_tasks", 3)
        looks = self.twins.step(run, "look_at_tasks", [*tasks, "t9"]) if tasks else []
        if late and self.lives(run, name):
            link = of_task(f"{name}.", new_request(len(self.rows) % 14 + 70))
            self.twins.step(run, "add", [link._replace(fingerprint=None)])
        if late == "ended":
            self.finish(run, node, ["done"], [])
        settled = [
            SettledTask(
                task,
                look.moved,
                # A shard that knows of a task is told of its end, not that it has had one.
                TaskVerdict.OVER if look.kept and verdict is TaskVerdict.GONE else verdict,
                look.fault.partition("\n")[2] or reason,
            )
            for task, look in zip(tasks, looks, strict=False)
        ]
        if settled:
            for done in self.twins.step(run, "settle_tasks", settled):
                self.note(f"settled {verdict} {done}")
        self.tell_ends(run)


TASK_RARE = (
    *SPREAD_RARE,
    "take ok",
    "take duplicate",
    "take gap",
    "take stale",
    "the list is empty",
    "task_done",
    "task_failed",
    "task retry",
    "task drop",
    "open tasks",
    "settled over True",
    "settled over False",
    "settled gone True",
    "settled open True",
)
"""See `RARE`."""
