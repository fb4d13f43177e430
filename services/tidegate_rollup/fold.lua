-- The batch itself, part by part, and what is written at its end. Follows controls.lua.

-- Contributions of an older revision that is routed otherwise are mapped again.
local function map_again(revision)
  local repeats = 0
  for _, entry in ipairs(entries) do
    local source, high, high_ordinal, offset, ordinal, at, asset = unpack(entry)
    if has_repeats[source] and not is_above(high, high_ordinal, highs[source]) then
      repeats = repeats + 1
    elseif offset >= committed then
      local rest = string.format('"asset":%d,"revision":%d}', asset, revision)
      send(offset .. '.' .. ordinal .. '.2.0', entry[13], at, rest)
    end
  end
  return repeats
end

-- Contributions of the revision that holds are members of their round.
local function take()
  local repeats = 0
  round, writes, changed, deadlines = KEYS[rounds_from + number], {}, {}, {}
  mark = mark_of[number] or read_mark()
  values = call('HMGET', round, unpack(fields))
  exists = values[1]
  for n = 1, #entries do
    local source, high, high_ordinal,  -- coordinates on the source
      offset, ordinal, at,             -- place on the input log, time of the record
      asset, count, place,             -- the places of the asset's count and of the member among the fields
      needed, need,                    -- how many members are enough, -1 for more than there are; "size needed"
      date, event, key_end,            -- the date of the key or false; the event and where its key ends
      due, what = unpack(entries[n])   -- the deadline that it brings to its round, if any, and what happens then
    if has_repeats[source] and not is_above(high, high_ordinal, highs[source]) then
      repeats = repeats + 1
    elseif mark and is_past(offset, ordinal, at, asset, place, date, event, key_end) then
      -- the round stays as it is
    elseif values[place] then
      replace_or_keep(offset, ordinal, at, asset, place, date, event, key_end)
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
  if #writes > 0 then flush() end
  return repeats
end

local repeats, read = batch.repeats, batch.repeats
for _, part in ipairs(batch.parts) do
  if part[1] == 0 then
    change(unpack(part, 2))
  elseif part[1] == -1 then
    control(unpack(part, 2))
  else
    number, name, key_json, job_number, fields, entries, remapped = unpack(part)
    job, read = jobs[job_number], read + #entries
    local first = entries[1]
    change(job.id, job.revision, job.routing, first[4], first[5], first[6])
    local folded = newest(job.id, first[6])
    job_text = job.text
    if job.revision == folded.revision then
      repeats = repeats + take()
    elseif is_routed_alike(job.routing, folded) then
      job_text = by_revision(job_text, folded.revision)
      repeats = repeats + take()
    else
      repeats = repeats + map_again(folded.revision)
    end
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
