-- drop: removes an unfollowed author from a view: state, counts and entries in one call.
--
-- KEYS     [1] state hash  [2] feed  [3] ranked feed  [4] moves
-- ARGV     [1] author  [2] rev of the unfollow  [3] the bytes of the author's entries after their time
-- Returns  1, or 0 if the view knows a later revision; false without a view
-- Keeps    V1: the tombstone blocks an older follow that arrives later.
--          Each read reads all tombstones, so their number has a bound. Beyond it the view is deleted.

-- The maximum number of tombstones of a view.
local MOST_TOMBSTONES = 500

local function has_too_many_tombstones(state)
  if redis.call('HLEN', state) <= MOST_TOMBSTONES then return false end
  local fields, count = redis.call('HGETALL', state), 0
  for f = 1, #fields, 2 do
    local byte = string.byte(fields[f])
    if byte >= 48 and byte <= 57 and not is_live(fields[f + 1]) then count = count + 1 end
  end
  return count > MOST_TOMBSTONES
end

local function drop(keys, argv, epoch)
  local state, feed = keys[1], keys[2]
  local meta, value = meta_of(epoch, unpack(keys)), redis.call('HGET', state, argv[1])
  if not meta then return false end
  local rev = tonumber(argv[2])
  if value and rev_of(value) > rev then return 0 end
  redis.call('HSET', state, argv[1], tombstone(rev))
  if has_too_many_tombstones(state) then
    redis.call('DEL', unpack(keys))
    return 1
  end
  local after = remove_author(state, feed, keys[3], keys[4], meta, argv[3])
  if not after then return false end
  if has_flag(after, RANKED) then redis.call('HDEL', keys[4], argv[1]) end
  if after ~= meta then redis.call('HSET', state, META, after) end
  return 1
end
