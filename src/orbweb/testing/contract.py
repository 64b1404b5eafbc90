"""The contract of a frontier as tests: run them on your own by inheriting from `FrontierContract`.

    class TestMyFrontier(FrontierContract):
        @pytest.fixture
        def store(self): return MyStore()

The tests are coroutines without marks: set `asyncio_mode = "auto"` of pytest-asyncio. Call
`pytest.register_assert_rewrite("orbweb.testing")` first to see what differs when one fails.
"""

from __future__ import annotations

from orbweb.testing.contract_hosts import HostContract
from orbweb.testing.contract_leases import LeaseContract
from orbweb.testing.contract_pace import PaceContract
from orbweb.testing.contract_runs import RunContract
from orbweb.testing.contract_store import Store
from orbweb.testing.contract_tasks import TaskContract
from orbweb.testing.contract_tuning import TuningContract

__all__ = [
    "FrontierContract",
    "HostContract",
    "LeaseContract",
    "PaceContract",
    "RunContract",
    "Store",
    "TaskContract",
    "TuningContract",
]


class FrontierContract(
    LeaseContract, RunContract, HostContract, PaceContract, TaskContract, TuningContract
):
    """All of it. Needs a fixture `store` that gives an empty `Store`."""
