-- A charge on a policy that is one token bucket. Twin of `token_bucket.rs`, as `token_bucket.lua`,
-- in one straight line.
--
-- KEYS: record. ARGV: tick, n, p, full, least and most, now (absent: the server's clock).
-- Replies now, and what is stored: `tat` as at * n + rest. -2^53 where the value has another shape:
-- nothing was done, ask `policy`.
local now = ARGV[7]
if now then
  now = tonumber(now)
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local tick, n, p, full, min, max = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0, ARGV[5] + 0, ARGV[6] + 0
local t = (now - now % tick) / tick
local stored = redis.pcall('GET', KEYS[1])
local at, rest = 0, 0
if stored then
  if type(stored) == 'table' then return -9007199254740992 end
  local of_tick, of_n, whole, part = string.match(stored, '^b(%d+),(%d+),(%d+),(%d+)$')
  if of_tick ~= ARGV[1] or of_n ~= ARGV[2] then return -9007199254740992 end
  at, rest = whole + 0, part + 0
end
local debt, moved = 0, false
if at >= t then
  -- Past 2^53 it is not exact, but then it is more than full, which is all that matters.
  debt = (at - t) * n + rest
  local over = at - t - 60000000 / tick
  if over >= 0 and over * n + rest > full then debt, moved = full, true end
end
local level = full - debt
local available = level > 0 and (level - level % p) / p or 0
local reply = { now, at, rest }
if available >= min then
  debt = debt + (available < max and available or max) * p
elseif not moved and not (stored and redis.call('PTTL', KEYS[1]) == -1) then
  return reply
end
-- A refusal stores nothing, but for a clock that moved back or an expiry that was lost.
if at < t or available >= min or moved then at, rest = t + (debt - debt % n) / n, debt % n end
local full_at = (rest > 0 and at + 1 or at) * tick
local text = string.format('b%d,%d,%d,%d', tick, n, at, rest)
if ARGV[7] then
  redis.call('SET', KEYS[1], text, 'PX', string.format('%d', (full_at > now and full_at - now or 0) / 1000 + 3600001))
else
  redis.call('SET', KEYS[1], text, 'PXAT', string.format('%d', full_at / 1000 + 1))
end
return reply
