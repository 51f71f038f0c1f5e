-- drop: removes an unfollowed author from a view: state, counts and entries in one call.
--
-- KEYS     [1] state hash  [2] feed  [3] ranked feed  [4] moves
-- ARGV     [1] author  [2] rev of the unfollow  [3] the bytes of the author's entries after their time
-- Returns  1, or 0 if the view knows a later revision; false without a view
-- Keeps    V1: the tombstone blocks an older follow that arrives later.
local function drop(keys, argv, epoch)
  local state, feed = keys[1], keys[2]
  local meta, value = meta_of(state, epoch), redis.call('HGET', state, argv[1])
  if not meta then return false end
  local rev = tonumber(argv[2])
  if value and rev_of(value) > rev then return 0 end
  redis.call('HSET', state, argv[1], tombstone(rev))
  local after = remove_author(state, feed, keys[3], keys[4], meta, argv[3])
  if not after then return false end
  if has_flag(after, RANKED) then redis.call('HDEL', keys[4], argv[1]) end
  if after ~= meta then redis.call('HSET', state, META, after) end
  return 1
end
