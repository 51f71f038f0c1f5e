-- lease: takes the lease for storing a record or a list: its holder may store what it reads from the facts after this.
--
-- KEYS     [1] lease
-- ARGV     [1] token  [2] lifetime ms  [3] '1' to leave it to a holder of this epoch
-- Returns  1, or 0 when another has it
local function lease(keys, argv, epoch)
  local known = argv[3] == '1' and redis.call('GET', keys[1])
  if known and is_of(known, epoch) then return 0 end
  redis.call('SET', keys[1], argv[1] .. epoch, 'PX', argv[2])
  return 1
end
