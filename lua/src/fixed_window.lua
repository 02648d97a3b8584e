-- Fixed window. Twin of `fixed_window.rs`, which explains it.
-- Quota: 'f', tick (1), period (us), limit, slack (us).
-- Text: f{period},{window},{count}.
function settle.f(stored, _, period, limit, slack)
  local window = (now - now % period) / period
  local of_period, of_window, count = nil, 0, 0
  if stored then
    of_period, of_window, count = match(stored, '^f(%d+),(%d+),(%d+)$')
  end
  if tonumber(of_period) == period then
    of_window, count = tonumber(of_window), tonumber(count)
  else
    of_window, count = 0, 0
  end
  local found, moved = count, false
  if of_window < window then
    count = 0
  elseif of_window * period - now > slack then
    moved = true
  else
    window = of_window
  end
  return {
    of_window, found, kind = 'f', charged = 0, moved = moved, available = count < limit and limit - count or 0,
    period = period, window = window, count = count,
  }
end

-- The cost, and the window it was charged in.
function refund.f(meter, cost, window)
  if window ~= meter.window then return false end
  local before = meter.count
  meter.count = before > cost and before - cost or 0
  return before > 0
end

function state.f(meter)
  local window, count = meter.window, meter.count + meter.charged
  meter[1], meter[2] = window, count
  return format('f%d,%d,%d', meter.period, window, count), (window + 1) * meter.period
end

reply.f = 2
