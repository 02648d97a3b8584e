-- Token bucket. Twin of `token_bucket.rs`, which explains it.
-- Quota: 'b', tick, n (units that come back each tick), p (units a token), full (bucket, in units).
-- `tat` is kept as at * n + rest with rest < n, since it may pass 2^53.
-- Text: b{tick},{n},{at},{rest}; only {at} where tick and n are 1.
function settle.b(stored, tick, n, p, full)
  local t = (now - now % tick) / tick
  local at, rest = 0, 0
  if stored then
    local of_tick, of_n, whole, part = match(stored, '^b(%d+),(%d+),(%d+),(%d+)$')
    if not of_tick then
      whole = match(stored, '^%d+$')
      of_tick, of_n, part = 1, 1, 0
    end
    if whole then
      of_tick, of_n, at, rest = tonumber(of_tick), tonumber(of_n), tonumber(whole), tonumber(part)
      if of_tick ~= tick or of_n ~= n then
        -- A bucket of another rate keeps its time until full.
        if rest > 0 then at = at + 1 end
        at, rest = math.ceil(at * of_tick / tick), 0
      end
    end
  end
  local found, found_rest, debt, moved = at, rest, 0, false
  if at >= t then
    -- Past 2^53 it is not exact, but then it is more than full, which is all that matters.
    debt = (at - t) * n + rest
    local over = at - t - 60000000 / tick
    if over >= 0 and over * n + rest > full then
      debt, moved = full, true
      at, rest = t + (debt - debt % n) / n, debt % n
    end
  end
  local level = full - debt
  return {
    found, found_rest, kind = 'b', charged = 0, moved = moved, available = level > 0 and (level - level % p) / p or 0,
    t = t, tick = tick, n = n, p = p, at = at, rest = rest, debt = debt,
  }
end

-- The units of the cost, as `whole` ticks and a `part` of one.
function refund.b(meter, whole, part)
  if meter.debt == 0 then return false end
  local at, rest = meter.at - whole, meter.rest - part
  if rest < 0 then at, rest = at - 1, rest + meter.n end
  if at < meter.t then at, rest = meter.t, 0 end
  meter.at, meter.rest = at, rest
  return true
end

-- The text, and the moment from which it decides like none.
function state.b(meter)
  local n, at, rest = meter.n, meter.at, meter.rest
  if meter.charged > 0 then
    local debt = meter.debt + meter.charged * meter.p
    at, rest = meter.t + (debt - debt % n) / n, debt % n
  end
  meter[1], meter[2] = at, rest
  local full_at = (rest > 0 and at + 1 or at) * meter.tick
  if n == 1 and meter.tick == 1 then return format('%d', at), full_at end
  return format('b%d,%d,%d,%d', meter.tick, n, at, rest), full_at
end

reply.b = 2
