-- apply: fold a batch of contributions into one shard, by compare-and-set on the shard's offset (protocol.md R1).
--
-- KEYS[1] log     hash   next:<partition> next offset, at:<partition> time of the record before it,
--                        high:<source> "offset.ordinal" of the highest contribution folded (E1)
-- KEYS[2] outbox  hash   "offset.entry[.n]" -> what still has to be sent
-- KEYS[3] marks   hash   round -> "generation fired-at members"; members is "*" or ",asset:member,..." (R5)
-- KEYS[4] expiry  zset   round -> fired-at
-- KEYS[5] seen    zset   digest of (round, event) -> fired-at: the events of fired rounds, the replaced ones included
-- KEYS[6] open    zset   round -> 0, so that the open rounds of a job are a range by name
-- KEYS[7...]      hash   one per round of the batch: job, opened, need:<asset> "size needed", count:<asset>,
--                        date:<asset>, m:<asset>:<member> the member's event, x:<asset>:<member>:<key> further events
--                        of that member with other keys (D21), r:<event> replaced events
--
-- ARGV[1] partition   [2] offset that the caller believes is next, "" for none, "?" to be told only   [3] next offset
-- after the batch   [4] time of its last record   [5] committed offset: below it everything was acknowledged, so it
-- is folded in silence (R3)   [6] horizon in ms   [7] number of rounds   [8] number of jobs   [9] number of entries
-- then per round: name, key as JSON; per job: JobRef as JSON, clauses "0,1;2"; then per entry, see `next_entry`.
--
-- -> {1, repeats dropped, field, payload, ...} with what was added to the outbox, or
--    {0, next offset or "", time, field, payload, ...} with the whole outbox: nothing was applied.

local log, outbox, marks, expiry, seen, open = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local partition, believed, upto, last_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local committed, horizon = tonumber(ARGV[5]), tonumber(ARGV[6])
local rounds, jobs, entries = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local call = redis.call

