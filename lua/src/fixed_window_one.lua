-- A charge on a policy that is one fixed window. Twin of `fixed_window.rs`, as `fixed_window.lua`,
-- in one straight line.
--
-- KEYS: record. ARGV: tick (1), period (us), limit, slack, least and most, now (absent: the server's
-- clock). Replies now, and what is stored: window, count. -2^53 where the value has another shape:
-- nothing was done, ask `policy`.
local now = ARGV[7]
if now then
  now = tonumber(now)
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local period, limit, min, max = ARGV[2] + 0, ARGV[3] + 0, ARGV[5] + 0, ARGV[6] + 0
local window = (now - now % period) / period
local stored = redis.pcall('GET', KEYS[1])
local of_window, count, moved = 0, 0, false
if stored then
  if type(stored) == 'table' then return -9007199254740992 end
  local of_period
  of_period, of_window, count = string.match(stored, '^f(%d+),(%d+),(%d+)$')
  if of_period ~= ARGV[2] then return -9007199254740992 end
  of_window, count = of_window + 0, count + 0
end
local reply = { now, of_window, count }
if of_window < window then
  count = 0
elseif of_window * period - now > ARGV[4] + 0 then
  moved = true
else
  window = of_window
end
local available = count < limit and limit - count or 0
if available >= min then
  count = count + (available < max and available or max)
elseif not moved and not (stored and redis.call('PTTL', KEYS[1]) == -1) then
  return reply
end
-- A refusal stores nothing, but for a clock that moved back or an expiry that was lost.
local expires = (window + 1) * period
local text = string.format('f%d,%d,%d', period, window, count)
if ARGV[7] then
  redis.call('SET', KEYS[1], text, 'PX', string.format('%d', (expires - now) / 1000 + 3600001))
else
  redis.call('SET', KEYS[1], text, 'PXAT', string.format('%d', expires / 1000 + 1))
end
return reply
