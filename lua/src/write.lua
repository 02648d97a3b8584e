-- Writes a record that is a string.
if changed then
  local expires = 0
  for i = 1, quotas do
    if not these or these[i] then
      local text, at = state[meters[i].kind](meters[i])
      texts[i] = text
      if at > expires then expires = at end
    else
      texts[i] = texts[i] or '-'
    end
  end
  if these then
    -- What stays as it is may live longer.
    local left = redis.call('PTTL', key)
    if left > 0 and now + left * 1000 > expires then expires = now + left * 1000 end
  end
  local text = quotas == 1 and texts[1] or table.concat(texts, ';', 1, quotas)
  if hashed and these then
    -- A log that another quota of this policy had is still there.
    redis.call('HSET', key, 'h', text)
    redis.call('PEXPIRE', key, format('%d', (expires > now and expires - now or 0) / 1000 + (virtual and 3600001 or 1)))
  elseif virtual then
    redis.call('SET', key, text, 'PX', format('%d', (expires > now and expires - now or 0) / 1000 + 3600001))
  else
    redis.call('SET', key, text, 'PXAT', format('%d', expires / 1000 + 1))
  end
elseif stored and operation == 'a' and redis.call('PTTL', key) == -1 then
  -- The key has lost its expiry.
  local expires = now
  for i = 1, quotas do
    local _, at = state[meters[i].kind](meters[i])
    if at > expires then expires = at end
  end
  redis.call('PEXPIRE', key, format('%d', (expires - now) / 1000 + (virtual and 3600001 or 1)))
end
if operation == 'r' then tell() end
return answer
