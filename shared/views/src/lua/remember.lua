-- remember: stores a post's summary and text from the facts. Later revisions are not replaced, and a deletion replaces
-- any revision.
--
-- KEYS     [1] summary  [2] text  [3] lease
-- ARGV     [1] summary  [2] text in the same revision, '' if it is not known  [3] lifetime ms
--          [4] token of the lease, '' if the caller has just changed the post
-- Returns  1, or 0 if the lease is lost, or a later revision or the deletion is known
-- Keeps    a deleted post stays deleted and has no text. A text is stored only beside its summary. A post that was read
--          before a change is not stored, even if Redis has lost the change.
local DELETED, EDITED = 1, 2

local function rank_of(summary)
  local kind = string.byte(summary, 1)
  if kind == DELETED then return math.huge end
  return kind == EDITED and #summary >= 11 and struct.unpack('<I4', summary, 8) or 1
end

local function remember(keys, argv, epoch)
  if argv[4] ~= '' and redis.call('GET', keys[3]) ~= argv[4] .. epoch then return 0 end
  local known, rank = redis.call('GET', keys[1]), rank_of(argv[1])
  if known and is_of(known, epoch) and rank_of(known) > rank then return 0 end
  redis.call('SET', keys[1], argv[1] .. epoch, 'PX', argv[3])
  if rank == math.huge then
    redis.call('DEL', keys[2])
  elseif argv[2] ~= '' then
    redis.call('SET', keys[2], argv[2] .. epoch, 'PX', argv[3])
  end
  return 1
end
