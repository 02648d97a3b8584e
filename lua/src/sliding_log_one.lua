-- A charge on a policy that is one sliding log. Twin of `sliding_log.rs`, as `sliding_log.lua`, for
-- what nearly always happens: the clock has gone on since the newest entry, and what was asked is
-- answered by the oldest entry or the newest.
--
-- KEYS: record. ARGV: tick (1), period (us), limit, slack, least and most, now (absent: the server's
-- clock). Replies now, and a log that answers like the one stored: the number of entries, and when
-- and how much each. -2^53 for anything else: nothing was done, ask `policy_with_log`.
local now = ARGV[7]
if now then
  now = tonumber(now)
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local key, format = KEYS[1], string.format
local period, limit, min, max = ARGV[2] + 0, ARGV[3] + 0, ARGV[5] + 0, ARGV[6] + 0
local stored = redis.pcall('HGET', key, 'h')
local total, head, tail, oldest, newest = 0, 1, 0, 0, 0
local first = head
if stored then
  if type(stored) == 'table' then return -9007199254740992 end
  local of_period
  of_period, total, head, tail, oldest, newest = string.match(stored, '^l(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$')
  if of_period ~= ARGV[2] then return -9007199254740992 end
  total, head, tail, oldest, newest = total + 0, head + 0, tail + 0, oldest + 0, newest + 0
  first = head
  if tail >= head then
    if newest >= now then return -9007199254740992 end
    if newest + period <= now then
      -- All of them have left. Many are removed in other ways.
      if tail - head >= 16 then return -9007199254740992 end
      first, total = tail + 1, 0
    elseif oldest + period <= now then
      while true do
        -- Many are read faster in other ways.
        if first - head == 16 then return -9007199254740992 end
        local at, cost = string.match(redis.call('HGET', key, format('1:%d', first)) or '', '^(%d+):(%d+)$')
        if not at then return -9007199254740992 end
        if at + period > now and cost ~= '0' then
          oldest = at + 0
          break
        end
        total, first = total - cost, first + 1
      end
    end
  end
end
local available = total < limit and limit - total or 0
local granted = 0
if available >= min then
  granted = available < max and available or max
elseif total > limit or min <= limit and total + min - limit > 1 and total + min - limit < total then
  -- Some entry between the oldest and the newest decides when it fits.
  return -9007199254740992
end
local reply
if total == 0 then
  reply = { now, 0 }
elseif total == 1 then
  reply = { now, 1, newest, 1 }
else
  reply = { now, 2, oldest, 1, newest, total - 1 }
end
if granted > 0 then
  local last = tail + 1
  if first == last then oldest = now end
  -- First what may be refused for lack of memory: then nothing has changed.
  redis.call('HSET', key, 'h', format('l%d,%d,%d,%d,%d,%d', period, total + granted, first, last, oldest, now),
    format('1:%d', last), format('%d:%d', now, granted))
  if first > head then
    local gone = {}
    for sequence = head, first - 1 do gone[#gone + 1] = format('1:%d', sequence) end
    redis.call('HDEL', key, unpack(gone))
  end
  newest = now
elseif not (stored and redis.call('PTTL', key) == -1) then
  return reply
end
if ARGV[7] then
  redis.call('PEXPIRE', key, format('%d', (newest + period - now) / 1000 + 3600001))
else
  redis.call('PEXPIREAT', key, format('%d', (newest + period) / 1000 + 1))
end
return reply
