-- advance: stores what the facts say of an author's head, unless something later is known.
--
-- KEYS     [1] head
-- ARGV     [1] version, which grows with every change of the head  [2] the rest of the record  [3] lifetime ms
-- Returns  1, or 0 when the same or something later was known
-- Keeps    a record of another epoch counts as none.
local function advance(keys, argv, epoch)
  local known = redis.call('GET', keys[1])
  if known and #known >= 6 and is_of(known, epoch) and struct.unpack('<I6', known) >= tonumber(argv[1]) then return 0 end
  redis.call('SET', keys[1], struct.pack('<I6', tonumber(argv[1])) .. argv[2] .. epoch, 'PX', argv[3])
  return 1
end
