-- advance: stores an author's head from the facts, unless the record has the same or a later version.
--
-- KEYS     [1] head
-- ARGV     [1] version, which grows with every change of the head  [2] the rest of the record  [3] lifetime ms
-- Returns  1, or 0 if the record had the same or a later version
-- Keeps    V8: a record of another epoch counts as missing.
local function advance(keys, argv, epoch)
  local known = redis.call('GET', keys[1])
  if known and #known >= 6 and is_of(known, epoch) and struct.unpack('<I6', known) >= tonumber(argv[1]) then return 0 end
  redis.call('SET', keys[1], struct.pack('<I6', tonumber(argv[1])) .. argv[2] .. epoch, 'PX', argv[3])
  return 1
end
