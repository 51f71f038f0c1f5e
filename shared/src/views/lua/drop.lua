-- drop: takes an unfollowed author out of a view: state, counts and entries at once.
--
-- KEYS     [1] state hash, then the D feed chunks of the view
-- ARGV     [1] author  [2] rev of the unfollow  [3] what the author's members begin with  [4] D  then D days
-- Returns  1, 0 when the view knows a later revision, -1 when the view has chunks that were not passed (read its days again); false without a view
-- Keeps    V1: the tombstone holds off a follow, an older one, that arrives later.
local function drop(keys, argv)
  local state, days = keys[1], tonumber(argv[4])
  local meta = redis.call('HGET', state, META)
  if not meta then return false end
  local value = redis.call('HGET', state, argv[1])
  local rev = tonumber(argv[2])
  if value and unpack_author(value).rev > rev then return 0 end
  local passed = {}
  for d = 1, days do passed[tonumber(argv[4 + d])] = true end
  for at = META_BYTES + 1, #meta - 1, 2 do
    if not passed[struct.unpack('<I2', meta, at)] then return -1 end
  end
  redis.call('HSET', state, argv[1], tombstone(rev))
  local prefix = argv[3]
  for d = 1, days do
    local gone = {}
    for _, member in ipairs(redis.call('ZRANGE', keys[1 + d], 0, -1)) do
      if string.sub(member, 1, #prefix) == prefix then gone[#gone + 1] = member end
    end
    for from = 1, #gone, 1000 do
      redis.call('ZREM', keys[1 + d], unpack(gone, from, math.min(from + 999, #gone)))
    end
    if #gone > 0 and redis.call('EXISTS', keys[1 + d]) == 0 then meta = without_day(meta, tonumber(argv[4 + d])) end
  end
  redis.call('HSET', state, META, meta)
  return 1
end
