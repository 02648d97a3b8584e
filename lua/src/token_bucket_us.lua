-- One token bucket counted in microseconds of which one comes back each (tick 1 us, n = 1), and a
-- fixed cost: the commonest case, in the fewest steps. Twin of `token_bucket.rs` with n = 1, where
-- `tat` is a moment in microseconds and the whole record.
--
-- KEYS: record. ARGV: cost and full bucket in units (us), now (absent: the server's clock).
-- Replies `room`: what is left of a full bucket after the cost, in units; negative: refused, and
-- that much is missing. -2^53 where the value has another shape: nothing was done, ask `policy`.
local now = ARGV[3]
if now then
  now = tonumber(now)
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local stored = redis.pcall('GET', KEYS[1])
local tat = tonumber(stored)
if not tat then
  if stored then return -9007199254740992 end
  tat = now
elseif not (tat > now) then
  tat = now
end
local debt = tat - now + ARGV[1]
local room = ARGV[2] - debt
if room >= 0 then
  if ARGV[3] then
    redis.call('SET', KEYS[1], string.format('%d', now + debt), 'PX', string.format('%d', debt / 1000 + 3600001))
  else
    redis.call('SET', KEYS[1], string.format('%d', now + debt), 'PXAT', string.format('%d', (now + debt) / 1000 + 1))
  end
  return room
end
local full = tonumber(ARGV[2])
if tat - now > full + 60000000 then
  -- The clock moved back: the bucket is empty now, and that is stored.
  tat = now + full
  room = -ARGV[1]
elseif redis.call('PTTL', KEYS[1]) ~= -1 then
  return room
end
-- Here too if the key had lost its expiry.
if ARGV[3] then
  redis.call('SET', KEYS[1], string.format('%d', tat), 'PX', string.format('%d', (tat - now) / 1000 + 3600001))
else
  redis.call('SET', KEYS[1], string.format('%d', tat), 'PXAT', string.format('%d', tat / 1000 + 1))
end
return room
