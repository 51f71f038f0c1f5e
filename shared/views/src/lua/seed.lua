-- seed: merges author states and entries from the facts into a view. It also applies a change of read state, which
-- makes no statement about deliveries.
--
-- KEYS     [1] state hash  [2] feed  [3] ranked feed  [4] moves
-- ARGV     [1] state lifetime ms  [2] feed lifetime ms  [3] cap  [4] token or ''
--          [5] lowest entry or ''; it raises the low end of the view
--          [6] A, then A times: author, value (an author state), the bytes of the author's entries after their time;
--          then the entries, oldest first
-- Returns  the indexes (from 1) of the authors to load again: the view has no field of this revision yet, or knows
--          a later revision, a later read state or more deletions; false without a view, or if the token's rebuild is
--          no longer the caller's
-- Keeps    V4 by versions: the edge's revision, the read state's version and the number of deletions only grow.
--          Deliveries are merged and never undone.
--          An author whose field is a tombstone of this or a later revision is left out, and not returned.
--          Entries of an author whose value is not merged are left out: they may be of a follow that has ended, or of
--          an author who is muted by now.
--          The feed has no entry below the low end.
local function merge_author(e, s)
  -- Delivered bits as absolute bytes: ones below `through`, then the tails.
  local seen, known = math.floor(e.through / 8), math.floor(s.through / 8)
  s.through = math.max(e.through, s.through)
  local from, tail = math.floor(s.through / 8), {}
  for byte = from, math.max(seen + #e.tail, known + #s.tail) - 1 do
    local a = byte >= seen and string.byte(e.tail, byte - seen + 1) or 0
    local b = byte >= known and string.byte(s.tail, byte - known + 1) or 0
    tail[#tail + 1] = string.char(bit.bor(a, b))
  end
  s.tail = table.concat(tail)
  advance(s)
  s.newest = math.max(s.newest, e.newest)
  set_modes(s, e.changes, e.pulled)
  s.asked, s.asked_deletions = math.max(s.asked, e.asked), math.max(s.asked_deletions, e.asked_deletions)
  -- A value without a statement about deliveries does not end the opening.
  if bit.band(s.flags, OPENING) ~= 0 then s.flags = e.flags end
  return s
end

-- Merges entries in ascending order into a feed, each once.
local function merge_entries(feed, entries)
  local newest = redis.call('LINDEX', feed, -1)
  if not newest or less(newest, entries[1]) then return push_all(feed, entries) end
  local known, merged, k = redis.call('LRANGE', feed, 0, -1), {}, 1
  for i = 1, #entries do
    while k <= #known and less(known[k], entries[i]) do
      merged[#merged + 1] = known[k]
      k = k + 1
    end
    if known[k] ~= entries[i] then merged[#merged + 1] = entries[i] end
  end
  for i = k, #known do merged[#merged + 1] = known[i] end
  if #merged == #known then return end
  redis.call('DEL', feed)
  push_all(feed, merged)
end

local function seed(keys, argv, epoch)
  local state, feed, cap = keys[1], keys[2], tonumber(argv[3])
  local before = meta_of(epoch, unpack(keys))
  if not before then return false end
  if argv[4] ~= '' and (not has_flag(before, BUILDING) or string.sub(before, TOKEN, NEWEST - 1) ~= argv[4]) then return false end

  local stale, refused = {}, {}
  local at = 7
  for a = 1, tonumber(argv[6]) do
    local value, s = redis.call('HGET', state, argv[at]), unpack_author(argv[at + 1])
    local e, merged = value and unpack_author(value), false
    if not e or s.rev > e.rev then
      stale[#stale + 1] = a
    elseif is_live(value) then
      if s.rev < e.rev or s.version < e.version or s.deletions < e.deletions then
        stale[#stale + 1] = a
      else
        redis.call('HSET', state, argv[at], pack_author(bounded(merge_author(e, s))))
        merged = true
      end
    end
    if not merged then refused[argv[at + 2]] = true end
    at = at + 3
  end

  local meta = before
  local rises = argv[5] ~= '' and (#meta == META_BYTES or less(low_of(meta), argv[5]))
  if rises then meta = with_low(reaching(meta, argv[5]), argv[5]) end
  local low, entries = low_of(meta), {}
  for p = at, #argv do
    local is_taken = (low == '' or not less(argv[p], low)) and not refused[prefix_of(argv[p])]
    if is_taken then entries[#entries + 1] = argv[p] end
  end
  if #entries > 0 then
    if has_flag(meta, FEED) and redis.call('EXISTS', feed) == 0 then
      redis.call('DEL', state)
      return false
    end
    meta = flush(state, feed, meta)
    if not meta then return false end
    merge_entries(feed, entries)
    meta = reaching(meta, entries[#entries])
    redis.call('PEXPIRE', feed, argv[2])
    if not has_flag(meta, FEED) then
      redis.call('PEXPIRE', state, argv[1])
      meta = with_flag(meta, FEED)
    end
  end
  if rises and has_flag(meta, FEED) then
    meta = flush(state, feed, meta)
    if not meta then return false end
    meta = cut(feed, keys[3], keys[4], meta)
  end
  if #entries > 0 and redis.call('LLEN', feed) > most_of(cap) then meta = trim_ranked(feed, keys[3], keys[4], meta, cap) end
  if meta ~= before then redis.call('HSET', state, META, meta) end
  return stale
end
