-- rank: puts posts into ranked feeds, or moves them there.
--
-- KEYS     for each user: state hash, feed, ranked feed, moves
-- ARGV     [1] half-life ms  [2] cap  [3] lifetime ms of a ranked feed that this call creates, '' to create none
--          [4…] for each post: author, entry, points (weight and step), changes of the step
-- Returns  the number of users who have a ranked feed
-- Keeps    V9: a ranked feed has only entries of the feed.
--          An older step never replaces a newer one: a step whose number of changes is below the known one is left out.
--          A score is the same, however often and in whatever order it is computed.

-- The meta of a view, nil without a view; and the preferences for authors, false for one who is not followed.
local function state_of(authors, epoch, state, ...)
  local preferences, values = {}, redis.call('HMGET', state, META, unpack(authors))
  local meta = current_meta(values[1], epoch, state, ...)
  for i = 1, meta and #authors or 0 do
    local value = values[i + 1]
    preferences[authors[i]] = value and is_live(value) and unpack_author(value).preference
  end
  return meta, preferences
end

-- The entries of a feed as the keys of a table.
local function set_of(feed)
  local set, entries = {}, redis.call('LRANGE', feed, 0, -1)
  for i = 1, #entries do set[entries[i]] = true end
  return set
end

-- Puts one post in its place. `known` is its field in the moves. Returns whether the ranked feed did not have it.
local function place(ranks, moves, entry, score, changes, known)
  local version, stamp, moved = 0, 0, false
  if known then version, stamp = struct.unpack(MOVE, known) end
  if changes < version then return false end
  local text = string.format('%.17g', score)
  local is_new = redis.call('ZADD', ranks, 'NX', text, entry) == 1
  if not is_new and tonumber(redis.call('ZSCORE', ranks, entry)) ~= score then
    redis.call('ZADD', ranks, text, entry)
    stamp, moved = next_stamp(moves), true
  end
  if moved or changes > version then redis.call('HSET', moves, entry, struct.pack(MOVE, changes, stamp)) end
  return is_new
end

local function rank(keys, argv, epoch)
  local half_life, cap, authors, seen, ranked = tonumber(argv[1]), tonumber(argv[2]), {}, {}, 0
  for at = 4, #argv, 4 do
    if not seen[argv[at]] then
      seen[argv[at]] = true
      authors[#authors + 1] = argv[at]
    end
  end
  for first = 1, #keys, 4 do
    local state, feed, ranks, moves = keys[first], keys[first + 1], keys[first + 2], keys[first + 3]
    local meta, preferences = state_of(authors, epoch, state, feed, ranks, moves)
    local has_feed = meta and has_flag(meta, FEED) and not has_flag(meta, BUILDING)
    meta = has_feed and (has_flag(meta, RANKED) or argv[3] ~= '') and flush(state, feed, meta)
    if meta then
      local marker = has_flag(meta, RANKED) and redis.call('HGET', moves, META)
      if argv[3] ~= '' and not (marker and half_life_of(marker) == half_life) then
        redis.call('DEL', ranks, moves)
        marker = struct.pack(MARKER, half_life, now_us())
        redis.call('HSET', moves, META, marker)
        redis.call('PEXPIRE', moves, argv[3])
        meta = with_flag(meta, RANKED)
        redis.call('HSET', state, META, meta)
      elseif not marker then
        -- The ranked feed has expired. Deliveries no longer look for it.
        redis.call('HSET', state, META, without_flag(meta, RANKED))
      end
      if marker and half_life_of(marker) == half_life then
        ranked = ranked + 1
        local added = 0
        local listed = #argv > 4 * 8 and set_of(feed)
        for at = 4, #argv, 4 do
          local preference, entry = preferences[argv[at]], argv[at + 1]
          -- A post that has just arrived is at the end of the feed.
          local is_listed = listed and listed[entry] or not listed and redis.call('LPOS', feed, entry, 'RANK', '-1')
          if preference and is_listed then
            local score, changes = score_of(entry, tonumber(argv[at + 2]) + preference, half_life), tonumber(argv[at + 3])
            if place(ranks, moves, entry, score, changes, redis.call('HGET', moves, entry)) then added = added + 1 end
          end
        end
        if added > 0 and redis.call('ZCARD', ranks) == added then redis.call('PEXPIRE', ranks, redis.call('PTTL', moves)) end
        if redis.call('LLEN', feed) > most_of(cap) then
          redis.call('HSET', state, META, trim_ranked(feed, ranks, moves, meta, cap))
        end
      end
    end
  end
  return ranked
end
