-- react: stores a reader's reactions from the facts. Idempotent and commutative: a fact's version orders its values.
--
-- KEYS     [1] the reader's reactions
-- ARGV     [1] token of the view that was open before the facts were read, '' for any view  [2] lifetime ms
--          [3] maximum number of authors
--          then for each author: author, value (a reaction state, which begins with its version)
-- Returns  the number of stored values; 0 without the view
-- Keeps    V7: a view that replaced a lost one has another token and does not accept facts that were read before the
--          loss. A later version is never replaced by an earlier one.
--          A view of too many authors is deleted as a whole.
local function react(keys, argv, epoch)
  local token = field_of(epoch, keys[1], META)
  if not token or (argv[1] ~= '' and token ~= argv[1] .. epoch) then return 0 end
  local stored = 0
  for a = 4, #argv, 2 do
    local known = redis.call('HGET', keys[1], argv[a])
    if not known or #known < 4 or struct.unpack('<I4', known) < struct.unpack('<I4', argv[a + 1]) then
      redis.call('HSET', keys[1], argv[a], argv[a + 1])
      stored = stored + 1
    end
  end
  if redis.call('HLEN', keys[1]) > tonumber(argv[3]) + 1 then
    redis.call('DEL', keys[1])
  else
    redis.call('PEXPIRE', keys[1], argv[2])
  end
  return stored
end
