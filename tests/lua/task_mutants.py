"""Faults put into the Lua of tasks on purpose."""

from __future__ import annotations

from tests.lua.mutants import Mutant

TASK_MUTANTS = (
    Mutant(
        "a new request does not keep its task open",
        "push",
        "  attach(id)\n  call('HSET', BODY",
        "  call('HSET', BODY",
    ),
    Mutant("what has left keeps its task open", "shard", "  detach(id)\nend\n", "end\n"),
    Mutant(
        "a task is kept open by another whose name begins alike",
        "shard",
        "'[' .. task .. '.', '(' .. task .. '/'",
        "'[' .. task, '(' .. task .. 'z'",
    ),
    Mutant(
        "a dead letter does not fail its task",
        "shard",
        "'\\n(.*)$') or '')\n    end",
        "'nothing') or '')\n    end",
    ),
    Mutant(
        "the last dead letter gives the reason",
        "shard",
        "call('HSETNX', OF_TASKS.faults",
        "call('HSET', OF_TASKS.faults",
    ),
    Mutant("ends are told unasked", "shard", "call('HGET', META, 'tells') or ''", "'done failed'"),
    Mutant(
        "what is told already is told on",
        "shard",
        "      call('HDEL', OWNER, id)\n      call('ZREM', DEADLINE, id)\n",
        "",
    ),
    Mutant(
        "a link that was held back does not keep its task open", "shard", "      attach(link)\n"
    ),
    Mutant(
        "nothing tells that a request has entered",
        "shard",
        "  if shards > 1 then call('HSET', OF_TASKS.moved, task, int(seq + 1)) end\n",
    ),
    Mutant(
        "one of several shards ends a task",
        "shard",
        "    if not is_open and shards > 1 then",
        "    if false then",
    ),
    Mutant(
        "a failed task cannot be opened again",
        "shard",
        "  if reason ~= '' then call('HSET', OF_TASKS.failed, task, payload) end\n",
    ),
    Mutant("a task is taken twice", "push", "or (host == TASKS_HOST and is_known(task_of(id)))"),
    Mutant(
        "a task is taken again before its end is told",
        "push",
        " or call('HEXISTS', BODY, task .. '@end') == 1",
    ),
    Mutant(
        "what is on its way does not keep its task open", "push", "      attach_row(row, seq + 1)\n"
    ),
    Mutant(
        "what was delivered keeps its task open",
        "trim",
        "    detach(id, id .. '>' .. int(tonumber(order)))\n",
    ),
    Mutant("a retried letter fails its task still", "redrive", "    absolve(id)\n"),
    Mutant("a retried letter does not open its task", "redrive", "revive(task_of(id)) end", "end"),
    Mutant("a retried request is in no task", "redrive", "      attach(id)\n"),
    Mutant(
        "another letter is forgotten with the retried one",
        "redrive",
        "if not has_any(OF_TASKS.fallen, task) then",
        "if true then",
    ),
    Mutant(
        "a task is settled although something has entered",
        "settle_tasks",
        "not has_any(OF_TASKS.open, task) and ",
    ),
    Mutant(
        "an old look settles a task",
        "settle_tasks",
        "(call('HGET', OF_TASKS.moved, task) or '') == ARGV[i + 1]",
        "true",
    ),
    Mutant(
        "what is settled is looked at for ever",
        "settle_tasks",
        "    call('ZREM', OF_TASKS.idle, task)\n",
    ),
    Mutant(
        "a look forgets what it looked at",
        "settle_tasks",
        "if verdict ~= 'open' then call",
        "if true then call",
    ),
    Mutant(
        "the source ends while tasks wait",
        "take_tasks",
        "ARGV[4] == '1' and #rows == 0",
        "ARGV[4] == '1'",
    ),
    Mutant(
        "tasks stay in their list",
        "take_tasks",
        "if #rows > 0 then call('LTRIM', list, #rows, -1) end\n",
    ),
    Mutant(
        "whoever lost the seeding takes tasks",
        "take_tasks",
        "if refused then return",
        "if refused and refused[1] ~= 'stale' then return",
    ),
    Mutant(
        "a repeated step takes more tasks",
        "take_tasks",
        "if refused then return",
        "if refused and refused[1] ~= 'duplicate' then return",
    ),
    Mutant(
        "a forgotten step of taking is not noticed",
        "take_tasks",
        "if refused then return",
        "if refused and refused[1] ~= 'gap' then return",
    ),
    Mutant("tasks wait for each other", "claim", "if host == TASKS_HOST then", "if false then"),
    Mutant("tasks are taken for fetches", "claim", "#ids - errands", "#ids"),
    Mutant(
        "a start does not ask the source anew",
        "open",
        "ARGV[24] == '1' and not part and",
        "false and",
    ),
    Mutant("a run ends before its tasks", "close", " + call('HLEN', OF_TASKS.all)"),
    Mutant(
        "tasks count as a host",
        "status",
        "if call('ZSCORE', READY, TASKS_HOST) then hosts = hosts - 1 end\n",
    ),
)

TORN_TASK_MUTANTS = (
    Mutant(
        "a task leaves before its end is pending",
        "shard",
        "  count(reason == '' and 'task_done' or 'task_failed')\n",
        "  count(reason == '' and 'task_done' or 'task_failed')\n"
        "  call('HDEL', OF_TASKS.all, task)\n",
    ),
    Mutant(
        "tasks leave their list before they enter",
        "take_tasks",
        "for _, row in ipairs(rows) do\n",
        "if #rows > 0 then call('LTRIM', list, #rows, -1) end\nfor _, row in ipairs(rows) do\n",
    ),
    Mutant("repair does not end a task", "fsck", "  detach(task .. '.')\n"),
    Mutant("repair leaves what is not pending in a task", "fsck", "  detach(id or mark, mark)\n"),
)
"""Wrong only when a write is torn."""
