-- touch: extends the lifetimes of a view after a read, drops whole chunks below the cap and old tombstones.
--
-- KEYS     [1] state hash, then the D feed chunks of the view, newest first
-- ARGV     [1] now ms  [2] state lifetime ms  [3] chunk lifetime ms  [4] cap  [5] tombstones older than this unix second go  [6] D  then D days
-- Returns  how many chunks were dropped; false without a complete view
local function touch(keys, argv)
  local state, days = keys[1], tonumber(argv[6])
  local meta = redis.call('HGET', state, META)
  if not meta or string.byte(meta, 1) ~= 0 then return false end
  local kept, dropped, low = 0, 0, low_of(meta)
  for d = 1, days do
    local day = tonumber(argv[6 + d])
    if kept >= tonumber(argv[4]) then
      redis.call('DEL', keys[1 + d])
      meta = without_day(meta, day)
      dropped = dropped + 1
      low = math.max(low, (day + 1) * 86400000)
    else
      kept = kept + redis.call('ZCARD', keys[1 + d])
      redis.call('PEXPIRE', keys[1 + d], argv[3])
    end
  end
  redis.call('HSET', state, META, '\0' .. struct.pack('<I6I6', low, tonumber(argv[1])) .. string.sub(meta, 14))
  redis.call('PEXPIRE', state, argv[2])
  local fields = redis.call('HGETALL', state)
  for f = 1, #fields, 2 do
    if fields[f] ~= META and not is_live(fields[f + 1]) and unpack_author(fields[f + 1]).rev < tonumber(argv[5]) then
      redis.call('HDEL', state, fields[f])
    end
  end
  return dropped
end
