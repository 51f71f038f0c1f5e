-- open: makes a reader's reactions ready to be filled: what changes from here on lands in them.
--
-- KEYS     [1] the reader's reactions
-- ARGV     [1] token for a new view  [2] lifetime ms
-- Returns  the token of the view
local function open(keys, argv)
  if redis.call('HSETNX', keys[1], META, argv[1]) == 1 then redis.call('PEXPIRE', keys[1], argv[2]) end
  return redis.call('HGET', keys[1], META)
end
