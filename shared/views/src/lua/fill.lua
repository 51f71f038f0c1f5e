-- fill: stores a relation list from the facts, unless a change has removed the lease.
--
-- KEYS     [1] list  [2] departures  [3] lease for filling it
-- ARGV     [1] token of the lease  [2] lifetime ms  [3] time from which the list is complete, ms
--          then for each member: member, since ms
-- Returns  1, or 0 if the caller does not hold the lease
-- Keeps    a list that was read from the facts before a change is never stored after it.
--          Beside a list there are departures: their marker is there from the fill on (`relate`).
local function fill(keys, argv, epoch)
  if redis.call('GET', keys[3]) ~= argv[1] .. epoch then return 0 end
  redis.call('DEL', keys[1], keys[2], keys[3])
  redis.call('ZADD', keys[1], argv[3], '\0' .. epoch)
  redis.call('ZADD', keys[2], '+inf', '\0' .. epoch)
  for at = 4, #argv, 2 do
    redis.call('ZADD', keys[1], argv[at + 1], argv[at])
  end
  redis.call('PEXPIRE', keys[1], argv[2])
  redis.call('PEXPIRE', keys[2], argv[2])
  return 1
end
