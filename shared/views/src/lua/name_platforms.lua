-- name_platforms: notes the platforms of whose unread notices a connection is told.
--
-- KEYS     [1] connections  [2] unread notices that connections were told
-- ARGV     [1] connection  [2] lifetime ms  then the platforms
-- Returns  for each of these platforms the number that the connection was told, '' if that is unknown
-- Keeps    A registered connection that names a platform for the first time counts as told 0: its reader has seen no
--          number yet. One that Redis has lost may have been told any. Platforms that the connection names no more, and
--          those of connections that are not registered, are removed.
local function name_platforms(keys, argv, epoch)
  local now, named, result = now_ms(), {}, {}
  local function is_registered(connection)
    local value = redis.call('HGET', keys[1], connection)
    return value and expiry_of(value) > now
  end
  for a = 3, #argv do named[platform_field(argv[a], argv[1])] = a - 2 end
  local fields = redis.call('HGETALL', keys[2])
  for f = 1, #fields, 2 do
    local connection, place = connection_of(fields[f]), named[fields[f]]
    if place then
      result[place] = told_of(fields[f + 1], epoch)
    elseif connection == argv[1] or not is_registered(connection) then
      redis.call('HDEL', keys[2], fields[f])
    end
  end
  local is_new = is_registered(argv[1])
  for field, place in pairs(named) do
    if not result[place] then
      result[place] = is_new and '0' or ''
      redis.call('HSET', keys[2], field, is_new and pack_told(0, epoch) or '')
    end
  end
  redis.call('PEXPIRE', keys[2], argv[2])
  return result
end
