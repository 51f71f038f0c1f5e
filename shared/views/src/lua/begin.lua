-- begin: starts a rebuild, unless a view of this epoch or another rebuild exists. The view accepts changes from now on.
--
-- KEYS     [1] state hash  [2] feed  [3] ranked feed  [4] moves  [5] connections
-- ARGV     [1] now ms  [2] deadline ms  [3] token (8 bytes)  [4] state lifetime ms
--          [5] '1' to start again even if a view or a rebuild exists
-- Returns  'begun', 'building' (another caller's rebuild, within its deadline) or 'ready'
-- Keeps    V8: a view of another epoch counts as missing.
--          A reader who has a connection is watched again.
--          If the response is lost, a repetition returns 'building' until the deadline.
local function begin(keys, argv, epoch)
  local meta = meta_of(keys[1], epoch)
  if meta and argv[5] ~= '1' then
    if not has_flag(meta, BUILDING) then return 'ready' end
    if struct.unpack('<I6', meta, DEADLINE) >= tonumber(argv[1]) then return 'building' end
  end
  local flags, newest, low = BUILDING, 0, ''
  if meta and argv[5] ~= '1' then
    -- This caller takes the rebuild over. Changes since its start remain.
    flags, newest, low = string.byte(meta, 1), newest_of(meta), low_of(meta)
  else
    redis.call('DEL', unpack(keys, 1, 4))
    if redis.call('EXISTS', keys[5]) == 1 then flags = flags + WATCHED end
  end
  local head = struct.pack('<BI6I6', flags, tonumber(argv[1]), tonumber(argv[2]))
  redis.call('HSET', keys[1], META, head .. argv[3] .. struct.pack('<I6', newest) .. epoch .. low)
  redis.call('PEXPIRE', keys[1], argv[4])
  return 'begun'
end
