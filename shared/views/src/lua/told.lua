-- told: stores the digest of the counts that a reader's connections receive, if the reader is watched.
--
-- KEYS     [1] connections
-- ARGV     [1] digest (8 bytes), or '' if it is unknown what they know  [2] '1' to store it only if none is stored
-- Returns  1, or 0 if the reader is not watched
local function told(keys, argv)
  if redis.call('EXISTS', keys[1]) == 0 then return 0 end
  if argv[1] == '' then
    redis.call('HDEL', keys[1], TOLD)
  else
    redis.call(argv[2] == '1' and 'HSETNX' or 'HSET', keys[1], TOLD, argv[1])
  end
  return 1
end
