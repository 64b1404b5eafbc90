"""Faults put into the Lua on purpose. Most are a published bug of some other queue."""

from __future__ import annotations

from dataclasses import dataclass

from orbweb.frontier.scripts import lua_text


@dataclass(frozen=True, slots=True)
class Mutant:
    """What is wrong, in which file, and the text that makes it wrong."""

    name: str
    file: str
    text: str
    instead: str = ""

    def build(self) -> dict[str, str]:
        """The changed file by name. The text must be there once: a mutant that changes nothing
        would look like a survivor, and one that changes two places like an easy kill."""
        source = lua_text(self.file)
        found = source.count(self.text)
        assert found == 1, f"{self.name}: the text stands {found} times in {self.file}.lua"
        return {self.file: source.replace(self.text, self.instead)}


MUTANTS = (
    Mutant(
        "fences off",
        "shard",
        "return call('HGET', OWNER, id) == token",
        "return call('HGET', OWNER, id)",
    ),
    Mutant(
        "responses are kept without end",
        "shard",
        "if room and call('HLEN', OF_DEAD.responses) < room then",
        "if room then",
    ),
    Mutant(
        "a response stays when its dead letter goes",
        "redrive",
        "  call('HDEL', OF_DEAD.responses, id)\n",
    ),
    Mutant(
        "a dead letter forgets who held it",
        "nack",
        "ARGV[i + 4], ARGV[i + 5], token)",
        "ARGV[i + 4], ARGV[i + 5])",
    ),
    Mutant("a shorter pause ends a longer one", "host", "'GT', "),
    Mutant(
        "a host that asked for a pause is asked on",
        "claim",
        "if at > host_now + LOOK_AHEAD_MS then",
        "if false then",
    ),
    Mutant(
        "forgotten links of a long page are not noticed",
        "ack",
        "if emitted ~= '0' and call",
        "if false and call",
    ),
    Mutant(
        "links of a long page are counted for the wrong lease",
        "emit",
        "by == token and tonumber(last) or 0",
        "by and tonumber(last) or 0",
    ),
    Mutant(
        "a repeated step of a long page enters again",
        "emit",
        "if step <= last then return 1 end\n",
    ),
    Mutant(
        "a forgotten step of a long page is not noticed",
        "emit",
        "if step > last + 1 then return 0 end\n",
    ),
    Mutant(
        "a node leaves nothing to the others",
        "claim",
        "math.ceil(share / (rivals + 1)) - of_node",
        "share - of_node",
    ),
    Mutant(
        "a run leaves nothing to the others",
        "claim",
        "math.ceil(most / (runs + 1))",
        "concurrency",
    ),
    Mutant(
        "nodes that have enough still count as rivals",
        "claim",
        "else call('ZREM', HUNGRY, node) end",
        "end",
    ),
    Mutant(
        "seeding is not given back",
        "nack",
        "    unlease(id)\n    answer[#answer + 1] = 1\n  elseif",
        "    answer[#answer + 1] = 1\n  elseif",
    ),
    Mutant(
        "where a redirect led is not seen",
        "visit",
        "call('HSET', VISITED, member, id)\nremember(member, ARGV[5])\n",
        "call('HSET', VISITED, member, id)\n",
    ),
    Mutant(
        "a second attempt may not go where the first went",
        "visit",
        "if owner ~= id and call('HEXISTS', BODY, owner) == 1 then",
        "if true then",
    ),
    Mutant(
        "a redirect goes where another went",
        "visit",
        "  if owner ~= id and call('HEXISTS', BODY, owner) == 1 then return 0 end\n",
    ),
    Mutant(
        "a page that a redirect took is not held back",
        "push",
        "call('HSETNX', PARKED, member, id",
        "tostring(id",
    ),
    Mutant(
        "a page stays lost with the request that took it",
        "shard",
        "if link and died and call('HEXISTS', BODY, link) == 0 then",
        "if false then",
    ),
    Mutant(
        "a page that was taken well is fetched again",
        "shard",
        "if link and died and call",
        "if link and call",
    ),
    Mutant(
        "a page is not free after the death of the request that took it",
        "push",
        "  call('HDEL', VISITED, member)\n  return true\n",
        "  return false\n",
    ),
    Mutant(
        "whoever lost the lease visits", "visit", "if not owns(id, ARGV[3]) then return -1 end\n"
    ),
    Mutant(
        "visits are kept for ever",
        "shard",
        "    if link or not died then call('HDEL', VISITED, member) end\n",
    ),
    Mutant("ack keeps the slot", "ack", "    free_slot(id, token, host)\n"),
    Mutant("nack keeps the slot", "nack", "    free_slot(id, token, host)\n"),
    Mutant(
        "fetched keeps the slot", "fetched", "free_slot(ARGV[i], ARGV[i + 1], (unpack_body(body)))"
    ),
    Mutant(
        "no look at what was seen",
        "push",
        "if seen or call",
        "if call",
    ),
    Mutant("no look at what is pending", "push", " or call('HEXISTS', BODY, id) == 1"),
    Mutant("nothing is remembered", "push", "  if member ~= '' then remember(member, host) end\n"),
    Mutant("clock jumps", "shard", "elseif passed > step then passed = step end", "end"),
    Mutant("clock goes back", "shard", "if passed < 0 then passed = 0 elseif", "if"),
    Mutant(
        "no end to deliveries", "shard", "if deliveries >= max_deliveries then", "if false then"
    ),
    Mutant(
        "renew revives what is lost",
        "renew",
        "  if owns(ARGV[i], ARGV[i + 1]) then\n    call('ZADD', DEADLINE, 'XX', ",
        "  if true then\n    call('ZADD', DEADLINE, ",
    ),
    Mutant(
        "claim sets no deadline",
        "claim",
        "  add(deadlines, now + lease, id)\n",
    ),
    Mutant(
        "host leaves the line with requests left",
        "claim",
        "    look_again(host, host_now) -- back of the line",
        "    call('ZREM', READY, host)",
    ),
    Mutant(
        "host stays in the line without requests",
        "claim",
        "    left[#left + 1] = host\n",
        "    look_again(host, host_now + 1)\n",
    ),
    Mutant("end is forgotten", "shard", "on_commit() end\n  finish()\n", "on_commit() end\n"),
    Mutant(
        "end is early",
        "shard",
        "call('HLEN', BODY) == 0 then mark_done() end",
        "call('HLEN', BODY) == call('ZCARD', DEADLINE) then mark_done() end",
    ),
    Mutant(
        "repeated seeds enter again",
        "batch",
        "  if batch <= cursor then return {'duplicate', cursor, 0} end\n",
    ),
    Mutant(
        "gap in seeds is not noticed",
        "batch",
        "  if batch > cursor + 1 then return {'gap', cursor, 0} end\n",
    ),
    Mutant("two nodes seed", "seed_claim", "call('HEXISTS', OWNER, SEED) == 1 and", "false and"),
    Mutant(
        "replay hands out nothing",
        "claim",
        "local body = owns(id, token) and call('HGET', BODY, id)",
        "local body = false",
    ),
    Mutant(
        "replay hands out what is lost",
        "claim",
        "local body = owns(id, token) and call('HGET', BODY, id)",
        "local body = call('HGET', BODY, id)",
    ),
    Mutant("old claim is a new one", "claim", "if number < tonumber(last) then", "if false then"),
    Mutant("retries are not counted", "nack", "retries = retries + 1", "retries = retries + 0"),
    Mutant(
        "release is counted",
        "nack",
        "if kind ~= '0' then\n      retries",
        "if true then\n      retries",
    ),
    Mutant(
        "backoff is ignored",
        "nack",
        "if backoff > 0 then call('ZADD', DELAYED, now + backoff, id) else",
        "if false then call('ZADD', DELAYED, now + backoff, id) else",
    ),
    Mutant("failed page loses its error", "ack", "if text ~= '' then", "if false then"),
    Mutant(
        "waiting runs are not woken",
        "shard",
        "for _, run in ipairs(runs) do call('ZADD', run .. ':ready', 'XX', at, host) end",
    ),
    Mutant(
        "split loses what it moves",
        "seen_exact",
        "    call('SADD', new, unpack(members, i, math.min(i + 999, #members)))\n",
    ),
    Mutant(
        "a split moves one too few",
        "seen_exact",
        "if spread(members[middle]) < border then",
        "if spread(members[middle]) <= border then",
    ),
    Mutant(
        "a mark is looked for in the bucket before it",
        "seen_exact",
        "if bucket < part.size - low then",
        "if bucket <= part.size - low then",
    ),
    Mutant(
        "a page that is new is seen at once, whatever becomes of it",
        "seen",
        "  if seen then known[member] = true end\n",
        "  known[member] = true\n",
    ),
    Mutant(
        "older parts are not looked at", "seen", "if seen_has(older[i], mark) then return true end"
    ),
    Mutant(
        "a full part takes more",
        "seen",
        "if newest.capacity > 0 and newest.count >= newest.capacity then next_part(true) end",
    ),
    Mutant(
        "what is seen is not counted",
        "seen",
        "if seen_put(newest, mark) then newest.count = newest.count + 1 end",
        "seen_put(newest, mark)",
    ),
    Mutant(
        "generations never end",
        "seen",
        "    if newest.count > 0 then\n      next_part(false)\n",
        "    if newest.count > 0 then\n",
    ),
    Mutant(
        "an error of the filter drops what it must not drop",
        "seen",
        "  if sure then return call('SISMEMBER', seen_base .. ':sure', mark) == 1 end\n",
        "",
    ),
    Mutant(
        "what no error may drop is not kept apart",
        "seen",
        "  if sure then call('SADD', seen_base .. ':sure', mark) end\n",
    ),
    Mutant(
        "a forgotten host is seen",
        "seen",
        "  if times then mark = after_forgetting(mark, times) end\n",
        "",
    ),
    Mutant(
        "a host that is forgotten twice is seen",
        "seen",
        "redis.sha1hex(times .. ' ' .. mark)",
        "redis.sha1hex('1 ' .. mark)",
    ),
    Mutant(
        "compact looks at the bucket alone", "seen_compact", "high % 4294967296 - ", "0 * high - "
    ),
    Mutant(
        "compact looks in one bucket",
        "seen_compact",
        "memo_low % part.size",
        "0 * memo_low",
    ),
    Mutant(
        "compact does not grow",
        "seen_compact",
        "return part.size * 2, part.capacity * 2, part.layer + 1",
        "return part.size, part.capacity, part.layer + 1",
    ),
    Mutant(
        "bloom looks at four words of sixteen",
        "seen_bloom",
        "for word = 1, 13, 4 do",
        "for word = 1, 4, 4 do",
    ),
    Mutant(
        "bloom forgets what its block held",
        "seen_bloom",
        "words[word], is_new = words[word] + power, true",
        "words[word], is_new = power, true",
    ),
    Mutant(
        "forgotten parts stay",
        "seen_forget",
        "      call('SADD', SHARD .. ':garbage', part.key .. ' ' .. int(seen_keys(kind, part.size))"
        " .. ' ' .. kind)\n",
    ),
    Mutant(
        "bloom has one layer", "seen_bloom", "if number == part.layer + 1 then", "if false then"
    ),
    Mutant(
        "another kind may join", "open", "if run_kind and run_kind ~= kind then", "if false then"
    ),
    Mutant(
        "another kind may share what a job has seen",
        "open",
        "if job_kind and job_kind ~= kind then",
        "if false then",
    ),
    Mutant(
        "forgetting leaves the page",
        "seen_forget",
        "local dropped = seen_drop(part, mark)",
        "local dropped = false",
    ),
    Mutant(
        "young parts are forgotten",
        "seen_forget",
        "if old or wall - begun >= age then",
        "if true then",
    ),
    Mutant("no quarantine", "shard", "if token and not has_gap(host) then", "if token then"),
    Mutant(
        "quarantine never ends",
        "claim",
        "if used > 0 then used =",
        "if false then used =",
    ),
    Mutant(
        "delay is ignored",
        "claim",
        "          at = reserve(host, at)\n",
    ),
    Mutant("hosts have no limit", "claim", "local free = most -", "local free = 99 -"),
    Mutant("last in is first out", "shard", "PRIORITY_STEP + seq, id", "PRIORITY_STEP - seq, id"),
    Mutant(
        "reaped requests lose their priority",
        "shard",
        "        enqueue(id, host, priority)\n      end\n    end\n  end\n",
        "        enqueue(id, host, 0)\n      end\n    end\n  end\n",
    ),
    Mutant("added requests do not reopen", "add", "if added + sent > 0 then reopen() end\n"),
    Mutant(
        "added requests of other shards do not reopen", "add", "if added + sent > 0", "if added > 0"
    ),
    Mutant("delivered requests do not reopen", "deliver", "if added > 0 then reopen() end\n"),
    Mutant(
        "what is on its way is not pending",
        "shard",
        "return shards > 1 and call('ZCARD', OUTBOX) or 0",
        "return 0",
    ),
    Mutant("one shard of several ends the run", "shard", "if shards == 1 and state", "if state"),
    Mutant(
        "what is sent again goes to the end",
        "push",
        "if not call('ZSCORE', OUTBOX, row) then",
        "if true then",
    ),
    Mutant(
        "what is sent away does not change the version",
        "push",
        "      seq = seq + 1\n      sent = sent + 1\n",
        "      sent = sent + 1\n",
    ),
    Mutant("links to other shards are lost", "ack", "    send_argv(first_other, others)\n"),
    Mutant(
        "links of a long page to other shards are lost",
        "emit",
        "send_argv(7 + children * 5, tonumber(ARGV[6]))\n",
    ),
    Mutant(
        "seeds of other shards are lost",
        "seed_push",
        "send_argv(7 + seeds * 5, tonumber(ARGV[6]))\n",
    ),
    Mutant("seeds not taken count again", "seed_push", "total - told)", "total)"),
    Mutant("one row of the outbox is not trimmed", "trim", "for i = 2", "for i = 3"),
    Mutant(
        "a run is closed although something has entered",
        "close",
        "seq == tonumber(ARGV[2]) and ",
    ),
    Mutant(
        "a run is closed with work in its outbox",
        "close",
        "call('HLEN', BODY) + away() + call",
        "call('HLEN', BODY) + call",
    ),
    Mutant("a closed run is not reopened", "reopen", "reopen()\n"),
    Mutant(
        "an old run takes the place of a new one",
        "open",
        "    if found and tonumber(v[3]) >= started then return lost_run() end\n",
    ),
    Mutant(
        "a part that is lost is made anew",
        "open",
        "  if part and ARGV[23] == '0' then return lost_run() end\n",
    ),
    Mutant("nobody knows that all parts are there", "lay", "call('HSET', META, 'laid', '1')\n"),
    Mutant(
        "reset run can be used on",
        "shard",
        "  call('HDEL', base .. ':meta', 'state')\n",
    ),
    Mutant(
        "finished run lives for ever",
        "open",
        "elseif not part and found == 'done' and wall",
        "elseif false and wall",
    ),
    Mutant("resident run ends", "open", "  call('HSET', BODY, HOLD, pack_body(HOLD, 0, 0, ''))\n"),
    Mutant(
        "hint is longer than a clock's step",
        "claim",
        "math.min(at - clock, step)",
        "at - clock",
    ),
    Mutant(
        "the delay of the other run is not kept", "host", "gap = math.max(gap, others[i + 1])", ""
    ),
    Mutant(
        "a silent run has a say for ever", "host", "tonumber(spoke) > host_now - ACTIVE_MS", "true"
    ),
    Mutant("a run has no say", "shard", "  call('HSET', PACE, RUN, ", "  call('HGET', PACE, "),
    Mutant(
        "the limit is not kept",
        "host",
        "if v[1] and in_force(v[2]) then gap",
        "if false then gap",
    ),
    Mutant("a limit never ends", "host", "return at == 0 or at > wall", "return true"),
    Mutant("crawl delay is not kept", "host", "if v[4] then gap", "if false then gap"),
    Mutant("a pause does not hold", "host", "if v[3] and in_force(v[3]) then", "if false then"),
    Mutant(
        "an open circuit lets requests pass",
        "host",
        "if open_until > host_now then",
        "if false then",
    ),
    Mutant("the trial is a flood", "host", "most = 1 -- one", "-- one"),
    Mutant(
        "unapproved hosts are not held back", "host", "needs_approval == 1 and unapproved or 0", "0"
    ),
    Mutant(
        "an approval that ended counts", "host", "if v[5] and in_force(v[6]) then", "if v[5] then"
    ),
    Mutant(
        "no room for a late sender",
        "host",
        "gap + (slack or math.min(SLACK_MS, math.floor(gap * 0.8) / 16))",
        "gap",
    ),
    Mutant("rates do not decay", "host", "2 ^ (-since / HALF_LIFE_MS)", "1"),
    Mutant("a lost lease gets a permit", "permit", "owns(id, ARGV[3]) and call", "call"),
    Mutant(
        "a permit far ahead is granted",
        "permit",
        "if at > host_now + LATEST_MS then",
        "if false then",
    ),
    Mutant(
        "a permit reserves nothing",
        "permit",
        "gap > 0 and mark(reserve(host, at, tonumber(ARGV[5]))) or '0'",
        "gap > 0 and mark(at) or '0'",
    ),
    Mutant(
        "a permit takes the turn of another",
        "permit",
        "if ARGV[4] ~= '0' and mark(tonumber(call('ZSCORE', NEXT, host)) or 0) == ARGV[4] then",
        "if ARGV[4] ~= '0' then",
    ),
    Mutant(
        "a good answer does not break the row",
        "report",
        "(good > 0 and 0 or number(v[1])) + streak",
        "number(v[1]) + streak",
    ),
    Mutant("the circuit never closes", "report", "if opens > 0 and good > 0 then", "if false then"),
    Mutant(
        "late answers open the circuit again",
        "report",
        "if number(v[3]) > host_now then return end",
        "if false then return end",
    ),
    Mutant("refusals do not add up", "report", "refused_pause * 2 ^ refusals", "refused_pause"),
    Mutant(
        "a crowded host is asked for more",
        "report",
        "refused > 0 or failures * 5 > answers or",
        "if false and",
    ),
    Mutant("the throttle does not settle", "report", "if host_now < settle then return end", ""),
    Mutant("blocked hosts return together", "hold_off", " + jitter(ARGV[i], math.floor(ms / 2))"),
    Mutant(
        "a host with many slots goes first",
        "claim",
        "if one.slots ~= other.slots then return one.slots < other.slots end",
        "if one.slots ~= other.slots then return one.slots > other.slots end",
    ),
    Mutant(
        "a paused run goes on",
        "claim",
        "if paused == 0 then take_from_ready_hosts() end",
        "take_from_ready_hosts()",
    ),
    Mutant(
        "a long queue keeps its place",
        "claim",
        "if backlog_limit > 0 and call",
        "if false and call",
    ),
    Mutant("a run takes every turn", "claim", "last_run ~= RUN or", "true or"),
    Mutant(
        "all hosts are everybody's",
        "turn",
        "== mine then return true end",
        "then return true end",
    ),
    Mutant(
        "a dead node keeps its hosts",
        "turn",
        "NODES, now - SILENT_MS, '+inf'",
        "NODES, '-inf', '+inf'",
    ),
    Mutant(
        "the deal holds although other nodes live",
        "turn",
        "if all_live and #dealt == #nodes then",
        "if #dealt > 0 then",
    ),
    Mutant(
        "the deal holds although a node has come",
        "turn",
        "if all_live and #dealt == #nodes then",
        "if all_live and #dealt > 1 then",
    ),
    Mutant("who is behind waits", "turn", "behind = load < mean - margin", "behind = false"),
    Mutant(
        "who is ahead does not wait",
        "turn",
        "ahead = load > mean + margin and rivals > 0",
        "ahead = false",
    ),
    Mutant("repair repairs what is sound", "fsck", "elseif not queued then", "elseif true then"),
)

