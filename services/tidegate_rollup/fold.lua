-- The batch itself, part by part, and what is written at its end. Follows controls.lua.

for first = 1, #KEYS - 1 - rounds_from, SLICE do
  local names = {}
  for n = first, math.min(first + SLICE - 1, #KEYS - 1 - rounds_from) do
    names[n - first + 1] = name_of(n)
  end
  for n, text in ipairs(call('HMGET', marks, unpack(names))) do
    mark_texts[first + n - 1] = text
  end
end

-- The next event begins at this place in the text of all.
local events, event_from = ARGV[8], 1

-- Contributions of an older revision that is routed otherwise are mapped again.
local function map_again(revision)
  local repeats, entry = 0, 0
  for _, group in ipairs(groups) do
    local source, offset, at, asset, needed, need, date, ordinals, coordinates = unpack(group)
    local rest = string.format('"asset":%d,"revision":%d}', asset, revision)
    local high = has_repeats[source] and cjson.decode(coordinates)
    for n, ordinal in ipairs(ordinals) do
      local event_end = find(events, '\n', event_from, true)
      local event = sub(events, event_from, event_end - 1)
      entry, event_from = entry + 1, event_end + 1
      if high and not is_above(high[2 * n - 1], high[2 * n], highs[source]) then
        repeats = repeats + 1
      elseif offset >= committed then
        send(offset .. '.' .. ordinal .. '.2.0', event, at, rest)
      end
    end
  end
  return repeats, entry
end

-- Contributions of the revision that holds are members of their round.
local function take()
  local repeats, entry, members_from = 0, 0, 1 + 2 * job.assets
  round, writes, changed, deadlines = KEYS[rounds_from + number], {}, {}, {}
  mark = mark_of[number] or read_mark()
  values = call('HMGET', round, unpack(fields))
  exists = values[1]
  for g = 1, #groups do
    local source, offset, at, asset,  -- place of the record on the input log, and its time
      needed, need,                   -- how many members are enough, -1 for more than there are; "size needed"
      date,                           -- the date of the key or false
      ordinals, coordinates,          -- of each entry its place in the record; JSON of offset and ordinal on the source
      due, what = unpack(groups[g])   -- the deadline that they bring to the round, if any, and what happens then
    local count, high = 2 + 2 * asset, has_repeats[source] and cjson.decode(coordinates)
    for n = 1, #ordinals do
      local event_end = find(events, '\n', event_from, true)
      local ordinal, event = ordinals[n], sub(events, event_from, event_end - 1)
      entry, event_from = entry + 1, event_end + 1
      local place = places and places[entry] or members_from + entry
      if high and not is_above(high[2 * n - 1], high[2 * n], highs[source]) then
        repeats = repeats + 1
      elseif mark and is_past(offset, ordinal, at, asset, place, date, event) then
        -- the round stays as it is
      elseif values[place] then
        replace_or_keep(offset, ordinal, at, asset, place, date, event)
      else
        local arrived, written = (values[count] or 0) + 1, #writes
        values[place], values[count], values[count + 1], changed[asset] = event, arrived, need, changed[asset] or date
        writes[written + 1], writes[written + 2] = fields[place], event
        if not values[1] then values[1] = offset .. '.' .. ordinal .. '.' .. at end
        if due then bring_deadline(due, what) end
        if arrived >= needed and (needed < 0 or job.alone[asset] or is_satisfied()) then
          fire(offset, ordinal, at, event, asset, needed, arrived, need)
        end
      end
    end
  end
  if #writes > 0 then flush() end
  return repeats, entry
end

local repeats, read = batch.repeats, batch.repeats
for _, part in ipairs(batch.parts) do
  if part[1] == 0 then
    change(unpack(part, 2))
  elseif part[1] == -1 then
    control(unpack(part, 2))
  else
    number, key_json, job_number, fields, groups, places, remapped = unpack(part)
    name, job = name_of(number), jobs[job_number]
    local _, offset, at, _, _, _, _, ordinals = unpack(groups[1])
    change(job.id, job.revision, job.routing, offset, ordinals[1], at)
    local folded, repeated, taken = newest(job.id, at)
    job_text = job.text
    if job.revision == folded.revision then
      repeated, taken = take()
    elseif is_routed_alike(job.routing, folded) then
      job_text = by_revision(job_text, folded.revision)
      repeated, taken = take()
    else
      repeated, taken = map_again(folded.revision)
    end
    repeats, read = repeats + repeated, read + taken
  end
end

in_slices('HSET', marks, new_marks)
for round_name, text in pairs(kept_of) do
  call('HSET', kept, round_name, text)
end
in_slices('ZADD', expiry, new_expiry)
in_slices('ZADD', seen, new_seen)
in_slices('HSET', outbox, reply, 3)

for source_name, high in pairs(latest) do
  call('HSET', log, 'high:' .. source_name, string.format('%d.%d', high.offset, high.ordinal))
  if high.at then call('ZADD', replays, high.at, source_name) end
end
if upto ~= believed then  -- a call that moves nothing need not know the time of the record before
  call('HSET', log, 'next:' .. partition, upto, 'at:' .. partition, last_at)
end

-- What expired by the time of the records: a bounded share of it in every call, more than a call adds.
local expired = tonumber(last_at) - horizon
if expired > 0 then
  local before, share = '(' .. string.format('%d', expired), SLICE + 2 * read
  local rounds = call('ZRANGEBYSCORE', expiry, '-inf', before, 'LIMIT', 0, share)
  in_slices('HDEL', marks, rounds)
  in_slices('HDEL', kept, rounds)
  in_slices('ZREM', expiry, rounds)
  in_slices('ZREM', seen, call('ZRANGEBYSCORE', seen, '-inf', before, 'LIMIT', 0, share))
  local long_gone = '(' .. string.format('%d', tonumber(last_at) - REMEMBERED)
  local deleted = call('ZRANGEBYSCORE', gone, '-inf', long_gone, 'LIMIT', 0, share)
  in_slices('HDEL', revisions, deleted)
  in_slices('ZREM', gone, deleted)
  local replayed = call('ZRANGEBYSCORE', replays, '-inf', long_gone, 'LIMIT', 0, share)
  for _, source_name in ipairs(replayed) do
    call('HDEL', log, 'high:' .. source_name)
  end
  in_slices('ZREM', replays, replayed)
end

reply[2] = repeats
return reply
