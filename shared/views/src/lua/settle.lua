-- settle: removes posts from the moved posts of an author, after their tasks were sent.
--
-- KEYS     [1] moved posts, as in `moved`
-- ARGV     [1] ms before which no further task should run  [2] lifetime ms  [3…] fields and values, as they were read
-- Returns  the number of posts that remain, because they have moved again; one more if posts may be missing (`all`)
-- Keeps    a post whose step has changed since the read stays.
local function settle(keys, argv, epoch)
  for at = 3, #argv, 2 do
    if redis.call('HGET', keys[1], argv[at]) == argv[at + 1] then redis.call('HDEL', keys[1], argv[at]) end
  end
  redis.call('HDEL', keys[1], 'sent')
  redis.call('HSET', keys[1], 'epoch', epoch, 'next', argv[1])
  redis.call('PEXPIRE', keys[1], argv[2])
  return redis.call('HLEN', keys[1]) - 2
end
