-- replace: brings a record that is there in line with a later version, and takes the lease from whoever is about to store an older one.
--
-- KEYS     [1] record, which begins with its version (6 bytes)  [2] lease for storing it
-- ARGV     [1] version  [2] record  [3] lifetime ms
-- Returns  1, or 0 when there is no record, or one of another epoch, of the same version or a later one
-- Keeps    V4; a change is never undone by facts that were read before it, nor brought back by one that comes late after a loss.
local function replace(keys, argv, epoch)
  redis.call('DEL', keys[2])
  local known = redis.call('GET', keys[1])
  if not known or #known < 6 or not is_of(known, epoch) or struct.unpack('<I6', known) >= tonumber(argv[1]) then return 0 end
  redis.call('SET', keys[1], argv[2] .. epoch, 'PX', argv[3])
  return 1
end
