-- retract: takes a deleted post out of live views, the inverse of deliver. Idempotent and commutative, also with deliver (V4).
--
-- KEYS     for every user: state hash, feed
-- ARGV     [1] author  [2] seq  [3] the author's deletions including this one  [4] entry  [5] changes and [6] pulled, the author's modes
-- Returns  how many of the users have a view
-- Keeps    V2: the deleted bit outlives a delivery that comes later. The modes that the deleted post's delivery would have told are told.
local function retract(keys, argv, epoch)
  local seq, deletions, changes, pulled = tonumber(argv[2]), tonumber(argv[3]), tonumber(argv[5]), tonumber(argv[6])
  local reached = 0
  for first = 1, #keys, 2 do
    local state, feed = keys[first], keys[first + 1]
    local values = redis.call('HMGET', state, META, argv[1])
    local meta, value = values[1], values[2]
    if meta and string.sub(meta, EPOCH, META_BYTES) == epoch then
      reached = reached + 1
      if value and is_live(value) then
        local e = unpack_author(value)
        local index = seq - e.base - 1
        if index >= 0 then
          e.deleted = with_bit(e.deleted, index)
        elseif e.older > 0 and seq <= e.horizon then
          -- Whether it was one of the unread ones that are only counted, the facts know: the next read asks them.
          e.flags = bit.bor(e.flags, OPENING)
        end
        -- It will never be delivered: without its bit `through` would stop here for good.
        set_delivered(e, seq)
        if deletions > e.deletions then e.deletions = deletions end
        set_modes(e, changes, pulled)
        redis.call('HSET', state, argv[1], pack_author(bounded(e)))
      end
      if redis.call('LREM', feed, -1, argv[4]) == 1 and redis.call('EXISTS', feed) == 0 then
        redis.call('HSET', state, META, without_flag(meta, FEED))
      end
    end
  end
  return reached
end
