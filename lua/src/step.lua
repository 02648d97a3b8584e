-- One call on one record: every quota settled, decided together, and charged all or nothing. Twin
-- of `step.rs`.
local texts, meters = {}, {}
if stored then
  for text in string.gmatch(stored, '[^;]+') do texts[#texts + 1] = text end
end
local operation, quotas = ARGV[2], tonumber(ARGV[3])
local arg = 4
for i = 1, quotas do
  meters[i] = settle[ARGV[arg]](
    texts[i], ARGV[arg + 1] + 0, ARGV[arg + 2] + 0, ARGV[arg + 3] + 0, ARGV[arg + 4] + 0, i)
  arg = arg + 5
end

-- Nothing, or which states to write.
local changed, these = false, nil
if operation == 'r' then
  these = {}
  for i = 1, quotas do
    these[i] = refund[meters[i].kind](meters[i], tonumber(ARGV[arg]), tonumber(ARGV[arg + 1]))
    changed = changed or these[i]
    arg = arg + 2
  end
else
  for a = arg, #ARGV, 2 do
    local min, max = tonumber(ARGV[a]), tonumber(ARGV[a + 1])
    local least = meters[1].available
    for i = 2, quotas do
      if meters[i].available < least then least = meters[i].available end
    end
    local granted = 0
    if operation == 'a' and least >= min then granted = least < max and least or max end
    for i = 1, quotas do
      local meter = meters[i]
      if meter.asks then meter:asks(min, granted) end
      meter.available = meter.available - granted
      meter.charged = meter.charged + granted
    end
    changed = changed or granted > 0
  end
  if operation == 'a' and not changed then
    these = {}
    for i = 1, quotas do
      these[i] = meters[i].moved
      changed = changed or these[i]
    end
  end
end

-- The reply tells what was found, except after a refund, which the asker cannot repeat.
local answer = { now }
local function tell()
  for i = 1, quotas do
    local meter = meters[i]
    local shape = reply[meter.kind]
    if type(shape) == 'number' then
      for field = 1, shape do answer[#answer + 1] = meter[field] end
    else
      shape(meter, answer)
    end
  end
end
if operation ~= 'r' then tell() end
