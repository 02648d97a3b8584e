-- Whether the server can count now: it runs scripts, takes writes and has memory for one. KEYS: a
-- key that nothing else uses; it is gone a moment later. Replies 1.
redis.call('SET', KEYS[1], '1', 'PX', '1')
return 1
