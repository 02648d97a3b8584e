-- A charge on a policy that is one sliding window. Twin of `sliding_window.rs`, as
-- `sliding_window.lua`, in one straight line.
--
-- KEYS: record. ARGV: tick, ticks, limit, slack, least and most, now (absent: the server's clock).
-- Replies now, and what is stored: window, previous, current. -2^53 where the value has another
-- shape: nothing was done, ask `policy`.
local now = ARGV[7]
if now then
  now = tonumber(now)
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local tick, ticks, limit, min, max = ARGV[1] + 0, ARGV[2] + 0, ARGV[3] + 0, ARGV[5] + 0, ARGV[6] + 0
local t = (now - now % tick) / tick
local elapsed = t % ticks
local window = (t - elapsed) / ticks
local stored = redis.pcall('GET', KEYS[1])
local of_window, previous, current, moved = 0, 0, 0, false
if stored then
  if type(stored) == 'table' then return -9007199254740992 end
  local period
  period, of_window, previous, current = string.match(stored, '^s(%d+),(%d+),(%d+),(%d+)$')
  if not period or period + 0 ~= ticks * tick then return -9007199254740992 end
  of_window, previous, current = of_window + 0, previous + 0, current + 0
end
local reply = { now, of_window, previous, current }
if of_window ~= window then
  if of_window > window then
    if of_window * ticks - t > ARGV[4] + 0 then
      moved = true
    else
      window, elapsed = of_window, 0
    end
  elseif of_window == window - 1 then
    previous, current = current, 0
  else
    previous, current = 0, 0
  end
end
-- Past 2^53 it is not exact, but then there is no room, which is all that matters.
local room = limit * ticks - previous * (ticks - elapsed) - current * ticks
local available = room > 0 and (room - room % ticks) / ticks or 0
if available >= min then
  current = current + (available < max and available or max)
elseif not moved and not (stored and redis.call('PTTL', KEYS[1]) == -1) then
  return reply
end
-- A refusal stores nothing, but for a clock that moved back or an expiry that was lost.
local expires = (window + (current > 0 and 2 or previous > 0 and 1 or 0)) * ticks * tick
local text = string.format('s%d,%d,%d,%d', ticks * tick, window, previous, current)
if ARGV[7] then
  redis.call('SET', KEYS[1], text, 'PX', string.format('%d', (expires > now and expires - now or 0) / 1000 + 3600001))
else
  redis.call('SET', KEYS[1], text, 'PXAT', string.format('%d', expires / 1000 + 1))
end
return reply
