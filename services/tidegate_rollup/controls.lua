-- What changes rounds without a contribution: definitions (R6), deadlines and people (R4). Follows apply.lua.

-- Makes `revision` the newest of a job, where it is; its open rounds wait in the outbox then, unless they are routed alike.
local function change(id, revision, routing, offset, ordinal, at, is_deleted)
  local before = newest(id, at)
  if revision <= before.revision then
    return
  end
  newest_of[id] = {revision = revision, routing = routing, gone_at = is_deleted and at or nil}
  call('HSET', revisions, id, string.format('%d %s', revision, routing))
  if is_deleted then call('ZADD', gone, at, id) else call('ZREM', gone, id) end
  if is_routed_alike(routing, before) then
    return
  end
  local names = call('ZRANGEBYLEX', open, '[' .. id .. '/', '(' .. id .. '0')  -- "0" comes after "/"
  for n, moved in ipairs(names) do
    if offset >= committed then
      local place, last = offset .. '.' .. ordinal .. '.2.' .. n, #reply
      call('RENAME', prefix .. 'round:' .. moved, prefix .. 'moved:' .. place)
      reply[last + 1] = place
      reply[last + 2] = string.format('{"revision":%d,"at":', revision) .. at .. '}\n' .. moved
    else
      call('DEL', prefix .. 'round:' .. moved)
    end
    forget_deadlines(moved)
  end
  in_slices('ZREM', open, names)
end

local function fields_of_round()
  local found = {'opened'}
  for asset = 0, job.assets - 1 do
    found[#found + 1], found[#found + 2] = 'count:' .. asset, 'need:' .. asset
  end
  return found
end

-- Takes the events with an id out of the open round; returns them. A member with others beside has one of those now.
local function withdraw(event_id)
  local left, lowered, fields_of_events, withdrawn, whole = {}, {}, {}, {}, call('HGETALL', round)
  for n = 1, #whole, 2 do
    local asset, member = string.match(whole[n], '^[mx]:(%d+):(%d+)')
    if asset and cjson.decode('[' .. whole[n + 1] .. ']')[3] == event_id then
      withdrawn[#withdrawn + 1], fields_of_events[#fields_of_events + 1] = whole[n + 1], {whole[n], asset, member}
    elseif asset then
      local place = asset .. ':' .. member
      left[place] = left[place] or {}
      table.insert(left[place], whole[n])
    end
  end
  for n, found in ipairs(fields_of_events) do
    local field, asset, member = unpack(found)
    local place = asset .. ':' .. member
    local others = left[place]
    call('HDEL', round, field)
    call('HSET', round, 'r:' .. digest_of(withdrawn[n]), '')
    if sub(field, 1, 1) == 'm' and others then
      table.sort(others)
      call('HSET', round, field, call('HGET', round, others[1]))
      call('HDEL', round, others[1])
    elseif not others and not lowered[place] then
      lowered[place] = true
      if call('HINCRBY', round, 'count:' .. asset, -1) == 0 then
        call('HDEL', round, 'count:' .. asset, 'need:' .. asset)
      end
    end
  end
  if #withdrawn > 0 and not next(left) then
    take_whole()
  end
  return withdrawn
end

-- Does to a round what a control says: `what` is fire, fail, drop, discard or withdraw. `about` is what the outbox says of
-- it, JSON without its end; a line each of what the round held, or of what was withdrawn, follow.
local function control(round_number, round_name, its_key, what, opened, event_id, is_action, offset, at, about)
  number, name, key_json, round, mark = round_number, round_name, its_key, KEYS[rounds_from + round_number], nil
  local place = offset .. '.0'
  local ref, its_opened = unpack(call('HMGET', round, 'job', 'opened'))
  about = '{' .. about .. ',"key":' .. key_json .. ',"at":' .. at
  local function say(rest)
    if offset >= committed then
      reply[#reply + 1], reply[#reply + 2] = place, about .. rest
    end
  end
  if not ref or string.match(its_opened, '^%d+%.%d+') ~= opened then
    return is_action and say('}')
  end
  job, writes, changed, deadlines, mark = read_job(ref), {}, {}, {}, mark_of[number] or read_mark()
  fields = fields_of_round()
  values, exists = call('HMGET', round, unpack(fields)), true
  about = about .. ',"job":' .. by_revision(ref, newest(job.id, at).revision)
  if what == 'withdraw' then
    local withdrawn = withdraw(event_id)
    return say('}' .. (#withdrawn > 0 and '\n' or '') .. table.concat(withdrawn, '\n'))
  elseif what == 'discard' then
    return say('}\n' .. table.concat(take_whole(), '\n'))
  end
  local lines, members, generation = close_round(at)
  if what ~= 'drop' then
    generation = generation + 1
  end
  leave_mark(at, generation, members, lines)
  if what == 'drop' then kept_of[name] = nil end
  say(',"generation":' .. generation .. '}' .. lines)
end
