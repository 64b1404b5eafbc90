"""The names of the frontier's keys, as Python reads them; `lua/shard.lua` says what each holds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import quote, unquote


@lru_cache(maxsize=1024)
def clean(name: str) -> str:
    """A job or run name as it stands in keys: no colon, brace or blank, so none can collide."""
    return quote(name, safe="-_.~@")


@dataclass(frozen=True, slots=True)
class ShardKeys:
    """Keys that all jobs of a prefix share. The braces keep a shard in one slot of a cluster."""

    prefix: str
    shard: int = 0

    @property
    def tag(self) -> str:
        return f"{{{clean(self.prefix)}:{self.shard}}}"

    @property
    def clock(self) -> str:
        return f"{self.tag}:clock"

    @property
    def next_allowed(self) -> str:
        return f"{self.tag}:next"

    @property
    def current(self) -> str:
        return f"{self.tag}:current"

    @property
    def jobs(self) -> str:
        return f"{self.tag}:jobs"

    @property
    def runs(self) -> str:
        return f"{self.tag}:runs"

    @property
    def garbage(self) -> str:
        return f"{self.tag}:garbage"

    def slots(self, host: str) -> str:
        return f"{self.tag}:slots:{host}"

    def waiting(self, host: str) -> str:
        return f"{self.tag}:waiting:{host}"

    def host(self, host: str) -> str:
        """What is known of a host. The fields stand in `shard.lua`."""
        return f"{self.tag}:host:{host}"

    @property
    def pace(self) -> str:
        return f"{self.tag}:pace"

    @property
    def steered(self) -> str:
        return f"{self.tag}:steered"

    @property
    def rates(self) -> str:
        return f"{self.tag}:rates"

    @property
    def audit(self) -> str:
        return f"{self.tag}:audit"

    @property
    def tuned(self) -> str:
        """What live values say of single hosts."""
        return f"{self.tag}:tuned"

    @property
    def tuned_by(self) -> str:
        """Which node says what of single hosts."""
        return f"{self.tag}:tuned_by"

    @property
    def config(self) -> str:
        """The live values, and the channel on which a new version is told."""
        return f"{self.tag}:config"

    @property
    def config_history(self) -> str:
        return f"{self.config}:history"

    @property
    def config_acks(self) -> str:
        return f"{self.config}:acks"

    def robots(self, origin: str) -> str:
        return f"{self.tag}:robots:{origin}"

    def job_seen(self, job: str, generation: str) -> str:
        """Fingerprints that all runs of a job share (`DEDUP_SCOPE` spider)."""
        return f"{self.tag}:job:{clean(job)}:{generation}:seen"

    def task_list(self, key: str) -> str:
        """Tasks that wait to be taken. It lies in shard 0, as all that is known of tasks."""
        return f"{self.tag}:waiting_tasks:{clean(key)}"

    def job_items(self, job: str) -> str:
        """Items that all runs of a job share (`DEDUP_SCOPE` spider)."""
        return f"{self.tag}:job:{clean(job)}:items"

    def job_quality(self, job: str) -> str:
        """What finished runs of a job have said of their items."""
        return f"{self.tag}:job:{clean(job)}:quality"

    def job_runs(self, job: str) -> str:
        """How the latest runs of a job were made, and what they came to (`frontier/runbook.py`)."""
        return f"{self.tag}:job:{clean(job)}:runs"

    def job_pages(self, job: str, epoch: str) -> str:
        """What each node of a run has counted of its pages."""
        return f"{self.tag}:job:{clean(job)}:pages:{epoch}"

    @property
    def rules(self) -> str:
        """By which rules each job takes links."""
        return f"{self.tag}:rules"

    @property
    def switches(self) -> str:
        """Which live values of its own each job has."""
        return f"{self.tag}:switches"

    def job_log(self, job: str) -> str:
        """The latest outcomes of a job (`CRAWL_LOG_STREAM`)."""
        return f"{self.tag}:job:{clean(job)}:log"

    def role(self, name: str) -> str:
        """Who of the fleet has a role now; what it has put down lies in `:record` behind it."""
        return f"{self.tag}:role:{clean(name)}"

    def alerts(self, part: str) -> str:
        """What people and processes say for the judge of alarms, see `frontier/notes.py`."""
        return f"{self.tag}:alerts:{part}"

    def run(self, job: str, run: str, epoch: str) -> RunKeys:
        return RunKeys(f"{self.tag}:run:{clean(job)}:{clean(run)}:{epoch}")


@dataclass(frozen=True, slots=True)
class RunKeys:
    """Keys of one incarnation of a run."""

    base: str

    def __getattr__(self, name: str) -> str:
        if name not in RUN_KEYS | ITEM_KEYS:
            raise AttributeError(name)
        return f"{self.base}:{name}"

    def queue(self, host: str) -> str:
        return f"{self.base}:queue:{host}"


RUN_KEYS = frozenset(
    {"meta", "body", "ready", "delayed", "deadline", "owner", "expired", "emitted", "hungry"}
    | {"loads", "homes", "left", "outbox"}
    | {"tasks", "open", "fallen", "faults", "failed_tasks", "moved", "idle"}
    | {"visited", "visits", "parked", "claims", "nodes", "beats", "reasons", "seen"}
    | {"dead", "why", "responses"}
)

ITEM_KEYS = frozenset({"items", "marks", "failed_items", "quality", "counts"})
"""Keys of a run that no transition of requests reads, see `frontier/items.py` and `totals.py`;
`collect` removes them."""


def split_run_name(name: str) -> tuple[str, str, str]:
    """`job:run:epoch` as it stands in the index of runs, back to job, run and epoch."""
    job, run, epoch = name.split(":")
    return unquote(job), unquote(run), epoch
