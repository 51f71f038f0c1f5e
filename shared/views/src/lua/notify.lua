-- notify: notes that the counts of watched readers have changed, and decides who sends the message that tells them.
--
-- KEYS     for each user: connections, state hash, feed
-- ARGV     [1] the least time between two messages, ms  [2] the bytes of the post that changed, or ''
-- Returns  the positions (from 1) of the users whom the caller sends a message now; those whom it sends one that is
--          delayed by the least time. The others are not watched, or a queued message will have this change.
-- Keeps    If the caller sends these messages, one of them, or a queued one, is built after the change.
--          If the response is lost, a repetition may name nobody. Then the next change or ping sends the message.
local function notify(keys, argv, epoch)
  local now, least, result = now_ms(), tonumber(argv[1]), { {}, {}, {} }
  for first = 1, #keys, 3 do
    local notes, state, feed = redis.call('HGET', keys[first], META), keys[first + 1], keys[first + 2]
    if not notes then
      unwatched(epoch, state, feed)
    else
      local _, built, free = notes_of(notes)
      if argv[2] ~= '' then redis.call('HSET', keys[first], META, struct.pack(NOTES, now, built, free) .. argv[2]) end
      local decision, known = NOW, meta_of(epoch, state, feed)
      if known then
        local deadline
        decision, deadline = announce(deadline_of(known), now, least)
        if deadline then redis.call('HSET', state, META, with_deadline(known, deadline)) end
      end
      table.insert(result[decision], (first + 2) / 3)
    end
  end
  return { result[NOW], result[LATER] }
end
