-- claim: begins to build the message for a watched reader. The caller reads the counts after this call.
--
-- KEYS     [1] connections  [2] state hash  [3] feed
-- ARGV     [1] the least time between two messages, ms  [2] the longest time that the next message waits for the end of
--          this one, ms
-- Returns  false if nobody watches; 'on its way' if it is too early for the next message, and another task for it is
--          queued; 'later' if the caller has to send one that is delayed by the least time; or the bytes of the
--          post that was noted last, the time (ms) at which it was noted, the time now (ms), and each connection with
--          what it was told (12 bytes), '' if that is unknown
-- Keeps    The next message is built when the least time is over since this one was posted (`told`), however long it
--          was on its way; if its end is never told, after the longest time. From here on it is unknown what the
--          connections know, until `told` stores it for this message.
local function claim(keys, argv, epoch)
  local fields = redis.call('HGETALL', keys[1])
  local now, least, longest, notes, result = now_ms(), tonumber(argv[1]), tonumber(argv[2]), nil, {}
  for f = 1, #fields, 2 do
    local name, value = fields[f], fields[f + 1]
    if name == META then
      notes = value
    elseif expiry_of(value) > now then
      result[#result + 1] = name
      result[#result + 1] = value
    end
  end
  if #result == 0 then
    redis.call('DEL', keys[1])
    unwatched(epoch, keys[2], keys[3])
    return false
  end
  local noted, _, free, post = notes_of(notes)
  -- A time beyond the longest was written by a server whose clock was ahead.
  if free > now and free <= now + longest then
    local meta = meta_of(epoch, keys[2], keys[3])
    local deadline = meta and deadline_of(meta)
    if is_on_its_way(deadline, now, least) then return 'on its way' end
    if deadline then redis.call('HSET', keys[2], META, with_deadline(meta, now + least)) end
    return 'later'
  end
  redis.call('HSET', keys[1], META, struct.pack(NOTES, noted, now, now + longest) .. post)
  for r = 1, #result, 2 do
    local value = result[r + 1]
    if #value > EXPIRY_BYTES then redis.call('HSET', keys[1], result[r], string.sub(value, 1, EXPIRY_BYTES)) end
    result[r + 1] = digest_of(value, epoch)
  end
  table.insert(result, 1, string.format('%d', now))
  table.insert(result, 1, string.format('%d', noted))
  table.insert(result, 1, post)
  return result
end
