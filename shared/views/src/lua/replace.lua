-- replace: replaces an existing record by a later version, and removes the lease for storing an older one.
--
-- KEYS     [1] record, which begins with its version (6 bytes)  [2] lease for storing it
-- ARGV     [1] version  [2] record  [3] lifetime ms
-- Returns  1, or 0 if there is no record of this epoch, or one of the same or a later version
-- Keeps    V4. Facts that were read before a change never undo it. After a loss, a late change creates no record.
local function replace(keys, argv, epoch)
  redis.call('DEL', keys[2])
  local known = redis.call('GET', keys[1])
  known = current(known, known and #known >= 6 and is_of(known, epoch), keys[1])
  if not known or struct.unpack('<I6', known) >= tonumber(argv[1]) then return 0 end
  redis.call('SET', keys[1], argv[2] .. epoch, 'PX', argv[3])
  return 1
end
