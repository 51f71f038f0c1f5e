-- store: stores a record read from the facts, unless what it says has changed meanwhile.
--
-- KEYS     [1] record  [2] lease for storing it
-- ARGV     [1] token of the lease  [2] record  [3] lifetime ms
-- Returns  1, or 0 when the lease is not the caller's any more
local function store(keys, argv, epoch)
  if redis.call('GET', keys[2]) ~= argv[1] .. epoch then return 0 end
  redis.call('DEL', keys[2])
  redis.call('SET', keys[1], argv[2] .. epoch, 'PX', argv[3])
  return 1
end
