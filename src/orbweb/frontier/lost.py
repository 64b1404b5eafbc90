"""What a node does whose run is gone: the judge of alarms hears of it, unless that was an act."""

from __future__ import annotations

from contextlib import suppress

from orbweb.errors import StoreUnavailable
from orbweb.frontier.admin import Admin
from orbweb.frontier.notes import NoteBook, NoteKind
from orbweb.log import get_logger

log = get_logger("orbweb.frontier")


async def tell_lost(admin: Admin, notes: NoteBook, job: str, run: str, epoch: str) -> None:
    """Leave a note that this incarnation of a run was not in the store any more.

    One that an operator has reset is no fault: the log says who it was. The store answers again, or
    else the node would still wait; if it does not, nothing is left.
    """
    with suppress(StoreUnavailable):
        act = await admin.reset_by(job, run, epoch)
        if act is None:
            await notes.leave(NoteKind.LOST, f"{job}/{run}", {"job": job, "run": run})
            return
        why = f" ({act.why})" if act.why else ""
        log.warning("%s · run %s was reset by %s%s", job, run or "(default)", act.by, why)
