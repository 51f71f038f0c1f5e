-- begin: starts a rebuild, unless it is not needed or another rebuild runs. The view accepts changes from now on.
--
-- KEYS     [1] state hash  [2] feed  [3] ranked feed  [4] moves  [5] connections
-- ARGV     [1] now ms  [2] deadline ms  [3] token (8 bytes)  [4] state lifetime ms
--          [5] 'missing': if there is no view of this epoch; 'short': also if the view has fewer entries than [6] and a
--          low end; 'anew': even if a view or a rebuild exists  [6] the least number of entries
-- Returns  'begun', 'building' (another caller's rebuild, within its deadline) or 'ready'
-- Keeps    V8: a view of another epoch is deleted.
--          A reader who has a connection is watched again.
--          If the response is lost, a repetition returns 'building' until the deadline.
--          A short view keeps its moves, so a walk through its ranked feed goes on.
local function is_short(feed, meta, least)
  return #meta > META_BYTES and redis.call('LLEN', feed) + math.floor(string.byte(meta, 1) / RECENT) < least
end

local function begin(keys, argv, epoch)
  local meta, is_anew, is_refill = meta_of(epoch, unpack(keys, 1, 4)), argv[5] == 'anew', false
  if meta and not is_anew and not has_flag(meta, BUILDING) then
    is_refill = argv[5] == 'short' and is_short(keys[2], meta, tonumber(argv[6]))
    if not is_refill then return 'ready' end
  elseif meta and not is_anew and struct.unpack('<I6', meta, DEADLINE) >= tonumber(argv[1]) then
    return 'building'
  end
  local flags, newest, low = BUILDING, 0, ''
  if meta and not is_anew and not is_refill then
    -- This caller takes the rebuild over. Changes since its start remain.
    flags, newest, low = string.byte(meta, 1), newest_of(meta), low_of(meta)
  else
    redis.call('DEL', unpack(keys, 1, 3))
    if is_refill and has_flag(meta, RANKED) then flags = flags + RANKED else redis.call('DEL', keys[4]) end
    if redis.call('EXISTS', keys[5]) == 1 then flags = flags + WATCHED end
  end
  local head = struct.pack('<BI6I6', flags, tonumber(argv[1]), tonumber(argv[2]))
  redis.call('HSET', keys[1], META, head .. argv[3] .. struct.pack('<I6', newest) .. epoch .. low)
  redis.call('PEXPIRE', keys[1], argv[4])
  return 'begun'
end
