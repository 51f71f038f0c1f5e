-- retract: removes a deleted post from live views. It is the inverse of deliver.
--
-- KEYS     for each user: state hash, feed, ranked feed, moves
-- ARGV     [1] author  [2] seq  [3] the author's deletions including this one  [4] entry
--          [5] changes and [6] pulled, the author's modes
-- Returns  the positions (from 1) of the users who are watched and follow the author
-- Keeps    V2: the deleted bit outlives a delivery that arrives later.
--          V9: the ranked feed loses the entry in the same call.
--          V4: it is idempotent and commutative, also with deliver.
--          It stores the modes that the post's delivery would have stored.
local function retract(keys, argv, epoch)
  local seq, deletions, changes, pulled = tonumber(argv[2]), tonumber(argv[3]), tonumber(argv[5]), tonumber(argv[6])
  local watched = {}
  for first = 1, #keys, 4 do
    local state, feed, ranks, moves = keys[first], keys[first + 1], keys[first + 2], keys[first + 3]
    local values = redis.call('HMGET', state, META, argv[1])
    local meta, value = current_meta(values[1], epoch, state, feed, ranks, moves), values[2]
    if meta then
      if value and is_live(value) then
        if has_flag(meta, WATCHED) then watched[#watched + 1] = (first + 3) / 4 end
        local e = unpack_author(value)
        local index = seq - e.base - 1
        if index >= 0 then
          e.deleted = with_bit(e.deleted, index)
        elseif e.older > 0 and seq <= e.horizon then
          -- Only the facts know whether this post was one of the unread posts up to the horizon. The next read
          -- loads them.
          e.flags = bit.bor(e.flags, OPENING)
        end
        -- The post will never be delivered. Without its bit `through` could not move past it.
        set_delivered(e, seq)
        if deletions > e.deletions then e.deletions = deletions end
        set_modes(e, changes, pulled)
        redis.call('HSET', state, argv[1], pack_author(bounded(e)))
      end
      meta = flush(state, feed, meta)
      if meta and redis.call('LREM', feed, -1, argv[4]) == 1 then
        if has_flag(meta, RANKED) then unrank(ranks, moves, { argv[4] }) end
        if redis.call('EXISTS', feed) == 0 then redis.call('HSET', state, META, without_flag(meta, FEED)) end
      end
    end
  end
  return watched
end
