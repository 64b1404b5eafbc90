"""Faults put on purpose into the Lua of what changes a run from outside."""

from __future__ import annotations

from tests.lua.mutants import Mutant

LEARNING = """local learned = 0
for i = 2, #ARGV do
  if not is_seen(ARGV[i], '') then
    remember(ARGV[i], '')
    learned = learned + 1
  end
end
"""

TUNED_MUTANTS = (
    Mutant(
        "older values take the place of newer ones",
        "tune",
        "if (tonumber(had[2]) or 0) > version then return {0, '-1', '-1'} end\n",
    ),
    Mutant(
        "values may be told only once",
        "tune",
        "(tonumber(had[2]) or 0) > ",
        "tonumber(had[2] or -1) >= ",
    ),
    Mutant(
        "a node that repeats itself changes the run", "tune", "if not repeats then", "if true then"
    ),
    Mutant("a run that is tuned has no say", "tune", "speak()\nread_policy()", "read_policy()"),
    Mutant(
        "the word of a node that is gone holds on",
        "tune",
        "if till and tonumber(till) > host_now then",
        "if till then",
    ),
    Mutant("words end by the wall clock", "tune", "int(host_now + SAID_MS)", "int(wall + SAID_MS)"),
    Mutant(
        "words from old values of the store count",
        "tune",
        "if from == 'o' or living[name] == newest then",
        "if true then",
    ),
    Mutant("other words end with the store's values", "tune", "from == 'o' or living", "living"),
    Mutant(
        "which values of the store are the latest is forgotten",
        "tune",
        "if newest > 0 then call('HSET', said, '@', int(newest)) end",
        "",
    ),
    Mutant("the laxer word holds", "tune", "new[3] > old[3]", "new[3] < old[3]"),
    Mutant(
        "of the same words the shorter one holds",
        "tune",
        "(new[2] == 0 or new[2] > old[2])",
        "new[2] ~= 0 and new[2] < old[2]",
    ),
    Mutant(
        "no limit is the strictest one",
        "tune",
        "value == '0' and -NO_LIMIT or -tonumber(value)",
        "-tonumber(value)",
    ),
    Mutant(
        "who says nothing any more is heard still", "tune", "    call('HDEL', said, ARGV[10])\n"
    ),
    Mutant(
        "words that nobody says are kept",
        "tune",
        "if not living[name] then call('HDEL', said, '=' .. name) end",
    ),
    Mutant(
        "what nobody says of a host holds on",
        "tune",
        " else call('HDEL', values, stored[i]) end",
        " end",
    ),
    Mutant(
        "a word that changes is not written",
        "tune",
        "if known[name] ~= word then",
        "if not known[name] then",
    ),
    Mutant(
        "a longer delay does not reach who waits",
        "tune",
        "if at > host_now then call",
        "if false then call",
    ),
    Mutant(
        "a shorter delay does not reach who waits",
        "tune",
        " else call('ZREM', NEXT, host) end",
        " end",
    ),
    Mutant(
        "who asked to be left alone is not",
        "tune",
        "gap + SLACK_MS, tonumber(v[2]) or 0)",
        "gap + SLACK_MS, 0)",
    ),
    Mutant("a host that is moved has no slack", "tune", "gap + SLACK_MS", "gap"),
    Mutant(
        "hosts of other runs are moved",
        "tune",
        " or (v[3] ~= RUN and call('EXISTS', QUEUE .. host) == 0)",
    ),
    Mutant("hosts without a queue are not moved", "tune", "v[3] ~= RUN and ", ""),
    Mutant(
        "a host that others had last is not moved",
        "tune",
        " and call('EXISTS', QUEUE .. host) == 0",
        "",
    ),
    Mutant(
        "who waits for a host is not woken",
        "tune",
        "own = each_waiting(READY, own, wake)",
        "own = '-1'",
    ),
    Mutant(
        "who waits for a host is woken too soon",
        "tune",
        "math.max(host_now, tonumber(call('ZSCORE', NEXT, host)) or 0)",
        "host_now",
    ),
    Mutant(
        "a host's own delay is not kept",
        "host",
        "if its_gap ~= '-' and in_force(gap_until) then",
        "if false then",
    ),
    Mutant(
        "what nodes said outlives their last word",
        "host",
        "(tonumber(call('HGET', SHARD .. ':tuned', '@')) or 0) > host_now",
        "call('EXISTS', SHARD .. ':tuned') == 1",
    ),
    Mutant(
        "all words end with one of them", "tune", "math.max(last, tonumber(till))", "tonumber(till)"
    ),
    Mutant(
        "whose value it is depends on the order", "tune", " or (new[2] == old[2] and from == 's')"
    ),
    Mutant("a host's own delay never ends", "host", " and in_force(gap_until)"),
    Mutant(
        "a host's own limit is not kept",
        "host",
        "if its_most ~= '-' and in_force(most_until) then",
        "if false then",
    ),
    Mutant("a host's own limit never ends", "host", " and in_force(most_until)"),
    Mutant(
        "a host without a limit of its own is not fetched",
        "host",
        "its_most == '0' and NO_LIMIT or tonumber(its_most)",
        "tonumber(its_most)",
    ),
    Mutant(
        "a host's own delay is no gap", "shard", " or call('HEXISTS', SHARD .. ':tuned', host) == 1"
    ),
    # -- what operators do
    Mutant(
        "a rate that has changed is judged",
        "steer",
        "if expected ~= '=' and (call('HGET', rates, host) or '') ~= expected then",
        "if false then",
    ),
    Mutant(
        "a rate is judged, and not written",
        "steer",
        "elseif entry ~= '=' then",
        "elseif false then",
    ),
    Mutant("an act leaves no line", "steer", "  call('RPUSH', SHARD .. ':audit', line)\n"),
    Mutant(
        "a word that is taken back holds on",
        "steer",
        "if #gone > 0 then call('HDEL', key, unpack(gone)) end\n",
    ),
    Mutant(
        "a steered host is not known as one", "steer", "  call('SADD', SHARD .. ':steered', host)\n"
    ),
    Mutant("a host is steered for ever", "steer", "  call('SREM', SHARD .. ':steered', host)\n"),
    Mutant("a host that is due waits for its operator", "steer", "'LT', ", ""),
    Mutant("the last run's gap counts alone", "steer", "math.max(longest, gap)", "gap"),
    Mutant("a host that is steered has no slack", "steer", "+ longest + 5", "+ longest"),
    Mutant(
        "steering ends a pause that the host asked for",
        "steer",
        "longest + 5, tonumber(v[2]) or 0)",
        "longest + 5, 0)",
    ),
    Mutant(
        "who paused a run is kept",
        "pause",
        "'HDEL', META, 'paused', 'paused_by', 'paused_why'",
        "'HDEL', META, 'paused'",
    ),
    Mutant("a pause leaves no line", "pause", "call('RPUSH', SHARD .. ':audit', ARGV[5])\n"),
    # -- what comes from elsewhere
    Mutant("entries stay in their list", "take", "  call('LTRIM', KEYS[3], #entries, -1)\n"),
    Mutant("the lowest score goes first", "take", "'ZREVRANGE'", "'ZRANGE'"),
    Mutant("entries do not reopen a run", "take", "reopen()\n"),
    Mutant("restored requests do not reopen a run", "restore", "if added > 0 then reopen() end\n"),
    Mutant(
        "what is pending is restored",
        "restore",
        "if call('HEXISTS', BODY, id) == 0 then",
        "if true then",
    ),
    Mutant("who took a page is not restored", "restore", "    call('HSET', VISITED, member, id)\n"),
    Mutant(
        "which pages a request took is not restored",
        "restore",
        "  if pages > 0 then call('HSET', VISITS, id, members) end\n",
    ),
    Mutant(
        "links that were held back are not restored",
        "restore",
        "    if link ~= '' then call('HSETNX', PARKED, member, link) end\n",
    ),
    Mutant(
        "an export misses what leaves",
        "shard",
        "  if journal then call('HSET', LEFT, id, call('HGET', BODY, id) or '') end\n",
    ),
    Mutant(
        "an export that was too slow goes on",
        "journal",
        "if ARGV[2] == 'go_on' and",
        "if false and",
    ),
    Mutant(
        "an export leaves its notes",
        "journal",
        "META, 'journal')\n    call('UNLINK', LEFT)\n",
        "META, 'journal')\n",
    ),
    Mutant(
        "what is learned twice counts twice",
        "seen_learn",
        "if not is_seen(ARGV[i], '') then",
        "if true then",
    ),
    Mutant(
        "what is learned into a new part is not counted",
        "seen_learn",
        LEARNING + "on_commit()\n",
        "local before = newest.count\n"
        + LEARNING
        + "if newest.count ~= before then on_commit() end\n",
    ),
    Mutant("what is learned is not counted", "seen_learn", "on_commit()\n"),
)
