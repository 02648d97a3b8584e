-- Writes a record that is a hash.
local function each_chunk(command, fields)
  for from = 1, #fields, 1000 do
    redis.call(command, key, unpack(fields, from, math.min(from + 999, #fields)))
  end
end

if changed then
  local expires, set, gone = 0, { 'h', '' }, {}
  for i = 1, math.max(quotas, #texts) do
    local text = texts[i] or '-'
    local meter = meters[i]
    if meter and (not these or these[i]) then
      local head, tail = match(text, '^l%d+,%d+,(%d+),(%d+),%d+,%d+$')
      if head and hashed and meter.kind ~= 'l' then
        -- The log of another quota goes with its state.
        for sequence = tonumber(head), tonumber(tail) do gone[#gone + 1] = format('%d:%d', i, sequence) end
      end
      local at
      texts[i], at = state[meter.kind](meter, set, gone)
      if at > expires then expires = at end
    elseif not meter then
      local head, tail = match(text, '^l%d+,%d+,(%d+),(%d+),%d+,%d+$')
      if head and hashed then
        for sequence = tonumber(head), tonumber(tail) do gone[#gone + 1] = format('%d:%d', i, sequence) end
      end
    else
      texts[i] = text
    end
  end
  if these then
    -- What stays as it is may live longer.
    local left = redis.call('PTTL', key)
    if left > 0 and now + left * 1000 > expires then expires = now + left * 1000 end
  end
  set[2] = table.concat(texts, ';', 1, quotas)
  if not hashed then redis.call('DEL', key) end
  -- First what may be refused for lack of memory: then nothing has changed.
  each_chunk('HSET', set)
  each_chunk('HDEL', gone)
  if virtual then
    redis.call('PEXPIRE', key, format('%d', (expires > now and expires - now or 0) / 1000 + 3600001))
  else
    redis.call('PEXPIREAT', key, format('%d', expires / 1000 + 1))
  end
elseif stored and operation == 'a' and redis.call('PTTL', key) == -1 then
  -- The key has lost its expiry.
  local longest = 0
  for i = 1, quotas do
    if meters[i].kind == 'l' then
      longest = math.max(longest, meters[i].newest + meters[i].period - now)
    else
      local _, at = state[meters[i].kind](meters[i])
      longest = math.max(longest, at - now)
    end
  end
  redis.call('PEXPIRE', key, format('%d', longest / 1000 + (virtual and 3600001 or 1)))
end
if operation == 'r' then tell() end
return answer
