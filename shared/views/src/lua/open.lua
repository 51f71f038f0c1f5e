-- open: prepares the view of a reader's reactions for a fill, and for changes. Deletes a view of another epoch.
--
-- KEYS     [1] the reader's reactions
-- ARGV     [1] token for a new view  [2] lifetime ms
-- Returns  the token of the view
local function open(keys, argv, epoch)
  local token = field_of(epoch, keys[1], META)
  if token then return string.sub(token, 1, -1 - #epoch) end
  redis.call('DEL', keys[1])
  redis.call('HSET', keys[1], META, argv[1] .. epoch)
  redis.call('PEXPIRE', keys[1], argv[2])
  return argv[1]
end
