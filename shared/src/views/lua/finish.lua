-- finish: ends a rebuild; the view is complete from here on.
--
-- KEYS     [1] state hash
-- ARGV     [1] token  [2] now ms  [3] state lifetime ms
-- Returns  1, or 0 when the rebuild is not the caller's any more
local function finish(keys, argv)
  local meta = redis.call('HGET', keys[1], META)
  if not meta or string.byte(meta, 1) == 0 or string.sub(meta, 20, 27) ~= argv[1] then return 0 end
  redis.call('HSET', keys[1], META,
    '\0' .. string.sub(meta, 2, 7) .. struct.pack('<I6', tonumber(argv[2])) .. string.sub(meta, 14))
  redis.call('PEXPIRE', keys[1], argv[3])
  return 1
end
