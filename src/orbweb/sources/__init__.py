"""Where tasks come from: tables of tasks, and the records of their batches."""

from orbweb.sources.base import (
    DOING,
    DONE,
    FAILED,
    TODO,
    BatchRecord,
    BatchState,
    BatchStore,
    TaskCounts,
    TaskState,
)
from orbweb.sources.memory import MemoryBatchStore

__all__ = [
    "DOING",
    "DONE",
    "FAILED",
    "TODO",
    "BatchRecord",
    "BatchState",
    "BatchStore",
    "MemoryBatchStore",
    "TaskCounts",
    "TaskState",
]
