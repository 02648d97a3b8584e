-- Sliding window. Twin of `sliding_window.rs`, which explains it.
-- Quota: 's', tick, ticks (a period), limit, slack (ticks).
-- Text: s{period},{window},{previous},{current}.
function settle.s(stored, tick, ticks, limit, slack)
  local t = (now - now % tick) / tick
  local window, elapsed = (t - t % ticks) / ticks, t % ticks
  local period, of_window, previous, current = nil, 0, 0, 0
  if stored then
    period, of_window, previous, current = match(stored, '^s(%d+),(%d+),(%d+),(%d+)$')
  end
  if tonumber(period) == ticks * tick then
    of_window, previous, current = tonumber(of_window), tonumber(previous), tonumber(current)
  else
    of_window, previous, current = 0, 0, 0
  end
  local found_previous, found_current, moved = previous, current, false
  if of_window > window then
    if of_window * ticks - t > slack then
      moved = true
    else
      window, elapsed = of_window, 0
    end
  elseif of_window == window - 1 then
    previous, current = current, 0
  elseif of_window < window then
    previous, current = 0, 0
  end
  -- Past 2^53 it is not exact, but then there is no room, which is all that matters.
  local room = limit * ticks - previous * (ticks - elapsed) - current * ticks
  return {
    of_window, found_previous, found_current, kind = 's', charged = 0, moved = moved,
    available = room > 0 and (room - room % ticks) / ticks or 0,
    period = ticks * tick, window = window, previous = previous, current = current,
  }
end

-- The cost, and the window it was charged in.
function refund.s(meter, cost, window)
  local name
  if window == meter.window then
    name = 'current'
  elseif window + 1 == meter.window then
    name = 'previous'
  else
    return false
  end
  local before = meter[name]
  meter[name] = before > cost and before - cost or 0
  return before > 0
end

function state.s(meter)
  local window, previous, current = meter.window, meter.previous, meter.current + meter.charged
  meter[1], meter[2], meter[3] = window, previous, current
  local windows = current > 0 and 2 or previous > 0 and 1 or 0
  return format('s%d,%d,%d,%d', meter.period, window, previous, current), (window + windows) * meter.period
end

reply.s = 3
