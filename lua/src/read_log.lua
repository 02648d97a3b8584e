-- Reads a record that is a hash; that of a policy that had no log is a string.
local stored = redis.pcall('HGET', key, 'h')
local hashed = type(stored) ~= 'table'
if not hashed then
  stored = redis.pcall('GET', key)
  if type(stored) == 'table' then stored = false end
end
