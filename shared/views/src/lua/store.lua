-- store: stores a record from the facts, unless a change has removed the lease.
--
-- KEYS     [1] record  [2] lease for storing it
-- ARGV     [1] token of the lease  [2] record  [3] lifetime ms
-- Returns  1, or 0 if the caller does not hold the lease
-- Keeps    a record that was read from the facts before a change is never stored after it.
local function store(keys, argv, epoch)
  if redis.call('GET', keys[2]) ~= argv[1] .. epoch then return 0 end
  redis.call('DEL', keys[2])
  redis.call('SET', keys[1], argv[2] .. epoch, 'PX', argv[3])
  return 1
end
