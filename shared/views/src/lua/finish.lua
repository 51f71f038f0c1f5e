-- finish: ends a rebuild. From now on the view is complete.
--
-- KEYS     [1] state hash  [2] feed
-- ARGV     [1] token  [2] now ms  [3] state lifetime ms  [4] lifetime ms of a view without a feed
-- Returns  1, or 0 if the rebuild is no longer the caller's
local function finish(keys, argv, epoch)
  local meta = meta_of(epoch, unpack(keys))
  if not meta or not has_flag(meta, BUILDING) or string.sub(meta, TOKEN, NEWEST - 1) ~= argv[1] then return 0 end
  local flags = string.byte(meta, 1) - BUILDING
  redis.call('HSET', keys[1], META, struct.pack('<BI6I6', flags, tonumber(argv[2]), 0) .. string.sub(meta, TOKEN))
  redis.call('PEXPIRE', keys[1], bit.band(flags, FEED) ~= 0 and argv[3] or argv[4])
  return 1
end
