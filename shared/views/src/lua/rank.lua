-- rank: puts posts into ranked feeds, or moves them there.
--
-- KEYS     for each user: state hash, feed, ranked feed, moves
-- ARGV     [1] half-life ms  [2] cap  [3] lifetime ms of a ranked feed that this call creates, '' to create none
--          [4…] for each post: author, entry, points (weight and step), changes of the step
-- Returns  the number of users who have a ranked feed
-- Keeps    V9: a ranked feed has only entries of the feed.
--          An older step never replaces a newer one: a step whose number of changes is below the known one is left out.
--          A score is the same, however often and in whatever order it is computed.

-- The preferences for the authors of posts; false for authors who are not followed.
local function preferences_of(state, authors)
  local preferences, values = {}, redis.call('HMGET', state, unpack(authors))
  for i = 1, #authors do
    preferences[authors[i]] = values[i] and is_live(values[i]) and unpack_author(values[i]).preference
  end
  return preferences
end

-- The entries of a feed as the keys of a table.
local function set_of(feed)
  local set, entries = {}, redis.call('LRANGE', feed, 0, -1)
  for i = 1, #entries do set[entries[i]] = true end
  return set
end

local function place(ranks, moves, entry, score, changes)
  local known, before = redis.call('HGET', moves, entry), redis.call('ZSCORE', ranks, entry)
  local version, stamp = 0, 0
  if known then version, stamp = struct.unpack(MOVE, known) end
  if changes < version then return end
  if not before or tonumber(before) ~= score then
    redis.call('ZADD', ranks, string.format('%.17g', score), entry)
    if before then stamp = next_stamp(moves) end
  end
  if changes > version or before and tonumber(before) ~= score then
    redis.call('HSET', moves, entry, struct.pack(MOVE, changes, stamp))
  end
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
    local meta = meta_of(state, epoch)
    if meta and has_flag(meta, FEED) and not has_flag(meta, BUILDING) and (has_flag(meta, RANKED) or argv[3] ~= '') then
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
        local preferences, is_new = preferences_of(state, authors), redis.call('EXISTS', ranks) == 0
        local listed = #argv > 4 * 8 and set_of(feed)
        for at = 4, #argv, 4 do
          local preference, entry = preferences[argv[at]], argv[at + 1]
          -- A post that has just arrived is at the end of the feed.
          local is_listed = listed and listed[entry] or not listed and redis.call('LPOS', feed, entry, 'RANK', '-1')
          if preference and is_listed then
            place(ranks, moves, entry, score_of(entry, tonumber(argv[at + 2]) + preference, half_life), tonumber(argv[at + 3]))
          end
        end
        if is_new then redis.call('PEXPIRE', ranks, redis.call('PTTL', moves)) end
        if redis.call('LLEN', feed) > cap + SLACK then
          redis.call('HSET', state, META, trim_ranked(feed, ranks, moves, meta, cap))
        end
      end
    end
  end
  return ranked
end
