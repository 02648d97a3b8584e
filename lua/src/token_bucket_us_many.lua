-- Several records of the shape of `token_bucket_us`, each charged several times: what many callers
-- ask at the same time, in one call. The same decisions, one charge after the other.
--
-- KEYS: records, no two the same. ARGV: now ('': the server's clock), then for each row of records
-- that are charged alike: how many, their full bucket in units (us), the number of runs, and for each
-- run the cost in units and how often it is charged.
-- Replies for each record what was missing from a full bucket before, in units. -2^53 where the
-- value has another shape: nothing was done for it, ask `policy`.
local now = ARGV[1]
local virtual = now ~= ''
if virtual then
  now = tonumber(now)
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local format = string.format
local found = redis.call('MGET', unpack(KEYS))
local reply, arg = {}, 2
local left, full, first, last = 0, 0, 0, 0
for i = 1, #KEYS do
  if left == 0 then
    left, full, first, last = ARGV[arg] + 0, ARGV[arg + 1] + 0, arg + 3, arg + 2 + 2 * ARGV[arg + 2]
    arg = last + 1
  end
  left = left - 1
  local key, stored = KEYS[i], found[i]
  -- A value of another type reads as none.
  if not stored then stored = redis.pcall('GET', key) end
  local tat = tonumber(stored)
  if stored and not tat then
    reply[i] = -9007199254740992
  else
    local moved, charged = false, false
    if not (tat and tat > now) then
      tat = now
    elseif tat - now > full + 60000000 then
      -- The clock moved back: the bucket is empty now, and that is stored.
      tat, moved = now + full, true
    end
    local debt = tat - now
    reply[i] = debt
    for run = first, last, 2 do
      local units, times = ARGV[run] + 0, ARGV[run + 1] + 0
      local level = full - debt
      local fit = level > 0 and (level - level % units) / units or 0
      if fit > 0 then
        debt, charged = debt + (fit < times and fit or times) * units, true
      end
    end
    -- A refusal stores nothing, but for a clock that moved back or an expiry that was lost.
    if charged or moved or stored and redis.call('PTTL', key) == -1 then
      if virtual then
        redis.call('SET', key, format('%d', now + debt), 'PX', format('%d', debt / 1000 + 3600001))
      else
        redis.call('SET', key, format('%d', now + debt), 'PXAT', format('%d', (now + debt) / 1000 + 1))
      end
    end
  end
end
return reply
