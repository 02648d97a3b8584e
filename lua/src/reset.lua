-- Forgets a key. KEYS: record. Replies whether there was one.
return redis.call('DEL', KEYS[1])
