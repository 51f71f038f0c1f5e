-- retract: takes deleted posts out of live views, the inverse of deliver. Idempotent and commutative, also with deliver (V4).
--
-- KEYS     as deliver
-- ARGV     [1] D  then D days
--          then for every post: author, seq, the author's deletions including this one, member, index of its day (1..D)
-- Returns  how many of the users have a view
-- Keeps    V2: the deleted bit outlives a delivery that comes later.
local function retract(keys, argv)
  local days = tonumber(argv[1])
  local reached = 0
  for first = 1, #keys, days + 1 do
    local state = keys[first]
    local meta = redis.call('HGET', state, META)
    if meta then
      reached = reached + 1
      for p = 2 + days, #argv, 5 do
        local value = redis.call('HGET', state, argv[p])
        if value and is_live(value) then
          local e = unpack_author(value)
          local seq, deletions = tonumber(argv[p + 1]), tonumber(argv[p + 2])
          local index = seq - e.base - 1
          if index >= 0 then
            e.deleted = with_bit(e.deleted, index)
            -- It will never be delivered: without its bit the run of full bytes would end here for good.
            if index >= e.full * 8 then e.tail = with_bit(e.tail, index - e.full * 8) end
          end
          if deletions > e.deletions then e.deletions = deletions end
          redis.call('HSET', state, argv[p], pack_author(e))
        end
        local slot = tonumber(argv[p + 4])
        local chunk, day = keys[first + slot], tonumber(argv[1 + slot])
        if redis.call('ZREM', chunk, argv[p + 3]) == 1 and redis.call('EXISTS', chunk) == 0 then
          meta = without_day(meta, day)
          redis.call('HSET', state, META, meta)
        end
      end
    end
  end
  return reached
end
