-- told: stores what some connections of a reader know, and the end of a message.
--
-- KEYS     [1] connections
-- ARGV     [1] when the message with these counts was built (ms)  [2] what they know (12 bytes)
--          [3] ms after which the next message may be built, '' if this one has not ended  then the connections
-- Returns  the number of these connections that are registered; 0 if a message with other counts was built since then
-- Keeps    It is stored only if the connection has it, and no later message replaces it.
local function told(keys, argv, epoch)
  local noted, built, _, post = notes_of(redis.call('HGET', keys[1], META))
  if built ~= tonumber(argv[1]) then return 0 end
  if argv[3] ~= '' then
    redis.call('HSET', keys[1], META, struct.pack(NOTES, noted, built, now_ms() + tonumber(argv[3])) .. post)
  end
  local stored = 0
  for a = 4, #argv do
    local value = redis.call('HGET', keys[1], argv[a])
    if value and #value >= EXPIRY_BYTES then
      redis.call('HSET', keys[1], argv[a], string.sub(value, 1, EXPIRY_BYTES) .. argv[2] .. epoch)
      stored = stored + 1
    end
  end
  return stored
end
