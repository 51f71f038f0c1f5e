-- watch: registers a connection of a reader, or renews it, and marks the reader's view as watched.
--
-- KEYS     [1] connections  [2] state hash  [3] feed  [4] unread notices that connections were told
-- ARGV     [1] connection  [2] lifetime ms  [3] most connections of a reader
-- Returns  what this connection was told (12 bytes), or ''; and when the last message was built (ms)
-- Keeps    The hash lives as long as its last connection. Of too many connections, the one that expires first is
--          removed. A connection that was not registered knows nothing.
local function watch(keys, argv, epoch)
  local now = now_ms()
  local fields, expiries, others, first = redis.call('HGETALL', keys[1]), {}, 0, nil
  local notes, known = nil, ''
  for f = 1, #fields, 2 do
    local name, value = fields[f], fields[f + 1]
    if name == META then
      notes = value
    else
      local expiry = expiry_of(value)
      if name == argv[1] then
        if expiry > now then known = digest_of(value, epoch) end
      elseif expiry <= now then
        redis.call('HDEL', keys[1], name)
      else
        others, expiries[name] = others + 1, expiry
        if not first or expiry < expiries[first] then first = name end
      end
    end
  end
  if others >= tonumber(argv[3]) then redis.call('HDEL', keys[1], first) end
  local digest = known ~= '' and known .. epoch or ''
  redis.call('HSET', keys[1], argv[1], struct.pack(EXPIRY, now + tonumber(argv[2])) .. digest)
  redis.call('HSETNX', keys[1], META, struct.pack(NOTES, 0, 0, 0))
  redis.call('PEXPIRE', keys[1], argv[2])
  redis.call('PEXPIRE', keys[4], argv[2])
  local meta = meta_of(epoch, keys[2], keys[3])
  if meta and not has_flag(meta, WATCHED) then redis.call('HSET', keys[2], META, with_flag(meta, WATCHED)) end
  local _, built = notes_of(notes)
  return { known, string.format('%d', built) }
end
