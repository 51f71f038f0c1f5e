-- open_gate: opens the gate for follows before their facts are read: deliveries in between reach the view.
--
-- KEYS     [1] state hash  [2] feed  [3] ranked feed  [4] moves
-- ARGV     for each author: author, rev, the rev with which the follow began, new value (an opening author state), the
--          bytes of the author's entries after their time
-- Returns  for each author: 1 gate opened, 2 opened before and still opening, 0 complete, -1 stale (the view knows a
--          later revision or this unfollow); false without a view
-- Keeps    V1: a follow that is older than a known unfollow does not come back.
--          If only the reader's choices have changed (mute, lists, preference), the field keeps what it knows of posts.
--          A mute removes the author's entries, because the cap counts those that are shown. Its end opens the gate:
--          the entries are merged again.
--          If the preference changes, the author's posts move in the ranked feed in the same call.

-- Moves an author's posts in a ranked feed from one preference to another.
local function prefer(ranks, moves, author, prefix, before, after)
  local marker = redis.call('HGET', moves, META)
  if not marker then return end
  local half_life, members = half_life_of(marker), redis.call('ZRANGE', ranks, 0, -1, 'WITHSCORES')
  for m = 1, #members, 2 do
    local entry = members[m]
    if string.sub(entry, 7, 6 + #prefix) == prefix then
      -- The points are an integer, so the score is exactly the one that `rank` computes.
      local points = math.floor(tonumber(members[m + 1]) - score_of(entry, 0, half_life) + 0.5)
      redis.call('ZADD', ranks, string.format('%.17g', score_of(entry, points - before + after, half_life)), entry)
    end
  end
  -- A list may show more of the author's posts than the ranked feed has.
  redis.call('HSET', moves, author, struct.pack(STAMP, next_stamp(moves)))
end

local function is_muted(e)
  return bit.band(e.flags, MUTED) ~= 0
end

-- A known author state of the same follow, with the choices and the revision of another.
local function with_choices(e, chosen)
  e.rev, e.lists, e.preference = chosen.rev, chosen.lists, chosen.preference
  e.flags = bit.band(e.flags, LIVE + OPENING) + bit.band(chosen.flags, MUTED)
  return e
end

local function open_gate(keys, argv, epoch)
  local before_all = meta_of(epoch, unpack(keys))
  local meta = before_all
  if not meta then return false end
  local results = {}
  for a = 1, #argv, 5 do
    local value, rev, new = redis.call('HGET', keys[1], argv[a]), tonumber(argv[a + 1]), argv[a + 3]
    local known = value and rev_of(value)
    if known and known > rev then
      results[#results + 1] = -1
    elseif known == rev then
      results[#results + 1] = not is_live(value) and -1 or bit.band(string.byte(value, 1), OPENING)
    else
      local result = 1
      if value and is_live(value) then
        local before, after = unpack_author(value), unpack_author(new)
        if before.preference ~= after.preference and has_flag(meta, RANKED) then
          prefer(keys[3], keys[4], argv[a], argv[a + 4], before.preference, after.preference)
        end
        local is_same_follow, unmuted = known >= tonumber(argv[a + 2]), is_muted(before) and not is_muted(after)
        if not is_same_follow or is_muted(after) and not is_muted(before) then
          meta = remove_author(keys[1], keys[2], keys[3], keys[4], meta, argv[a + 4])
          if not meta then return false end
        end
        if is_same_follow then
          after = with_choices(before, after)
          if unmuted then after.flags = bit.bor(after.flags, OPENING) end
          new, result = pack_author(after), bit.band(after.flags, OPENING)
        end
      end
      redis.call('HSET', keys[1], argv[a], new)
      results[#results + 1] = result
    end
  end
  if meta ~= before_all then redis.call('HSET', keys[1], META, meta) end
  return results
end
