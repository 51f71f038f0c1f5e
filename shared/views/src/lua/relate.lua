-- relate: applies the current state of an edge to a cached relation list. Idempotent and commutative: the time of a
-- change orders it.
--
-- KEYS     [1] list  [2] departures  [3] lease for filling it
-- ARGV     [1] '1' follows, '0' does not  [2] since ms  [3] member  [4] maximum number of members, 0 without a maximum
--          [5] lifetime ms
-- Returns  1 if the list is cached, else 0
-- Keeps    V8: a list of another epoch is deleted. Its marker names that epoch.
--          A fill that began before the change is not stored, because its lease is removed.
--          A follow that is older than a known unfollow does not come back. Without its departures, a list is deleted,
--          because they may have known such an unfollow.

-- The maximum number of departures of one list. Beyond it the list is deleted, and the next read fills it again.
local MOST_GONE = 5000

local function relate(keys, argv, epoch)
  local list, gone, marker = keys[1], keys[2], '\0' .. epoch
  redis.call('DEL', keys[3])
  local low = redis.call('ZSCORE', list, marker)
  if not low or not redis.call('ZSCORE', gone, marker) then
    redis.call('DEL', list, gone)
    return 0
  end
  local since, member, most = tonumber(argv[2]), argv[3], tonumber(argv[4])
  if argv[1] == '1' then
    local left = redis.call('ZSCORE', gone, member)
    if (left and tonumber(left) >= since) or since < tonumber(low) then return 1 end
    redis.call('ZADD', list, 'GT', argv[2], member)
    redis.call('PEXPIRE', list, argv[5])
    redis.call('PEXPIRE', gone, argv[5])
    if most > 0 and redis.call('ZCARD', list) > most + 1 then
      -- The marker is the lowest member. The member above it is removed, with all members of the same millisecond.
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
    -- No change arrives later than this.
    redis.call('ZREMRANGEBYSCORE', gone, '-inf', since - tonumber(argv[5]))
    if redis.call('ZCARD', gone) > MOST_GONE then redis.call('DEL', list, gone) end
  end
  return 1
end
