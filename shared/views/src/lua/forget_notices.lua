-- forget_notices: returns what the connections of a reader were told of unread notices, and forgets it. The caller
-- builds the messages that tell them.
--
-- KEYS     [1] unread notices that connections were told
-- Returns  for each platform of a connection: its field, and the number that the connection was told, '' if that is
--          unknown
-- Keeps    From here on it is unknown what the connections know, until `told_notices` stores it.
local function forget_notices(keys, argv, epoch)
  local fields = redis.call('HGETALL', keys[1])
  for f = 1, #fields, 2 do
    local value = fields[f + 1]
    if value ~= '' then redis.call('HSET', keys[1], fields[f], '') end
    fields[f + 1] = told_of(value, epoch)
  end
  return fields
end
