-- seed: merges what the facts say into a view. Also how a change of read state arrives (with no claim about deliveries).
--
-- KEYS     [1] state hash, then D feed chunks
-- ARGV     [1] chunk lifetime ms  [2] token or ''  [3] low ms or '', raises the view's  [4] D  then D days
--          [5+D] A, then A times: author, value (an author state); then for every entry: index of its day, score, member
-- Returns  the indexes (from 1) of the authors whose facts are older than what the view knows: load them again; false without a view,
--          or when the token is given and the rebuild is not the caller's any more
-- Keeps    V4 by versions: the edge's revision, the read fact's version and the number of deletions may only grow. Deliveries are merged, never undone.
local function merge_author(e, s)
  -- Delivered bits as absolute bytes: all below `full` are ones, then the tail.
  local base, seen, known = s.base / 8, e.base / 8 + e.full, s.base / 8 + s.full
  local full = math.max(seen, known)
  local tail = {}
  for byte = full, math.max(seen + #e.tail, known + #s.tail) - 1 do
    local a = byte >= seen and string.byte(e.tail, byte - seen + 1) or 0
    local b = byte >= known and string.byte(s.tail, byte - known + 1) or 0
    tail[#tail + 1] = string.char(bit.bor(a, b))
  end
  s.full, s.tail = full - base, table.concat(tail)
  s.newest = math.max(s.newest, e.newest)
  -- A value that claims nothing of deliveries does not end the opening either.
  if bit.band(s.flags, OPENING) ~= 0 then s.flags = e.flags end
  return s
end

local function seed(keys, argv)
  local state, days = keys[1], tonumber(argv[4])
  local meta = redis.call('HGET', state, META)
  if not meta then return false end
  if argv[2] ~= '' and (string.byte(meta, 1) == 0 or string.sub(meta, 20, 27) ~= argv[2]) then return false end

  local stale = {}
  local at = 6 + days
  for a = 1, tonumber(argv[5 + days]) do
    local value, s = redis.call('HGET', state, argv[at]), unpack_author(argv[at + 1])
    local e = value and unpack_author(value)
    if not e or s.rev > e.rev then
      stale[#stale + 1] = a
    elseif is_live(value) and s.rev == e.rev then
      if s.version < e.version or s.deletions < e.deletions then
        stale[#stale + 1] = a
      else
        redis.call('HSET', state, argv[at], pack_author(merge_author(e, s)))
      end
    end
    at = at + 2
  end

  local low = math.max(low_of(meta), tonumber(argv[3]) or 0)
  for p = at, #argv, 3 do
    if tonumber(argv[p + 1]) >= low then
      local slot = tonumber(argv[p])
      local day = tonumber(argv[4 + slot])
      redis.call('ZADD', keys[1 + slot], argv[p + 1], argv[p + 2])
      if not has_day(meta, day) then meta = with_day(meta, day) end
      redis.call('PEXPIRE', keys[1 + slot], argv[1])
    end
  end
  meta = string.sub(meta, 1, 1) .. struct.pack('<I6', low) .. string.sub(meta, 8)
  redis.call('HSET', state, META, meta)
  return stale
end
