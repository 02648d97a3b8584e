-- Concurrency slots: who holds them, each until its time has passed.
--
-- A sorted set: a holder's score is the microsecond at which it is out. The member '' has the last
-- fencing number, negated, so that no expiry removes it.
--
-- KEYS: set. ARGV: call ('acquire', 'renew', 'release', 'count'), holder (never ''), its time in us,
-- slots, now (absent: the server's clock).
-- Replies whether it is a yes, how many are in, and after an admitted acquire the number, else 0.
local key, call, holder = KEYS[1], ARGV[1], ARGV[2]
local now = ARGV[5]
if now then
  now = tonumber(now)
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local known = redis.pcall('ZSCORE', key, '')
if type(known) == 'table' and known.err then
  -- A value of another shape is none of ours.
  known = false
  if call == 'count' then return { 1, 0, 0 } end
  redis.call('DEL', key)
end
local edge = string.format('(%d', now)
if call == 'count' then
  return { 1, redis.call('ZCOUNT', key, edge, '+inf'), 0 }
end
local out = redis.call('ZSCORE', key, holder)
local held = out and tonumber(out) > now
if call == 'release' then
  if out then redis.call('ZREM', key, holder) end
  return { held and 1 or 0, redis.call('ZCOUNT', key, edge, '+inf'), 0 }
end
local used = redis.call('ZCOUNT', key, edge, '+inf')
local ok = held or (call == 'acquire' and used < tonumber(ARGV[4]))
if not ok then return { 0, used, 0 } end
local fence = 0
if call == 'acquire' then
  fence = now
  if known and -tonumber(known) >= now then fence = -tonumber(known) + 1 end
  redis.call('ZREMRANGEBYSCORE', key, 0, string.format('%d', now))
  redis.call('ZADD', key, string.format('%d', -fence), '', string.format('%d', now + ARGV[3]), holder)
  if not held then used = used + 1 end
else
  redis.call('ZADD', key, string.format('%d', now + ARGV[3]), holder)
end
local keep = ARGV[3] / 1000 + (ARGV[5] and 3600001 or 60001)
if redis.call('PTTL', key) < keep then
  redis.call('PEXPIRE', key, string.format('%d', keep))
end
return { 1, used, fence }
