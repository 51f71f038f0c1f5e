-- deliver: puts posts into the views of live followers, feed entry and state bit in the same call. Idempotent and commutative (V3, V4).
--
-- KEYS     for every user: state hash, feed
-- ARGV     [1] state lifetime ms  [2] feed lifetime ms  [3] cap
--          then for every author: author, count, and count times: seq, time ms, entry
-- Returns  how many of the users have a view that follows at least one of the authors
-- Keeps    V1: without a live field for the author nothing happens, so that what overtook an unfollow leaves no ghost.
--          A deleted post stays deleted, a read post stays read, posts below the view's low end are counted but not stored.

-- One entry of a live view; its meta after it, false when the feed was lost under the view.
local function store(state, feed, meta, entry, argv)
  if #meta > META_BYTES and less(entry, low_of(meta)) then return meta end
  local length = insert(feed, entry)
  if length == 1 then
    if has_flag(meta, FEED) then return false end
    -- The reader was remembered as having nothing to see: from here on there is a feed, with a feed's lifetime.
    redis.call('PEXPIRE', feed, argv[2])
    redis.call('PEXPIRE', state, argv[1])
    return with_flag(meta, FEED)
  end
  local cap = tonumber(argv[3])
  if length > cap + SLACK then return trim(feed, meta, cap) end
  return meta
end

-- The author's value after these posts, and which of them are to be stored.
local function note(value, argv, from, count, stored)
  local flags, _, _, _, floor, _, through, newest = struct.unpack(AUTHOR, value)
  local seq, at = tonumber(argv[from]), tonumber(argv[from + 1])
  if count == 1 and flags < BITMAPS and seq == through + 1 then
    -- In order and nothing special: two numbers of the value change.
    stored[#stored + 1] = argv[from + 2]
    return string.sub(value, 1, BEFORE_THROUGH) .. struct.pack('<I4I6', seq, at > newest and at or newest)
  end
  local e, dirty = unpack_author(value), false
  for p = from, from + 3 * (count - 1), 3 do
    seq, at = tonumber(argv[p]), tonumber(argv[p + 1])
    local index = seq - e.base - 1
    if seq > floor and not (index >= 0 and has_bit(e.deleted, index)) then
      if set_delivered(e, seq) then
        if at > e.newest then e.newest = at end
        dirty = true
      end
      stored[#stored + 1] = argv[p + 2]
    end
  end
  return dirty and pack_author(e) or value
end

local function deliver(keys, argv)
  local fields, groups = { META }, {}
  local at = 4
  while at <= #argv do
    local count = tonumber(argv[at + 1])
    fields[#fields + 1] = argv[at]
    groups[#groups + 1] = { at + 2, count }
    at = at + 2 + 3 * count
  end

  local reached = 0
  for first = 1, #keys, 2 do
    local state, feed = keys[first], keys[first + 1]
    local values = redis.call('HMGET', state, unpack(fields))
    local before = values[1]
    if before then
      local meta, live, changed, stored = before, false, {}, {}
      for g = 1, #groups do
        local value = values[g + 1]
        if value and is_live(value) then
          live = true
          local after = note(value, argv, groups[g][1], groups[g][2], stored)
          if after ~= value then
            changed[#changed + 1] = fields[g + 1]
            changed[#changed + 1] = after
          end
        end
      end
      for s = 1, #stored do meta = meta and store(state, feed, meta, stored[s], argv) end
      if not meta then
        -- What was lost is lost for the whole view: the next read rebuilds it.
        redis.call('DEL', state, feed)
      else
        if meta ~= before then
          changed[#changed + 1] = META
          changed[#changed + 1] = meta
        end
        if #changed > 0 then redis.call('HSET', state, unpack(changed)) end
      end
      if live then reached = reached + 1 end
    end
  end
  return reached
end
