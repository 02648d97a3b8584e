-- Opens every script but `token_bucket_us`: the time, and the record as it is.
--
-- KEYS: record. ARGV: now ('': the server's clock), operation ('a' acquire, 'p' peek, 'r' refund),
-- number of quotas, five a quota (see `settle` of each algorithm), then by operation:
--   a: least and most of each charge in order; p: least and most; r: two a quota (see `refund`).
-- Replies now, and for each quota what its `settle` found stored ('r': what `refund` left), in the
-- shape of `reply`; whoever asked computes the same decision from the same numbers.
--
-- A record is the text of one state a quota, joined by ';', '-' for none; each tells its shape, and
-- one that is no state of its quota reads as absent. It is a string, or the field 'h' of a hash
-- whose other fields are the entries of sliding logs.
local key, format, match = KEYS[1], string.format, string.match
local virtual = ARGV[1] ~= ''
local now
if virtual then
  now = tonumber(ARGV[1])
else
  local time = redis.call('TIME')
  now = time[1] * 1000000 + time[2]
end
local settle, refund, state, reply = {}, {}, {}, {}
