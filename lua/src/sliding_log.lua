-- Sliding log. Twin of `sliding_log.rs`, which explains it.
-- Quota: 'l', tick (1), period (us), limit, slack (us).
-- Text: l{period},{total},{head},{tail},{oldest},{newest}: the sum of the entries with sequence
-- numbers head to tail, and when the first and the last were made. Entry: the field
-- {index of the quota}:{sequence} of the hash, as {at}:{cost}. A refund may leave entries that cost
-- nothing, but never as the first or the last.
local ONE_READ = 100

-- Visits the stored entries from `from` on, until `visit(at, cost, sequence)` says that it is done.
-- Reads few at first, since the next one is mostly enough, then many.
local function visit_entries(meter, from, visit)
  local most = 4
  while from <= meter.tail do
    local fields = {}
    local last = math.min(from + most - 1, meter.tail)
    for sequence = from, last do fields[#fields + 1] = format('%d:%d', meter.index, sequence) end
    local entries = redis.call('HMGET', key, unpack(fields))
    for i = 1, #fields do
      local at, cost = match(entries[i] or '0:0', '^(%d+):(%d+)$')
      if visit(tonumber(at) or 0, tonumber(cost) or 0, from + i - 1) then return end
    end
    from, most = last + 1, ONE_READ
  end
end

function settle.l(stored, _, period, limit, slack, index)
  local of_period, total, head, tail, oldest, newest
  if stored and hashed then
    of_period, total, head, tail, oldest, newest = match(stored, '^l(%d+),(%d+),(%d+),(%d+),(%d+),(%d+)$')
  end
  if of_period then
    total, head, tail = tonumber(total), tonumber(head), tonumber(tail)
    oldest, newest = tonumber(oldest), tonumber(newest)
  else
    total, head, tail, oldest, newest = 0, 1, 0, 0, 0
  end
  local meter = {
    kind = 'l', index = index, charged = 0, moved = false, period = period, limit = limit, head = head, tail = tail,
    newest = newest, first = head, asked = {}, oldest = 0, total = 0, stamp = now, available = 0,
  }
  if of_period and tonumber(of_period) ~= period then
    -- All of them have gone, and what comes is numbered after them.
    meter.first, total, newest = tail + 1, 0, 0
  elseif head <= tail and oldest + period <= now then
    meter.first = tail + 1
    visit_entries(meter, head, function(at, cost, sequence)
      if at + period > now and cost > 0 then
        meter.first, oldest = sequence, at
        return true
      end
      total = total - cost
    end)
  end
  meter.oldest, meter.total = oldest, total
  if head <= tail then
    if newest - now > slack then
      meter.moved = true
    elseif newest > now then
      meter.stamp = newest
    end
  end
  meter.available = total < limit and limit - total or 0
  meter.asks = function(self, min, granted)
    -- Who asked must know when so much of what is stored has left.
    local used = self.total + self.charged
    if granted == 0 and min <= limit then self.asked[#self.asked + 1] = used + min - limit end
    self.asked[#self.asked + 1] = used + granted - limit + 1
  end
  return meter
end

-- The cost, and when it was charged.
function refund.l(meter, cost, charged_at)
  local there
  if meter.moved then
    -- They all count as made now.
    there = charged_at == meter.stamp and meter.total or 0
  else
    there = 0
    local low, high = meter.first, meter.tail
    while low <= high do
      local middle = math.floor((low + high) / 2)
      local at, entry = match(redis.call('HGET', key, format('%d:%d', meter.index, middle)) or '0:0', '^(%d+):(%d+)$')
      at = tonumber(at)
      if at == charged_at then
        there, meter.refunded = tonumber(entry), middle
        break
      elseif at < charged_at then
        low = middle + 1
      else
        high = middle - 1
      end
    end
  end
  meter.refunded_at = charged_at
  local taken = there < cost and there or cost
  meter.total = meter.total - taken
  meter.left = there - taken
  meter.asked[1] = meter.total - meter.limit + 1
  return taken > 0
end

-- The text and the moment from which it decides like none; besides, what must be written to the
-- fields of the hash, and which of them have gone.
function state.l(meter, set, gone)
  local function name(sequence) return format('%d:%d', meter.index, sequence) end
  local function put(sequence, at, cost)
    set[#set + 1] = name(sequence)
    set[#set + 1] = format('%d:%d', at, cost)
  end
  local old_head, old_tail = meter.head, meter.tail
  local head, tail, oldest, newest = meter.first, meter.tail, meter.oldest, meter.newest
  local newest_cost
  if meter.moved then
    head = tail + 1
    if meter.total > 0 then
      tail, oldest, newest, newest_cost = head, meter.stamp, meter.stamp, meter.total
      put(tail, newest, newest_cost)
    end
  elseif meter.refunded and meter.left > 0 then
    put(meter.refunded, meter.refunded_at, meter.left)
  elseif meter.refunded and meter.refunded == head then
    local from = head + 1
    head = tail + 1
    visit_entries(meter, from, function(at, cost, sequence)
      if cost == 0 then return false end
      head, oldest = sequence, at
      return true
    end)
  elseif meter.refunded and meter.refunded == tail then
    repeat
      tail = tail - 1
      local at, cost = match(redis.call('HGET', key, name(tail)) or '0:1', '^(%d+):(%d+)$')
      newest = tonumber(at)
    until cost ~= '0'
  elseif meter.refunded then
    put(meter.refunded, meter.refunded_at, 0)
  end
  if meter.charged > 0 then
    if head <= tail and newest == meter.stamp then
      if not newest_cost then
        newest_cost = tonumber(match(redis.call('HGET', key, name(tail)) or '', ':(%d+)$')) or 0
      end
      put(tail, newest, newest_cost + meter.charged)
    else
      if head > tail then oldest = meter.stamp end
      tail, newest = tail + 1, meter.stamp
      put(tail, newest, meter.charged)
    end
  end
  for sequence = old_head, math.min(head - 1, old_tail) do gone[#gone + 1] = name(sequence) end
  for sequence = tail + 1, old_tail do
    if sequence >= head then gone[#gone + 1] = name(sequence) end
  end
  meter.head, meter.first, meter.tail, meter.oldest, meter.newest = head, head, tail, oldest, newest
  meter.total = meter.total + meter.charged
  return format('l%d,%d,%d,%d,%d,%d', meter.period, meter.total, head, tail, oldest, newest),
    head <= tail and newest + meter.period or 0
end

-- A shorter log that answers what was asked like the whole: its first entry, those with which what
-- was asked has left, and the rest as one with the last. Their number, then when and how much.
function reply.l(meter, answer)
  local count_at = #answer + 1
  answer[count_at] = 0
  local left = meter.total
  local function ship(at, cost)
    answer[count_at] = answer[count_at] + 1
    answer[#answer + 1], answer[#answer + 2] = at, cost
    left = left - cost
  end
  if left == 0 then return end
  ship(meter.oldest, 1)
  table.sort(meter.asked)
  local sum, ask = 0, 1
  local function next_asked()
    while meter.asked[ask] and meter.asked[ask] <= meter.total - left do ask = ask + 1 end
    -- The last entry answers for the whole.
    return meter.asked[ask] and meter.asked[ask] < meter.total and meter.asked[ask]
  end
  if left > 0 and next_asked() then
    visit_entries(meter, meter.first, function(at, cost)
      sum = sum + cost
      local wanted = next_asked()
      while wanted and left > 0 and wanted <= sum do
        ship(at, wanted - (meter.total - left))
        wanted = next_asked()
      end
      return not wanted or left == 0
    end)
  end
  if left > 0 then ship(meter.newest, left) end
end
