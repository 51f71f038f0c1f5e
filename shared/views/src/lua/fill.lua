-- fill: stores a relation list read from the facts, unless somebody changed it meanwhile.
--
-- KEYS     [1] list  [2] who left it  [3] lease for filling it
-- ARGV     [1] token of the lease  [2] lifetime ms  [3] complete from this time on, ms  then member and since for each
-- Returns  1, or 0 when the lease is not the caller's any more
local function fill(keys, argv, epoch)
  if redis.call('GET', keys[3]) ~= argv[1] .. epoch then return 0 end
  redis.call('DEL', keys[1], keys[2], keys[3])
  redis.call('ZADD', keys[1], argv[3], '\0' .. epoch)
  for at = 4, #argv, 2 do
    redis.call('ZADD', keys[1], argv[at + 1], argv[at])
  end
  redis.call('PEXPIRE', keys[1], argv[2])
  return 1
end
