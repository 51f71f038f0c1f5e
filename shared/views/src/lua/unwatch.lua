-- unwatch: removes a connection of a reader. With the last one, the reader is no longer watched.
--
-- KEYS     [1] connections  [2] state hash
-- ARGV     [1] connection
-- Returns  the number of connections that remain
-- Keeps    It is idempotent. A connection that renews itself later is registered again.
local function unwatch(keys, argv, epoch)
  redis.call('HDEL', keys[1], argv[1])
  local remaining, fields = 0, redis.call('HKEYS', keys[1])
  for f = 1, #fields do
    if fields[f] ~= META and fields[f] ~= TOLD then remaining = remaining + 1 end
  end
  if remaining == 0 then
    redis.call('DEL', keys[1])
    unwatched(keys[2], epoch)
  end
  return remaining
end
