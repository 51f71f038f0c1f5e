-- count: stores the reaction counts of a post from the facts, unless a later version is known.
--
-- KEYS     [1] counts, which begin with their version (6 bytes)  [2] lease for storing them
-- ARGV     [1] token of the lease  [2] version  [3] record  [4] lifetime ms  [5] lifetime ms without the lease
-- Returns  1, or 0 if a later version is known
-- Keeps    counts that were read before a reaction are used for a moment only.
local function count(keys, argv, epoch)
  local known = redis.call('GET', keys[1])
  if known and #known >= 6 and is_of(known, epoch) and struct.unpack('<I6', known) > tonumber(argv[2]) then return 0 end
  local leased = redis.call('GET', keys[2]) == argv[1] .. epoch
  redis.call('SET', keys[1], argv[3] .. epoch, 'PX', leased and argv[4] or argv[5])
  if leased then redis.call('DEL', keys[2]) end
  return 1
end
