-- deliver: puts posts into the views of live followers, feed entry and state bit in the same call. Idempotent and commutative (V3, V4).
--
-- KEYS     for every user: the state hash, then one feed chunk for each of the D days
-- ARGV     [1] chunk lifetime ms  [2] D  then D days
--          then for every author: author, count, and count times: seq, score (ms), member, index of its day (1..D)
-- Returns  how many of the users have a view that follows at least one of the authors
-- Keeps    V1: without a live field for the author nothing happens, so that what overtook an unfollow leaves no ghost.
--          A deleted post stays deleted, a read post stays read, posts below the view's low end are counted but not stored.
local function deliver(keys, argv)
  local lifetime, days = argv[1], tonumber(argv[2])
  local fields, groups = { META }, {}
  local at = 3 + days
  while at <= #argv do
    local count = tonumber(argv[at + 1])
    fields[#fields + 1] = argv[at]
    groups[#groups + 1] = { at + 2, count }
    at = at + 2 + 4 * count
  end

  local reached = 0
  for first = 1, #keys, days + 1 do
    local state = keys[first]
    local values = redis.call('HMGET', state, unpack(fields))
    local meta = values[1]
    local live = false
    if meta then
      local low, changed = low_of(meta), {}
      for g = 1, #groups do
        local value = values[g + 1]
        if value and is_live(value) then
          live = true
          local e, dirty = unpack_author(value), false
          local from, count = groups[g][1], groups[g][2]
          for p = from, from + 4 * (count - 1), 4 do
            local seq, score = tonumber(argv[p]), tonumber(argv[p + 1])
            local index = seq - e.base - 1
            if seq > e.floor and not (index >= 0 and has_bit(e.deleted, index)) then
              local tail_index = index - e.full * 8
              if tail_index >= 0 and not has_bit(e.tail, tail_index) then
                e.tail = with_bit(e.tail, tail_index)
                if score > e.newest then e.newest = score end
                dirty = true
              end
              if score >= low then
                local slot = tonumber(argv[p + 3])
                redis.call('ZADD', keys[first + slot], argv[p + 1], argv[p + 2])
                local day = tonumber(argv[2 + slot])
                if not has_day(meta, day) then
                  meta = with_day(meta, day)
                  redis.call('PEXPIRE', keys[first + slot], lifetime)
                  changed[1], changed[2] = META, meta
                end
              end
            end
          end
          if dirty then
            changed[#changed + 1] = fields[g + 1]
            changed[#changed + 1] = pack_author(e)
          end
        end
      end
      if #changed > 0 then redis.call('HSET', state, unpack(changed)) end
    end
    if live then reached = reached + 1 end
  end
  return reached
end
