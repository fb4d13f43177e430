-- apply: fold a batch of contributions into one shard, by compare-and-set on the shard's offset (rule R1).
--
-- KEYS[1] log     hash   next:<partition> next offset, at:<partition> time of the record before it,
--                        high:<source> "offset.ordinal" of the highest contribution folded (E1)
-- KEYS[2] outbox  hash   place -> what still has to be sent: JSON and, a line each, more. Places are those of records:
--                        "offset.ordinal" a round that fired, with its fields and values; ".1" behind it an audit entry,
--                        ".2.0" a contribution of an older revision, to be mapped again, ".2.<n>" a round of an older
--                        revision, with its name (R6)
-- KEYS[3] marks   hash   round -> "generation fired-at dated members"; dated is 1 where an event brought a date of the
--                        key and the job has a rollup; members is "*" or ",asset:member,..." (R5)
-- KEYS[4] expiry  zset   round -> fired-at
-- KEYS[5] seen    zset   digest of (round, event) -> fired-at: the events of fired rounds, the replaced ones included
-- KEYS[6] open    zset   round -> 0, so that the open rounds of a job are a range by name
-- KEYS[7] kept    hash   round -> "generation fired-at routing" and, one a line, its fields and values when it fired: only of
--                        jobs with rerun policy refire, and only of use to the mark of that generation and time
-- KEYS[8] revisions hash job -> "revision routing" of the newest definition that contributions or changes have brought
--                        (R6): its offset, and the digest of what decides where events count, empty for a deleted job
-- KEYS[9] due     zset   "<then>/<round>" -> when the round's deadline is, ms since 1970 (R4)
-- KEYS[10] gone   zset   job that was deleted -> time of the record that says so
-- KEYS[11] replays zset  source of a replay -> time of the last record that brought anything of it; its high goes then (R5)
-- KEYS[12...]     hash   one per round of the batch: job, opened "offset.ordinal.time" of its first contribution,
--                        count:<asset>, need:<asset> "size needed", date:<asset>, m:<asset>:<member> its event,
--                        x:<asset>:<member>:<key> further events of that member with other keys (D21), r:<digest>
--                        replaced events
-- and beside them, named from KEYS[6]:
--         moved:<place>  hash   a round of an older revision as it was, until what waited in it is on the log again
--         round:<name>   hash   the open rounds of a job that changes
-- The last of KEYS never exists (store.py).
-- SLICE and in_slices come before this: tidegate/runtime/script.py.
--
-- ARGV[1] partition   [2] offset that the caller believes is next, "" for none, "?" to be told only   [3] next offset
-- after the batch   [4] time of its last record   [5] committed offset: below it everything was acknowledged, so it
-- is folded in silence (R3)   [6] horizon in ms   [7] the batch as JSON:
--   repeats  how many contributions were left out because they repeat others of the batch
--   sources  [name, lowest offset, ordinal, highest offset, ordinal]: coordinates of each source in the batch; of one of a
--            replay there is one of these for each time of its records, with that time, in the order of the log
--   jobs     each the text of a JobRef
--   parts    each [number of the round, key as JSON, number of the job, fields, groups, places, whether they waited under
--            an older definition]: contributions to one round in the order of the log. A round may have several parts;
--            parts of different rounds are independent, but those of a job stand before or after what changes it. Or
--            [0, job, revision, routing, offset, ordinal, time, whether it is deleted]: the job changes; or [-1, ...]: a
--            control of one round, as controls.lua unpacks it. Fields are opened, count:<asset> and need:<asset> of every
--            asset, and then the members. The entries of a part are the members among its fields in turn, unless one
--            comes twice: places then has the place of each among the fields. A group is of entries that differ in no
--            more than their places and events; what they share stands where it is unpacked.
-- [8] the events of the entries, a line each, in the order of the parts
--
-- A job changes with the first record that brings a newer revision of it. Where its routing is another one, its open rounds
-- move to the outbox as they are, and so does what comes of an older revision with another routing than the newest one;
-- else both stay, and runs name the newest revision. "Older" is judged by `revisions` alone, never by what a caller knows.
--
-- -> {1, repeats, field, payload, ...} with what was added to the outbox, or
--    {0, next offset or "", time, field, payload, ...} with the whole outbox: nothing was applied.
--
-- The embedded broker takes about a microsecond for every line that runs, function calls included, and ten for a
-- command. So the loop over entries runs few lines, some of them full, and leaves parsing to cjson.

