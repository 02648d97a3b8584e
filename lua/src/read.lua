-- Reads a record that is a string; that of a policy that had a log lies in a hash.
local stored = redis.pcall('GET', key)
local hashed = type(stored) == 'table'
if hashed then
  stored = redis.pcall('HGET', key, 'h')
  if type(stored) == 'table' then stored = false end
end