local next_offset = call('HGET', log, 'next:' .. partition)
if believed == '?' or (next_offset or '') ~= believed then
  local reply = {0, next_offset or '', call('HGET', log, 'at:' .. partition) or '0'}
  for _, part in ipairs(call('HGETALL', outbox)) do
    reply[#reply + 1] = part
  end
  return reply
end

local cursor = 9
local function take()
  cursor = cursor + 1
  return ARGV[cursor]
end

local name, key_json = {}, {}
for n = 1, rounds do
  name[n], key_json[n] = take(), take()
end
local job_json, clauses = {}, {}
for n = 1, jobs do
  job_json[n], clauses[n] = take(), {}
  for clause in string.gmatch(take(), '[^;]+') do
    local assets = {}
    for asset in string.gmatch(clause, '%d+') do
      assets[#assets + 1] = asset
    end
    table.insert(clauses[n], assets)
  end
end

local function next_entry()
  return {
    offset = take(), entry = take(), at = take(),       -- where the contribution stands on the input log
    source = take(), high = take(), ordinal = take(),   -- its coordinates
    round = tonumber(take()), job = tonumber(take()),
    asset = take(), member = take(), size = take(), needed = take(), date = take(),
    keeps = take() == '1',                              -- whether other keys of one member are kept beside it
    windowed = take() == '1',
    event = take(),                                     -- "source id"
    key_end = tonumber(take()), id_end = tonumber(take()),
    stored = take(),                                    -- [key,id,source,at,date,carried,extra]; the two ends are
  }                                                     -- the lengths of its prefixes up to key and up to source
end

local highs = {}
local function is_repeat(e)
  local high = highs[e.source]
  if not high then
    local text = call('HGET', log, 'high:' .. e.source)
    local offset, ordinal = string.match(text or '-1.-1', '^(-?%d+)%.(-?%d+)$')
    high = {tonumber(offset), tonumber(ordinal)}
    highs[e.source] = high
  end
  local offset, ordinal = tonumber(e.high), tonumber(e.ordinal)
  if offset < high[1] or (offset == high[1] and ordinal <= high[2]) then
    return true
  end
  high[1], high[2] = offset, ordinal
  return false
end

local added = {}
local function put(e, suffix, payload)
  if tonumber(e.offset) < committed then
    return
  end
  local field = e.offset .. '.' .. e.entry .. suffix
  call('HSET', outbox, field, payload)
  added[#added + 1] = field
  added[#added + 1] = payload
end

local function audit(e, kind, other)
  put(e, '.1', '{"audit":"' .. kind .. '","job":' .. job_json[e.job] .. ',"key":' .. key_json[e.round]
    .. ',"at":' .. e.at .. ',"asset":' .. e.asset .. ',"event":' .. e.stored
    .. ',"other":' .. (other or 'null') .. '}')
end

local function mark_of(e)
  local text = call('HGET', marks, name[e.round])
  if not text then
    return nil
  end
  local generation, at, members = string.match(text, '^(%d+) (%d+) (.*)$')
  if tonumber(at) < tonumber(e.at) - horizon then
    return nil  -- expired by record time, whether or not it was removed yet
  end
  return {generation = tonumber(generation), members = members}
end

local function digest(e, event)
  return string.sub(redis.sha1hex(name[e.round] .. '\n' .. event), 1, 24)
end

local function was_fired(e)
  local at = call('ZSCORE', seen, digest(e, e.event))
  return at and tonumber(at) >= tonumber(e.at) - horizon
end

local function event_of(stored)
  local values = cjson.decode(stored)
  return values[3] .. ' ' .. values[2]
end

local function is_satisfied(round, job)
  for _, assets in ipairs(clauses[job]) do
    local all = true
    for _, asset in ipairs(assets) do
      local need = call('HGET', round, 'need:' .. asset)
      if not need or tonumber(call('HGET', round, 'count:' .. asset)) < tonumber(string.match(need, '%d+$')) then
        all = false
        break
      end
    end
    if all then
      return true
    end
  end
  return false
end

local function fire(e, round, mark)
  local fields = call('HGETALL', round)
  local generation = (mark and mark.generation or 0) + 1
  local events, windows, dates, present, complete, opened = {}, {}, {}, {}, true, 'null'
  local counts, needs = {}, {}
  local function remember(event)
    call('ZADD', seen, e.at, digest(e, event))
  end
  for n = 1, #fields, 2 do
    local field, value = fields[n], fields[n + 1]
    local kind, rest = string.match(field, '^(%l+):?(.*)$')
    if kind == 'm' or kind == 'x' then
      local asset, member = string.match(rest, '^(%d+):(%d+)')
      events[#events + 1] = '[' .. asset .. ',' .. member .. ',' .. value .. ']'
      if kind == 'm' then
        present[#present + 1] = asset .. ':' .. member
      end
      remember(event_of(value))
    elseif kind == 'r' then
      remember(rest)
    elseif kind == 'count' then
      counts[rest] = value
    elseif kind == 'need' then
      needs[rest] = string.match(value, '^%d+')
    elseif kind == 'date' then
      dates[#dates + 1] = '[' .. rest .. ',' .. value .. ']'
    elseif kind == 'opened' then
      opened = '"' .. value .. '"'
    end
  end
  for asset, size in pairs(needs) do
    windows[#windows + 1] = '[' .. asset .. ',' .. counts[asset] .. ',' .. size .. ']'
    complete = complete and counts[asset] == size
  end
  put(e, '', '{"job":' .. job_json[e.job] .. ',"key":' .. key_json[e.round] .. ',"generation":' .. generation
    .. ',"at":' .. e.at .. ',"opened":' .. opened .. ',"completed_by":' .. e.stored
    .. ',"windows":[' .. table.concat(windows, ',') .. '],"dates":[' .. table.concat(dates, ',')
    .. '],"events":[' .. table.concat(events, ',') .. ']}')
  local members = ''
  if e.windowed then
    members = complete and '*' or (',' .. table.concat(present, ',') .. ',')
  end
  call('HSET', marks, name[e.round], generation .. ' ' .. e.at .. ' ' .. members)
  call('ZADD', expiry, e.at, name[e.round])
  call('DEL', round)
  call('ZREM', open, name[e.round])
end

-- Puts the event into its member; answers whether the member is newly there and its asset now satisfied.
local function arrive(e, round)
  local field = 'm:' .. e.asset .. ':' .. e.member
  local old = call('HGET', round, field)
  if not old then
    if call('EXISTS', round) == 0 then
      call('HSET', round, 'job', job_json[e.job], 'opened', e.offset .. '.' .. e.entry .. '.' .. e.at)
      call('ZADD', open, 0, name[e.round])
    end
    call('HSET', round, field, e.stored, 'need:' .. e.asset, e.size .. ' ' .. e.needed)
    if e.date ~= '' then
      call('HSET', round, 'date:' .. e.asset, e.date)
    end
    return call('HINCRBY', round, 'count:' .. e.asset, 1) >= tonumber(e.needed)
  end
  local key = string.sub(e.stored, 1, e.key_end)
  if e.keeps and string.sub(old, 1, e.key_end) ~= key then
    field = 'x:' .. e.asset .. ':' .. e.member .. ':' .. key
    old = call('HGET', round, field)
  end
  if old and string.sub(old, 1, e.id_end) == string.sub(e.stored, 1, e.id_end)
    or call('HEXISTS', round, 'r:' .. e.event) == 1 then
    audit(e, 'duplicate-event', old)
    return false
  end
  if old then
    call('HSET', round, 'r:' .. event_of(old), '')
    audit(e, 'member-replaced', old)
  end
  call('HSET', round, field, e.stored)
  return false
end

local repeats = 0
for _ = 1, entries do
  local e = next_entry()
  if is_repeat(e) then
    repeats = repeats + 1
  else
    local round, mark = KEYS[6 + e.round], mark_of(e)
    if mark and was_fired(e) then
      audit(e, 'duplicate-event')
    elseif mark and e.windowed then
      local is_rerun = mark.members == '*'
        or string.find(mark.members, ',' .. e.asset .. ':' .. e.member .. ',', 1, true)
      audit(e, is_rerun and 'member-rerun' or 'member-late')
    elseif arrive(e, round) and is_satisfied(round, e.job) then
      fire(e, round, mark)
    end
  end
end

for source, high in pairs(highs) do
  call('HSET', log, 'high:' .. source, string.format('%d.%d', high[1], high[2]))
end
call('HSET', log, 'next:' .. partition, upto, 'at:' .. partition, last_at)

-- What expired by the time of the records: a bounded share of it in every call.
local gone = tonumber(last_at) - horizon
if gone > 0 then
  for _, round in ipairs(call('ZRANGEBYSCORE', expiry, '-inf', '(' .. string.format('%d', gone), 'LIMIT', 0, 100)) do
    call('HDEL', marks, round)
    call('ZREM', expiry, round)
  end
  for _, event in ipairs(call('ZRANGEBYSCORE', seen, '-inf', '(' .. string.format('%d', gone), 'LIMIT', 0, 1000)) do
    call('ZREM', seen, event)
  end
end

local reply = {1, repeats}
for n = 1, #added do
  reply[n + 2] = added[n]
end
return reply
