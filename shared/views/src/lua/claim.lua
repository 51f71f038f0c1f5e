-- claim: begins to build the message for a watched reader. The caller reads the counts after this call.
--
-- KEYS     [1] connections  [2] state hash
-- ARGV     [1] the least time between two messages, ms
-- Returns  false if the reader is not watched; 'later' if the last message was built less than the least time ago and
--          another one is queued; 'again' if the caller has to send one that is delayed by the least time; or the bytes of the post that
--          was noted last, the time (ms) at which it was noted, the digest that was told last or '', and the connections
-- Keeps    A reader has at most one message in the least time.
local function claim(keys, argv, epoch)
  local fields = redis.call('HGETALL', keys[1])
  local now, least, notes, told, result = now_ms(), tonumber(argv[1]), nil, '', {}
  for f = 1, #fields, 2 do
    if fields[f] == META then
      notes = fields[f + 1]
    elseif fields[f] == TOLD then
      told = fields[f + 1]
    elseif struct.unpack('<I6', fields[f + 1]) > now then
      result[#result + 1] = fields[f]
    end
  end
  if #result == 0 then
    redis.call('DEL', keys[1])
    unwatched(keys[2], epoch)
    return false
  end
  local noted, built, post = notes_of(notes)
  -- A time in the future was written by a server whose clock was ahead.
  if built > now - least and built <= now then
    local meta = meta_of(keys[2], epoch)
    local deadline = meta and deadline_of(meta)
    if is_on_its_way(deadline, now, least) then return 'later' end
    if deadline then redis.call('HSET', keys[2], META, with_deadline(meta, now + least)) end
    return 'again'
  end
  redis.call('HSET', keys[1], META, struct.pack(NOTES, noted, now) .. post)
  table.insert(result, 1, told)
  table.insert(result, 1, string.format('%d', noted))
  table.insert(result, 1, post)
  return result
end
