-- settle: removes posts from the moved posts of an author, after their tasks were sent.
--
-- KEYS     [1] moved posts, as in `moved`
-- ARGV     [1] `life` of the hash that was read  [2] ms before which no further task should run  [3] lifetime ms
--          [4…] fields and values, as they were read
-- Returns  the number of posts that remain, because they have moved again; 1 if the hash that was read is lost
-- Keeps    a post whose step has changed since the read stays.
local function settle(keys, argv, epoch)
  if field_of(epoch, keys[1], 'life') ~= argv[1] .. epoch then return 1 end
  for at = 4, #argv, 2 do
    if redis.call('HGET', keys[1], argv[at]) == argv[at + 1] then redis.call('HDEL', keys[1], argv[at]) end
  end
  redis.call('HDEL', keys[1], 'sent', 'by')
  redis.call('HSET', keys[1], 'next', argv[2])
  redis.call('PEXPIRE', keys[1], argv[3])
  return redis.call('HLEN', keys[1]) - 2
end
