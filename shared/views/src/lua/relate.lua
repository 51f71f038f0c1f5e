-- relate: brings one edge, as it is now, into one cached relation list. Idempotent and commutative: the time of a change orders it.
--
-- KEYS     [1] list  [2] who left it  [3] lease for filling it
-- ARGV     [1] '1' follows, '0' does not  [2] since when, ms  [3] member  [4] most members, 0 for any number  [5] lifetime ms
-- Returns  1 when the list is cached
-- Keeps    a list of another epoch is not touched: its marker, which names the epoch, is not this one's.
--          a fill that began before the change is not stored (its lease is gone); a follow older than a known unfollow does not come back.

-- Most who left that are remembered of one list. With more, the list is forgotten and filled again when it is read.
local MOST_GONE = 5000

local function relate(keys, argv, epoch)
  local list, gone, marker = keys[1], keys[2], '\0' .. epoch
  redis.call('DEL', keys[3])
  local low = redis.call('ZSCORE', list, marker)
  if not low then return 0 end
  local since, member, most = tonumber(argv[2]), argv[3], tonumber(argv[4])
  if argv[1] == '1' then
    local left = redis.call('ZSCORE', gone, member)
    if (left and tonumber(left) >= since) or since < tonumber(low) then return 1 end
    redis.call('ZADD', list, 'GT', argv[2], member)
    redis.call('PEXPIRE', list, argv[5])
    if most > 0 and redis.call('ZCARD', list) > most + 1 then
      -- The marker is the lowest member; the one above it goes, and all of its millisecond.
      local lowest = redis.call('ZRANGE', list, 1, 1, 'WITHSCORES')
      redis.call('ZREMRANGEBYSCORE', list, '-inf', lowest[2])
      redis.call('ZADD', list, tonumber(lowest[2]) + 1, marker)
    end
  else
    local known = redis.call('ZSCORE', list, member)
    if known and tonumber(known) > since then return 1 end
    redis.call('ZREM', list, member)
    redis.call('ZADD', gone, 'GT', argv[2], member)
    redis.call('PEXPIRE', gone, argv[5])
    -- Nothing arrives as late as that.
    redis.call('ZREMRANGEBYSCORE', gone, '-inf', since - tonumber(argv[5]))
    if redis.call('ZCARD', gone) > MOST_GONE then redis.call('DEL', list, gone) end
  end
  return 1
end
