-- unwatch: removes a connection of a reader. With the last one, the reader is no longer watched.
--
-- KEYS     [1] connections  [2] state hash  [3] feed
-- ARGV     [1] connection  [2] when it was found gone (ms), '' if it is closed for sure  [3] lifetime ms
-- Returns  the number of connections that remain
-- Keeps    It is idempotent. A connection that renewed itself after it was found gone stays: API Gateway says that a
--          connection is gone until its `$connect` has returned.
local function unwatch(keys, argv, epoch)
  local value = argv[2] ~= '' and redis.call('HGET', keys[1], argv[1])
  if not value or expiry_of(value) - tonumber(argv[3]) < tonumber(argv[2]) then redis.call('HDEL', keys[1], argv[1]) end
  local remaining, fields = 0, redis.call('HKEYS', keys[1])
  for f = 1, #fields do
    if fields[f] ~= META then remaining = remaining + 1 end
  end
  if remaining == 0 then
    redis.call('DEL', keys[1])
    unwatched(epoch, keys[2], keys[3])
  end
  return remaining
end
