-- A change to one of a set of documents, each of which claims something that no other may.
--
-- KEYS: hash of documents by id, hash of ids by claim. ARGV: call ('create', 'replace', 'delete'),
-- channel, id, what it claims, what it says; for the last two calls what it says now; for
-- 'replace' what it claims now.
-- Replies 0: changed, and who listens on the channel is told; 1: no such document; 2: there is one
-- already; 3: another one claims that; 4: it says something else by now.
local documents, claims, call, id, claim = KEYS[1], KEYS[2], ARGV[1], ARGV[3], ARGV[4]
local found = redis.call('HGET', documents, id)
if call == 'create' then
  if found then return 2 end
else
  if not found then return 1 end
  if found ~= ARGV[6] then return 4 end
end
if call ~= 'delete' then
  local owner = redis.call('HGET', claims, claim)
  -- A claim of a document that is gone is none.
  if owner and owner ~= id and redis.call('HEXISTS', documents, owner) == 1 then return 3 end
end
local old = call == 'replace' and ARGV[7] or call == 'delete' and claim
if old and redis.call('HGET', claims, old) == id then redis.call('HDEL', claims, old) end
if call == 'delete' then
  redis.call('HDEL', documents, id)
else
  redis.call('HSET', documents, id, ARGV[5])
  redis.call('HSET', claims, claim, id)
end
-- It may be forbidden; then nobody is told, and they ask now and then.
redis.pcall('PUBLISH', ARGV[2], id)
return 0
