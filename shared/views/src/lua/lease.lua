-- lease: takes the lease for a record or a list. Its holder may store facts that it reads after this call.
--
-- KEYS     [1] lease
-- ARGV     [1] token  [2] lifetime ms  [3] '1' to fail if a lease of this epoch exists
-- Returns  1, or 0 if another caller holds the lease
local function lease(keys, argv, epoch)
  local known = argv[3] == '1' and redis.call('GET', keys[1])
  if known and is_of(known, epoch) then return 0 end
  redis.call('SET', keys[1], argv[1] .. epoch, 'PX', argv[2])
  return 1
end
