-- turn: which node may take which host when. Stands behind host.lua in front of the claim; no
-- transition itself.

local SILENT_MS = 15000 -- a node that has not spoken for so long has no hosts of its own
local HANDS = 256 -- hosts are dealt to nodes in so many hands
local RATE_TO_SHARE = 10000 -- with fewer fetches than ten of late no host is too much for one node
local MOST_OWED = 64 -- fetches that a node may have had less and still catches up

local me -- the node that claims
local nodes, numbers, deal = {}, {}, nil -- nodes that live, two numbers of each, owner of each hand
local mine -- how this node stands in the deal
local heavy, is_heavy = {}, {} -- hosts that are worth more than one node, as a list and as a set
local all_rate -- decayed count of all fetches of the shard
local rivals -- other nodes of the run that could do with more
local load, mean = 0, 0 -- how much this node was handed out, and the nodes on average
local is_new = false -- it was not in the count before
local behind, ahead = false, false

-- Whose host it is. Every node would do, but one that comes to a host again has a connection and its
-- name resolved. Hosts are dealt in hands by rendezvous hashing (D. Thaler, C. Ravishankar, 1996) over
-- the nodes that live, so those of a dead node are spread and no others move. A host that takes more
-- than a node's part of all fetches, by its exact rate, belongs to as many nodes as its part is worth.
local function read_numbers()
  if #numbers > 0 then return end
  for i, name in ipairs(nodes) do
    local digest = redis.sha1hex(name)
    numbers[i] = {tonumber(string.sub(digest, 1, 7), 16), tonumber(string.sub(digest, 8, 14), 16)}
  end
end

local function weight(hand, i)
  return ((hand + 1) * numbers[i][1] + numbers[i][2]) % 2147483647
end

local function deal_hands()
  read_numbers()
  local owners = {}
  for hand = 0, HANDS - 1 do
    local best, best_weight = 1, -1
    for i = 1, #nodes do
      local its_weight = weight(hand, i)
      if its_weight > best_weight then best, best_weight = i, its_weight end
    end
    owners[#owners + 1] = string.format('%04d', best)
  end
  deal = table.concat(owners)
  call('HSET', HOMES, 'nodes', table.concat(nodes, '\n'), 'deal', deal)
end

-- Deals the hands anew when other nodes live than at the last deal; else it holds, and so does the order
-- of the nodes then, which costs less than to sort them again.
local function read_nodes()
  nodes = call('ZRANGEBYSCORE', NODES, now - SILENT_MS, '+inf')
  local lives = {}
  for _, name in ipairs(nodes) do lives[name] = true end
  if not lives[me] then
    nodes[#nodes + 1], lives[me] = me, true
  end
  if #nodes == 1 then return end
  local v = call('HMGET', HOMES, 'nodes', 'deal', 'heavy')
  deal = v[2]
  for host in string.gmatch(v[3] or '', '[^\n]+') do
    heavy[#heavy + 1] = host
    is_heavy[host] = true
  end
  local dealt, all_live = {}, true
  for name in string.gmatch(v[1] or '', '[^\n]+') do
    dealt[#dealt + 1] = name
    all_live = all_live and lives[name]
  end
  if all_live and #dealt == #nodes then
    nodes = dealt
  else
    table.sort(nodes)
    deal_hands()
  end
  for i, name in ipairs(nodes) do if name == me then mine = string.format('%04d', i) end end
end

local function is_among_first(hand, parts)
  read_numbers()
  local own, heavier = 0, 0
  for i, name in ipairs(nodes) do if name == me then own = weight(hand, i) end end
  for i = 1, #nodes do if weight(hand, i) > own then heavier = heavier + 1 end end
  return heavier < parts
end

-- How many nodes a host of this rate is worth.
local function parts_of(its_rate)
  if all_rate < RATE_TO_SHARE then return 1 end
  return math.floor(its_rate * #nodes / all_rate + 0.5)
end

local function rate_of(host)
  local v = call('HMGET', HOST .. host, 'rate', 'rate_at')
  return decayed(v[1], v[2])
end

-- Keeps the list of heavy hosts, as one of them is taken: few can be on it at a time, so that nobody
-- need look up the rates of all others. Who has become light without being taken leaves it when the
-- next one enters.
local function note_weight(host, its_rate)
  if #nodes == 1 then return end
  local enters = parts_of(its_rate) > 1
  if enters == (is_heavy[host] or false) then return end
  local kept = {}
  for _, other in ipairs(heavy) do
    if other ~= host and (not enters or parts_of(rate_of(other)) > 1) then
      kept[#kept + 1] = other
    else
      is_heavy[other] = nil
    end
  end
  if enters then kept[#kept + 1], is_heavy[host] = host, true end
  heavy = kept
  if #heavy > 0 then
    call('HSET', HOMES, 'heavy', table.concat(heavy, '\n'))
  else
    call('HDEL', HOMES, 'heavy')
  end
end

local function is_own(host)
  if #nodes == 1 then return true end
  local hand = tonumber(string.sub(redis.sha1hex(host), 1, 4), 16) % HANDS
  if string.sub(deal, hand * 4 + 1, hand * 4 + 4) == mine then return true end
  if not is_heavy[host] then return false end
  local parts = parts_of(rate_of(host))
  return parts > 1 and is_among_first(hand, parts)
end

-- Who has had less than the others need not wait for its turn; who has had more leaves it to them.
local function read_loads()
  local loads, sum, known_loads = {}, 0, 0
  local words = call('HGETALL', LOADS)
  for i = 1, #words, 2 do loads[words[i]] = tonumber(words[i + 1]) end
  for _, name in ipairs(nodes) do
    if loads[name] then sum, known_loads = sum + loads[name], known_loads + 1 end
  end
  mean = known_loads > 0 and math.floor(sum / known_loads) or 0
  is_new = not loads[me]
  load = math.max(loads[me] or 0, mean - MOST_OWED)
  local margin = 6 + math.floor(mean / 12)
  behind = load < mean - margin
  ahead = load > mean + margin and rivals > 0
end

local function read_turns(node)
  me = node
  call('ZREMRANGEBYSCORE', HUNGRY, '-inf', now - RIVAL_MS)
  rivals = call('ZCARD', HUNGRY) - (call('ZSCORE', HUNGRY, me) and 1 or 0)
  local v = call('HMGET', SHARD .. ':clock', 'rate', 'rate_at')
  all_rate = decayed(v[1], v[2])
  read_nodes()
  if #nodes > 1 then read_loads() end
end

-- From when on the host is this node's to take, as measured from the time at which it is free.
-- `fresh`: it has come into the line just then, so that its own nodes could not know of it before.
local function patience(own, fresh)
  if behind or (own and not ahead) then return -LOOK_AHEAD_MS end
  return fresh and NOTICE_MS or -SPARE_MS
end
