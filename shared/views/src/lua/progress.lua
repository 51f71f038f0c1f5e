-- progress: stores that a page of a fan-out is done, and the number of followers that it handled.
--
-- KEYS     [1] the number of followers handled (8 bytes, big-endian), then a bit for each page that is done
-- ARGV     [1] page  [2] followers handled in it  [3] lifetime ms
-- Returns  {pages done, followers handled}
-- Keeps    V6: a page counts once, however often it is reported.
local function progress(keys, argv)
  local added = redis.call('SETBIT', keys[1], 64 + tonumber(argv[1]), 1) == 0 and argv[2] or 0
  local handled = redis.call('BITFIELD', keys[1], 'INCRBY', 'i64', 0, added)
  redis.call('PEXPIRE', keys[1], argv[3])
  return { redis.call('BITCOUNT', keys[1], 8, -1), handled[1] }
end
