-- watch: registers a connection of a reader, or renews it, and marks the reader's view as watched.
--
-- KEYS     [1] connections  [2] state hash
-- ARGV     [1] connection  [2] lifetime ms  [3] most connections of a reader
-- Returns  the digest of the counts that the connections were told last; false if they were told none
-- Keeps    The hash lives as long as its last connection. Of too many connections, the one that expires first is removed.
local function watch(keys, argv, epoch)
  local now = now_ms()
  local fields, expiries, others, first = redis.call('HGETALL', keys[1]), {}, 0, nil
  for f = 1, #fields, 2 do
    local name = fields[f]
    if name ~= META and name ~= TOLD and name ~= argv[1] then
      local expiry = struct.unpack('<I6', fields[f + 1])
      if expiry <= now then
        redis.call('HDEL', keys[1], name)
      else
        others, expiries[name] = others + 1, expiry
        if not first or expiry < expiries[first] then first = name end
      end
    end
  end
  if others >= tonumber(argv[3]) then redis.call('HDEL', keys[1], first) end
  redis.call('HSET', keys[1], argv[1], struct.pack('<I6', now + tonumber(argv[2])))
  redis.call('HSETNX', keys[1], META, struct.pack(NOTES, 0, 0))
  redis.call('PEXPIRE', keys[1], argv[2])
  local meta = meta_of(keys[2], epoch)
  if meta and not has_flag(meta, WATCHED) then redis.call('HSET', keys[2], META, with_flag(meta, WATCHED)) end
  return redis.call('HGET', keys[1], TOLD)
end
