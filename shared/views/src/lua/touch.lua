-- touch: extends the lifetimes of a view after a read. It removes the oldest entries beyond the cap and old tombstones.
--
-- KEYS     [1] state hash  [2] feed  [3] ranked feed  [4] moves
-- ARGV     [1] now ms  [2] state lifetime ms  [3] feed lifetime ms  [4] cap
--          [5] unix second; tombstones with a lower revision are removed  [6] '1' if the ranked feed was read
-- Returns  1; false without a complete view that has a feed
local function touch(keys, argv, epoch)
  local state, feed, cap = keys[1], keys[2], tonumber(argv[4])
  local meta = meta_of(epoch, unpack(keys))
  if not meta or has_flag(meta, BUILDING) or not has_flag(meta, FEED) then return false end
  meta = flush(state, feed, meta)
  if not meta then return false end
  if redis.call('LLEN', feed) > cap then meta = trim_ranked(feed, keys[3], keys[4], meta, cap) end
  redis.call('HSET', state, META, struct.pack('<BI6', string.byte(meta, 1), tonumber(argv[1])) .. string.sub(meta, DEADLINE))
  redis.call('PEXPIRE', feed, argv[3])
  if argv[6] == '1' then
    redis.call('PEXPIRE', keys[3], argv[3])
    redis.call('PEXPIRE', keys[4], argv[3])
  end
  redis.call('PEXPIRE', state, argv[2])
  local fields = redis.call('HGETALL', state)
  for f = 1, #fields, 2 do
    if fields[f] ~= META and not is_live(fields[f + 1]) and rev_of(fields[f + 1]) < tonumber(argv[5]) then
      redis.call('HDEL', state, fields[f])
    end
  end
  return 1
end
