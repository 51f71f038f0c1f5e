-- progress: stores that a page of a fan-out is done, and the number of followers that it handled.
--
-- KEYS     [1] bitmap of pages done  [2] followers handled
-- ARGV     [1] page  [2] followers handled in it  [3] lifetime ms
-- Returns  {pages done, followers handled}
-- Keeps    V6: a page counts once, however often it is reported.
local function progress(keys, argv)
  if redis.call('SETBIT', keys[1], argv[1], 1) == 0 then redis.call('INCRBY', keys[2], argv[2]) end
  redis.call('PEXPIRE', keys[1], argv[3])
  redis.call('PEXPIRE', keys[2], argv[3])
  return { redis.call('BITCOUNT', keys[1]), tonumber(redis.call('GET', keys[2]) or '0') }
end
