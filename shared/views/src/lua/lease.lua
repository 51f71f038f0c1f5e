-- lease: takes the lease for a record or a list. Its holder may store facts that it reads after this call.
-- Access of a user is stored with it too: '1' only if nothing is known, '2' in any case.
--
-- KEYS     [1] lease
-- ARGV     [1] token  [2] lifetime ms  [3] '1' to fail if a lease of this epoch exists; else this call takes it over
-- Returns  1, or 0 if [3] is '1' and a lease exists
local function lease(keys, argv, epoch)
  local known = argv[3] == '1' and redis.call('GET', keys[1])
  if known and is_of(known, epoch) then return 0 end
  redis.call('SET', keys[1], argv[1] .. epoch, 'PX', argv[2])
  return 1
end
