-- For wrk: a mix of clients by API key, and what they were answered.
--
--   wrk -t2 -c64 -d10s -s load_tests/gateway.lua http://127.0.0.1:8000
--
-- KEYS (100) is how many clients there are.
local keys = tonumber(os.getenv("KEYS") or "100")
local threads = {}
local number = 0

function setup(thread)
  thread:set("first", #threads)
  table.insert(threads, thread)
end

function init()
  admitted, refused, failed = 0, 0, 0
  number = first
end

function request()
  number = (number + 1) % keys
  return wrk.format("GET", "/orders", { ["X-API-Key"] = "key-" .. number })
end

function response(status)
  if status == 429 then
    refused = refused + 1
  elseif status < 400 then
    admitted = admitted + 1
  else
    failed = failed + 1
  end
end

function done(summary, latency)
  local a, r, f = 0, 0, 0
  for _, thread in ipairs(threads) do
    a = a + thread:get("admitted")
    r = r + thread:get("refused")
    f = f + thread:get("failed")
  end
  io.write(string.format("admitted %d, refused %d, failed %d, p99 %.1f ms\n",
    a, r, f, latency:percentile(99) / 1000))
end
