"""Faults put on purpose into the Lua of roles, counts and live values."""

from __future__ import annotations

from tests.lua.mutants import Mutant

LEAVE_DEPUTY = "  if known[6] == who then call('HDEL', key, 'deputy', 'deputy_until') end\n"
LASTS = "  call('PEXPIRE', key, WEEK_MS)\n"

BOOK_MUTANTS = (
    Mutant("two have a role", "lead", "not known[1] or left <= 0", "true"),
    Mutant("a role is lost with its holder", "lead", " or left <= 0"),
    Mutant("nobody goes before another", "lead", " or rank > tonumber(known[4])"),
    Mutant("an equal takes the role", "lead", "rank > tonumber", "rank >= tonumber"),
    Mutant(
        "a lease is longer than asked for when the clock is set back",
        "lead",
        "math.min((tonumber(known[2]) or 0) - wall, tonumber(known[3]) or 0)",
        "(tonumber(known[2]) or 0) - wall",
    ),
    Mutant("a clock that is set back repeats a fence", "lead", "math.max(fence + 1, wall)", "wall"),
    Mutant("a successor has the fence before it", "lead", "fence + 1", "fence"),
    Mutant(
        "a holder that stays has a new fence",
        "lead",
        "if not mine then fence",
        "if true then fence",
    ),
    Mutant("anybody gives a role back", "lead", "if known[1] == who then", "if true then"),
    Mutant("a role is not given back", "lead", "if known[1] == who then", "if false then"),
    Mutant("who gives back is a deputy still", "lead", LEAVE_DEPUTY + "  return {0", "  return {0"),
    Mutant("a holder is its own deputy", "lead", LEAVE_DEPUTY + "  return {int", "  return {int"),
    Mutant("a deputy that is gone stays", "lead", " or deputy_left <= 0"),
    Mutant("a deputy stays until the clock comes back", "lead", " or deputy_left > lease"),
    Mutant(
        "everybody is a deputy",
        "lead",
        "if known[6] == who or deputy_left",
        "if true or deputy_left",
    ),
    Mutant("a role is kept for ever", "lead", LASTS + LEAVE_DEPUTY, LEAVE_DEPUTY),
    Mutant(
        "whoever led before has a word",
        "record",
        "if call('HGET', key, 'fence') ~= ARGV[3] then return 0 end\n",
    ),
    Mutant("what a holder knows is kept for ever", "record", ", 'PX', 30 * 86400000", ""),
    Mutant("a node that was folded counts on", "tell", "if ARGV[4] == '1' and", "if false and"),
    Mutant("counts are kept for ever", "tell", "call('EXPIRE', counts, ARGV[5])\n"),
    Mutant(
        "a sum takes the place of a newer one",
        "fold",
        "if (call('HGET', counts, '') or '') ~= ARGV[2] then return 0 end\n",
    ),
    Mutant("a node that lives is folded", "fold", "if not is_gone or call", "if call"),
    Mutant(
        "what a node counted last is lost",
        "fold",
        " or call('HGET', counts, ARGV[i]) ~= ARGV[i + 1]",
    ),
    Mutant(
        "a node that was folded counts twice",
        "fold",
        "for i = 4, #ARGV, 2 do call('HDEL', folded, ARGV[i]) end\n",
    ),
    Mutant("what was folded is lost", "fold", "folded, '', ARGV[3]", "folded, '', ARGV[2]"),
    Mutant("a sum is kept for ever", "fold", "call('COPY', counts, folded, 'REPLACE')\n", ""),
    Mutant(
        "a version takes the place of another", "configure", "version ~= tonumber(ARGV[2]) or ", ""
    ),
    Mutant("a version comes too early", "configure", " or wall < tonumber(ARGV[5])"),
    Mutant(
        "a version leaves no line",
        "configure",
        "call('RPUSH', SHARD .. ':config:history', ARGV[4])\n",
    ),
    Mutant("what nodes said is kept for ever", "acknowledge", "  call('HDEL', acks, node)\n"),
    Mutant("nodes are forgotten at once", "acknowledge", "wall - DAY_MS", "wall"),
)

TORN_WORD_MUTANTS = (
    Mutant(
        "a node is in the sum before it leaves",
        "fold",
        "local folded = counts .. ':folded'\ncall('COPY', counts, folded, 'REPLACE')\n",
        "local folded = counts\n",
    ),
    Mutant(
        "a version is there before its line",
        "configure",
        "call('RPUSH', SHARD .. ':config:history', ARGV[4])\n",
        "call('HSET', key, 'version', int(version + 1), 'values', ARGV[3])\n"
        "call('RPUSH', SHARD .. ':config:history', ARGV[4])\n",
    ),
    Mutant(
        "a node speaks before anybody would forget it",
        "acknowledge",
        "call('ZADD', acked, int(wall), ARGV[2]) -- first: what is not in it is never forgotten\n"
        "call('HSET', acks, ARGV[2], int(wall) .. '\\n' .. ARGV[3])\n",
        "call('HSET', acks, ARGV[2], int(wall) .. '\\n' .. ARGV[3])\n"
        "call('ZADD', acked, int(wall), ARGV[2])\n",
    ),
    Mutant(
        "a limit is there before its end",
        "steer",
        "    set[#set + 1] = field\n    set[#set + 1] = value\n",
        "    call('HSET', key, field, value)\n",
    ),
    Mutant(
        "hosts lose their own values before they get them again",
        "tune",
        "local stored, known = call('HGETALL', values), {}",
        "call('DEL', values)\n  local stored, known = {}, {}",
    ),
    Mutant(
        "entries leave before they are in the run",
        "take",
        "call('HSET', BODY, id, pack_body",
        "if kind == 'list' then call('LTRIM', KEYS[3], #entries, -1) end\n"
        "call('HSET', BODY, id, pack_body",
    ),
)
"""Wrong only when a write is torn."""