TORN_MUTANTS = (
    Mutant(
        "parent leaves before its children",
        "ack",
        """    push_argv(i + 10, children)
    send_argv(first_other, others)
    local host, _, retries = unpack_body(body)
""",
        """    forget(id)
    push_argv(i + 10, children)
    send_argv(first_other, others)
    local host, _, retries = unpack_body(body)
""",
    ),
    Mutant(
        "seen is written before the request",
        "push",
        "  call('HSET', BODY, id, pack_body(host, priority, 0, payload))\n",
        "  if member ~= '' then remember(member, host) end\n"
        "  call('HSET', BODY, id, pack_body(host, priority, 0, payload))\n",
    ),
    Mutant(
        "request is forgotten before it is buried",
        "nack",
        "      bury(id, body, retries, ARGV[i + 4], ARGV[i + 5], token)\n"
        "      end_visits(id, true)\n      forget(id)\n",
        "      forget(id)\n      bury(id, body, retries, ARGV[i + 4], ARGV[i + 5], token)\n"
        "      end_visits(id, true)\n",
    ),
    Mutant(
        "poison leaves before it is buried",
        "shard",
        "        bury(id, body, retries + deliveries, 'poison', text, token)\n"
        "        end_visits(id, true)\n        forget(id)\n",
        "        forget(id)\n        bury(id, body, retries + deliveries, 'poison', text, token)\n"
        "        end_visits(id, true)\n",
    ),
    Mutant("repair finds nothing", "fsck", "    enqueue(id, host, priority)\n"),
    Mutant(
        "a dead letter goes before its response",
        "redrive",
        "  call('HDEL', OF_DEAD.responses, id)\n  call('HDEL', DEAD, id)\n",
        "  call('HDEL', DEAD, id)\n  call('HDEL', OF_DEAD.responses, id)\n",
    ),
)
"""Wrong only when a write is torn: `test_torn_writes` must catch them."""
