-- begin: starts a rebuild unless there is a view or somebody else is at it. From here on follows, deliveries and reads land in the view.
--
-- KEYS     [1] state hash
-- ARGV     [1] now ms  [2] deadline ms  [3] token (8 bytes)  [4] state lifetime ms  [5] '1' to start over whatever is there
-- Returns  'begun', 'building' (somebody else's, within its deadline) or 'ready'
local function begin(keys, argv)
  local meta = redis.call('HGET', keys[1], META)
  if meta and argv[5] ~= '1' then
    if string.byte(meta, 1) == 0 then return 'ready' end
    if struct.unpack('<I6', meta, 14) >= tonumber(argv[1]) then return 'building' end
  end
  if argv[5] == '1' then redis.call('DEL', keys[1]) end
  -- Until the rebuild knows better, the view stores every entry: low is 0. Days of an earlier rebuild are kept.
  local days = (meta and argv[5] ~= '1') and string.sub(meta, META_BYTES + 1) or ''
  redis.call('HSET', keys[1], META, struct.pack('<BI6I6I6', 1, 0, tonumber(argv[1]), tonumber(argv[2])) .. argv[3] .. days)
  redis.call('PEXPIRE', keys[1], argv[4])
  return 'begun'
end
