-- told_notices: stores the unread notices that some connections of a reader know.
--
-- KEYS     [1] connections  [2] unread notices that connections were told
-- ARGV     [1] when the message was built (ms)  then for each platform of a connection its field and the number
-- Returns  the number of these that are stored; 0 if a message was built since then
-- Keeps    A number is stored only if the connection has it, and no later message replaces it.
local function told_notices(keys, argv, epoch)
  local _, built = notes_of(redis.call('HGET', keys[1], META))
  local stored = 0
  if built ~= tonumber(argv[1]) then return 0 end
  for a = 2, #argv, 2 do
    if redis.call('HEXISTS', keys[2], argv[a]) == 1 then
      redis.call('HSET', keys[2], argv[a], pack_told(tonumber(argv[a + 1]), epoch))
      stored = stored + 1
    end
  end
  return stored
end
