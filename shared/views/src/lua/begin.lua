-- begin: starts a rebuild unless there is a view of this epoch or another rebuild is under way. From here on follows, deliveries and reads land in the view.
--
-- KEYS     [1] state hash  [2] feed
-- ARGV     [1] now ms  [2] deadline ms  [3] token (8 bytes)  [4] state lifetime ms  [5] '1' to start over whatever is there
-- Returns  'begun', 'building' (somebody else's, within its deadline) or 'ready'
local function begin(keys, argv, epoch)
  local meta = meta_of(keys[1], epoch)
  if meta and argv[5] ~= '1' then
    if not has_flag(meta, BUILDING) then return 'ready' end
    if struct.unpack('<I6', meta, 8) >= tonumber(argv[1]) then return 'building' end
  end
  local flags, newest, low = BUILDING, 0, ''
  if meta and argv[5] ~= '1' then
    -- Taken over: what has landed since the first attempt stays.
    flags, newest, low = string.byte(meta, 1), newest_of(meta), low_of(meta)
  else
    redis.call('DEL', keys[1], keys[2])
  end
  local head = struct.pack('<BI6I6', flags, tonumber(argv[1]), tonumber(argv[2]))
  redis.call('HSET', keys[1], META, head .. argv[3] .. struct.pack('<I6', newest) .. epoch .. low)
  redis.call('PEXPIRE', keys[1], argv[4])
  return 'begun'
end
