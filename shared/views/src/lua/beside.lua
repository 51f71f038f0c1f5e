-- beside: notes the steps of posts that a page shows and a ranked feed does not store.
--
-- KEYS     [1] state hash  [2] feed  [3] ranked feed  [4] moves
-- ARGV     [1] half-life ms  [2] lifetime ms of moves that this call creates  [3] most fields of the moves
--          [4] the last stamp that the caller knows (decimal), '' if it does not matter
--          [5…] for each post: entry, changes of the step
-- Returns  the last stamp, 0 if it was not the one that the caller knows; and the stamp of each post's last change.
--          Nothing without a view.
-- Keeps    a step that differs from the noted one is a move, also if it is older: pages that have read different
--          summaries get different stamps.
--          Without a note a post has not moved: its first change raises it, above every place where it was.
--          Beyond the most fields, posts that are not stored are forgotten.
local MOVE_BYTES = 12

local function forget_others(ranks, moves)
  local fields, others = redis.call('HGETALL', moves), {}
  for at = 1, #fields, 2 do
    local is_post = #fields[at + 1] == MOVE_BYTES
    if is_post and not redis.call('ZSCORE', ranks, fields[at]) then others[#others + 1] = fields[at] end
  end
  unrank(ranks, moves, others)
end

local function last_stamp(moves)
  return select(2, struct.unpack(MARKER, redis.call('HGET', moves, META)))
end

local function beside(keys, argv, epoch)
  if not meta_of(epoch, unpack(keys)) then return nil end
  local moves, stamps = keys[4], {}
  if redis.call('HEXISTS', moves, META) == 0 then
    redis.call('HSET', moves, META, struct.pack(MARKER, tonumber(argv[1]), tonumber(argv[4]) or 0))
    redis.call('PEXPIRE', moves, argv[2])
  end
  local is_known = argv[4] == '' or last_stamp(moves) == tonumber(argv[4])
  if argv[3] ~= '' and redis.call('HLEN', moves) > tonumber(argv[3]) then forget_others(keys[3], moves) end
  for at = 5, #argv, 2 do
    local entry, changes, version, stamp = argv[at], tonumber(argv[at + 1]), 0, 0
    local noted = redis.call('HGET', moves, entry)
    if noted then version, stamp = struct.unpack(MOVE, noted) end
    if changes ~= version then
      if noted then stamp = next_stamp(moves) end
      redis.call('HSET', moves, entry, struct.pack(MOVE, changes, stamp))
    end
    stamps[#stamps + 1] = stamp
  end
  table.insert(stamps, 1, is_known and last_stamp(moves) or 0)
  return stamps
end