local log, outbox, marks, expiry, seen, open, kept = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local revisions, due_at, gone, replays = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local prefix, rounds_from = string.sub(KEYS[6], 1, -5), 11
local partition, believed, upto, last_at = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local committed, horizon = tonumber(ARGV[5]), tonumber(ARGV[6])
local call, sub, find = redis.call, string.sub, string.find

local next_offset = call('HGET', log, 'next:' .. partition)
if believed == '?' or (next_offset or '') ~= believed then
  local reply = {0, next_offset or '', call('HGET', log, 'at:' .. partition) or '0'}
  for _, part in ipairs(call('HGETALL', outbox)) do
    reply[#reply + 1] = part
  end
  return reply
end

local batch = cjson.decode(ARGV[7])

local function read_job(text)
  local ref = cjson.decode(text)
  local rollups, assets, clauses = ref[4], ref[5], ref[6]
  -- keeps: assets of which other keys of one member are kept beside it (D21, D23); alone: that satisfy the condition
  local job = {id = ref[1], revision = ref[3], text = text, assets = #assets, clauses = clauses, routing = ref[9] or ''}
  job.windowed, job.keeps, job.alone, job.has_deadlines = #rollups > 0, {}, {}, #ref[8] > 0
  job.policy = not job.windowed and 'new_round' or type(ref[7]) == 'string' and ref[7] or nil  -- null is no nil
  for asset = 0, job.assets - 1 do
    job.keeps[asset] = not job.windowed
  end
  for _, asset in ipairs(rollups) do
    job.keeps[asset] = true
  end
  for _, clause in ipairs(clauses) do
    job.alone[clause[1]] = #clause == 1 or job.alone[clause[1]]
  end
  return job
end

local jobs = {}
for n, text in ipairs(batch.jobs) do
  jobs[n] = read_job(text)
end

-- A deletion is remembered for longer than `definitions` keeps it, and what a replay brought for as long.
local REMEMBERED = 8 * horizon

-- A source that starts above all that was folded of it has no repeats here. `latest` are by name those after the batch.
local highs, has_repeats, latest = {}, {}, {}
local function is_above(offset, ordinal, high)
  return offset > high.offset or (offset == high.offset and ordinal > high.ordinal)
end
local function read_high(source_name, at)
  local offset, ordinal = string.match(call('HGET', log, 'high:' .. source_name) or '-1.-1', '^(-?%d+)%.(-?%d+)$')
  local seen_at = at and call('ZSCORE', replays, source_name) or at
  return {offset = tonumber(offset), ordinal = tonumber(ordinal), at = tonumber(seen_at)}
end
for n, source in ipairs(batch.sources) do
  local source_name, offset, ordinal, high_offset, high_ordinal, at = unpack(source)
  local high = latest[source_name] or read_high(source_name, at)
  if at and high.at < at - REMEMBERED then
    high = {offset = -1, ordinal = -1}  -- expired, whether or not it was removed yet
  end
  highs[n] = high
  has_repeats[n] = not is_above(offset, ordinal, highs[n])
  if not is_above(high_offset, high_ordinal, high) then
    high_offset, high_ordinal = high.offset, high.ordinal
  end
  latest[source_name] = {offset = high_offset, ordinal = high_ordinal, at = at}
end

-- What firings leave behind, written once at the end; of two values for one field the later one stays. `mark_of` is by
-- number of the round, `fired_at` by digest of the event, `kept_of` by name of the round.
local mark_of, fired_at, kept_of, new_marks, new_expiry, new_seen, reply = {}, {}, {}, {}, {}, {}, {1, 0}

-- The newest definitions of jobs that were folded, as far as they were asked for.
local UNKNOWN = {revision = -1, routing = ''}
local newest_of = {}
local function newest(id, at)
  if not newest_of[id] then
    local revision, routing = string.match(call('HGET', revisions, id) or '-1', '^(%-?%d+) ?(.*)$')
    local gone_at = routing == '' and tonumber(call('ZSCORE', gone, id)) or nil
    newest_of[id] = {revision = tonumber(revision), routing = routing, gone_at = gone_at}
  end
  local found = newest_of[id]
  return found.gone_at and found.gone_at < at - REMEMBERED and UNKNOWN or found
end

-- Whether events count by the newest definition of their job where they count by one with this routing.
local function is_routed_alike(routing, folded)
  return routing ~= '' and routing == folded.routing
end

-- The text of a JobRef with another revision; the id and the incarnation come before it.
local function by_revision(text, revision)
  return (string.gsub(text, '^(%["[^"]*","[^"]*",)%d+', '%1' .. string.format('%d', revision)))
end

-- The part at hand. `values` are those of its fields, kept up to date; `exists` says whether the round is in Redis;
-- `writes` are the fields and values of events that are not, `changed` the assets whose counts are not, with their
-- dates; `mark` is that of the round that fired before; `remapped` says that the events waited under an older definition;
-- `deadlines` are the earliest ones that members brought, by what happens then; `job_text` is what is said of the job.
local number, name, key_json, job_number, fields, groups, places, job, job_text, round
local values, exists, writes, changed, mark, remapped, deadlines

local names_from = #prefix + #'round:' + 1
local function name_of(round_number)
  return sub(KEYS[rounds_from + round_number], names_from)
end

local mark_texts = {}  -- by number of the round
local function read_mark()
  local text = mark_texts[number]
  if text then
    local generation, at, dated, members = string.match(text, '^(%d+) (%d+) (%d) (.*)$')
    return {generation = tonumber(generation), at = tonumber(at), dated = dated == '1', members = members}
  end
end

local function add_assets_to_writes()
  for asset, date in pairs(changed) do
    local n, c = #writes, 2 + 2 * asset
    writes[n + 1], writes[n + 2], writes[n + 3], writes[n + 4] = fields[c], values[c], fields[c + 1], values[c + 1]
    if date then writes[n + 5], writes[n + 6] = 'date:' .. asset, date end
  end
end

local function flush()
  if not exists then
    call('HSET', round, 'job', job_text, 'opened', values[1])
    call('ZADD', open, 0, name)
  end
  add_assets_to_writes()
  in_slices('HSET', round, writes)
  for what, due in pairs(deadlines) do
    call('ZADD', due_at, 'LT', due, what .. '/' .. name)
  end
  exists, writes, changed, deadlines = true, {}, {}, {}
end

-- Whether as many members of an asset are in as one number of its need says.
local SIZE, NEEDED = '^%d+', '%d+$'
local function has(asset, which)
  local count, need = values[2 + 2 * asset], values[3 + 2 * asset]
  return need and tonumber(count) >= tonumber(string.match(need, which))
end

local function has_all(clause)
  for _, asset in ipairs(clause) do
    if not has(asset, NEEDED) then
      return false
    end
  end
  return true
end

local function is_satisfied()
  for _, clause in ipairs(job.clauses) do
    if has_all(clause) then
      return true
    end
  end
  return false
end

local function is_complete()
  for asset = 0, job.assets - 1 do
    if not has(asset, SIZE) then
      return false
    end
  end
  return true
end

-- An event is kept as "<digest>",<key>,id,source,at,date,carried,extra: JSON without the brackets of a list.
local KEY_FROM = 20
local function key_of(event)
  local last = KEY_FROM
  if sub(event, last, last) ~= '"' then
    return 'null'
  end
  repeat
    last = find(event, '["\\]', last + 1)
    local is_end = sub(event, last, last) == '"'
    if not is_end then last = last + 1 end
  until is_end
  return sub(event, KEY_FROM, last)
end

local function digest_of(event)
  return sub(event, 2, 17)
end

local function send(field, event, at, rest)
  local n, about = #reply, '{"job":' .. job_text .. ',"key":' .. key_json .. ',"at":' .. at
  reply[n + 1], reply[n + 2] = field, about .. ',"event":[' .. event .. '],' .. rest
end

local function audit(kind, offset, ordinal, at, asset, event, more)
  if offset >= committed then
    local about = '"audit":"' .. kind .. '","asset":' .. asset
    send(offset .. '.' .. ordinal .. '.1', event, at, about .. (more or '') .. '}')
  end
end

-- The field that takes a further event of a member: that of the member, whose event is `old`, or one beside it.
local function field_for(old, asset, place, event)
  local field, key = fields[place], key_of(event)
  local is_beside = job.keeps[asset] and key_of(old) ~= key
  return is_beside and 'x' .. sub(field, 2) .. ':' .. key or field, is_beside
end

local function about_older(event)
  return event and ',"other":[' .. event .. ']' or ''
end

-- Whether it is by a further way that an event comes here, which is then told of where it comes by the first (B060).
local function is_further_way(asset, event)
  local also = cjson.decode('[' .. event .. ']')[12]
  return type(also) == 'table' and also[1] < asset
end

-- Whether an event that was mapped again came to the broker before the one that is there (R6).
local function is_older(event, old)
  return remapped and old and cjson.decode('[' .. event .. ']')[5] <= cjson.decode('[' .. old .. ']')[5]
end

-- Takes a further event of a member that is there.
local function replace_or_keep(offset, ordinal, at, asset, place, date, event)
  flush()
  local field, is_beside = field_for(values[place], asset, place, event)
  local old, digest = values[place], digest_of(event)
  if is_beside then old = call('HGET', round, field) end
  if old and digest_of(old) == digest or call('HEXISTS', round, 'r:' .. digest) == 1 then
    return remapped or is_further_way(asset, event) or audit('duplicate-event', offset, ordinal, at, asset, event)
  end
  if is_older(event, old) then
    call('HSET', round, 'r:' .. digest, '')
    return audit('member-replaced', offset, ordinal, at, asset, old, about_older(event))
  end
  call('HSET', round, field, event)
  if date then call('HSET', round, 'date:' .. asset, date) end
  if not is_beside then values[place] = event end
  if old then
    call('HSET', round, 'r:' .. digest_of(old), '')
    audit('member-replaced', offset, ordinal, at, asset, event, about_older(old))
  end
end

local function bring_deadline(due, what)
  deadlines[what] = math.min(deadlines[what] or due, due)
end

local function forget_deadlines(round_name)
  call('ZREM', due_at, 'fire/' .. round_name, 'fail/' .. round_name, 'drop/' .. round_name)
end

-- All of a round that is over.
local function take_whole()
  add_assets_to_writes()
  if not exists then
    return writes
  end
  in_slices('HSET', round, writes)
  local whole = call('HGETALL', round)
  call('DEL', round)
  call('ZREM', open, name)
  if job.has_deadlines then forget_deadlines(name) end
  return whole
end

-- The members of a round for its mark.
local function present(lines)
  if not job.windowed or is_complete() then
    return '*'
  end
  local members = ','
  for member in string.gmatch(lines, '\nm:([^\n]*)') do
    members = members .. member .. ','
  end
  return members
end

-- Remembers the digests that stand behind a text; to find it as it is takes a tenth of what matching a pattern takes.
local function remember(lines, before, at)
  local n, _, last = #new_seen, find(lines, before, 1, true)
  while last do
    local digest = sub(lines, last + 1, last + 16)
    fired_at[digest], new_seen[n + 1], new_seen[n + 2], n = at, at, digest, n + 2
    _, last = find(lines, before, last, true)
  end
end

-- Marks a round as fired with these lines of fields and values.
local function leave_mark(at, generation, members, lines)
  local n, head = #new_marks, generation .. ' ' .. at
  local dated = job.windowed and find(lines, '\ndate:', 1, true)
  mark = {generation = generation, at = at, dated = dated, members = members}
  mark_of[number], new_expiry[n + 1], new_expiry[n + 2] = mark, at, name
  new_marks[n + 1], new_marks[n + 2] = name, head .. (dated and ' 1 ' or ' 0 ') .. members
  remember(lines, '\n"', at)  -- only events start with a quote
  if job.policy == 'refire' then kept_of[name] = head .. ' ' .. job.routing .. lines end
end

local function mark_fired(offset, ordinal, at, event, generation, members, lines)
  leave_mark(at, generation, members, lines)
  if offset >= committed then
    send(offset .. '.' .. ordinal, event, at, '"generation":' .. generation .. '}' .. lines)
  end
end

-- Takes the round of the part off; returns its lines, its members, and the generation of the run before.
local function close_round(at)
  local lines = '\n' .. table.concat(take_whole(), '\n')  -- neither fields nor values hold a line break
  if exists then remember(lines, '\nr:', at) end
  local before, members = mark and mark.at >= at - horizon and mark.generation or 0, present(lines)
  values, exists, writes, changed, deadlines = {}, false, {}, {}, {}
  return lines, members, before
end

-- The round of the part fires, or is said to wait for more than there is: `needed` is below 0 then.
local function fire(offset, ordinal, at, event, asset, needed, arrived, need)
  if needed < 0 then
    local window = ',"window":[' .. string.gsub(need, ' ', ',') .. ']'
    return arrived == 1 and audit('window-unsatisfiable', offset, ordinal, at, asset, event, window)
  end
  local lines, members, before = close_round(at)
  mark_fired(offset, ordinal, at, event, before + 1, members, lines)
end

-- The value of a field among lines, and the lines with another value there.
local function exchange(lines, field, value)
  local _, before = find(lines, '\n' .. field .. '\n', 1, true)
  if not before then
    return nil, lines .. '\n' .. field .. '\n' .. value
  end
  local after = find(lines, '\n', before + 1, true) or #lines + 1
  return sub(lines, before + 1, after - 1), sub(lines, 1, before) .. value .. sub(lines, after)
end

-- Runs a fired round again with this event in it; false where the round has not kept its events, or those of a definition
-- that places them otherwise.
local function refire(offset, ordinal, at, asset, place, date, event)
  local head = mark.generation .. ' ' .. mark.at .. ' ' .. job.routing .. '\n'
  local text = kept_of[name] or call('HGET', kept, name) or ''
  if sub(text, 1, #head) ~= head then
    return false
  end
  local lines = sub(text, #head)
  local field = field_for(exchange(lines, fields[place], '') or event, asset, place, event)
  local old, changed_lines = exchange(lines, field, event)
  if is_older(event, old) then
    return false
  end
  if date then changed_lines = select(2, exchange(changed_lines, 'date:' .. asset, date)) end
  audit('member-rerun', offset, ordinal, at, asset, event, ',"runs":true' .. about_older(old))
  mark_fired(offset, ordinal, at, event, mark.generation + 1, mark.members, changed_lines)
  return true
end

-- Whether a contribution of a round that has fired is no part of a new one; what follows from it is done then.
local function is_past(offset, ordinal, at, asset, place, date, event)
  local since, digest = at - horizon, digest_of(event)
  if mark.at < since then
    return false  -- expired, whether or not it was removed yet
  end
  local seen_at = fired_at[digest] or call('ZSCORE', seen, digest)
  if seen_at and tonumber(seen_at) >= since then
    return remapped or is_further_way(asset, event) or audit('duplicate-event', offset, ordinal, at, asset, event) or true
  end
  local policy = job.policy or (date or mark.dated) and 'ignore' or 'new_round'
  if policy == 'new_round' then
    return false
  end
  local is_in = mark.members == '*' or find(mark.members, ',' .. sub(fields[place], 3) .. ',', 1, true)
  if not is_in then
    audit('member-late', offset, ordinal, at, asset, event)
  elseif policy ~= 'refire' or not refire(offset, ordinal, at, asset, place, date, event) then
    audit('member-rerun', offset, ordinal, at, asset, event)
  end
  return true
end
