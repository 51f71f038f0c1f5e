-- remember: stores a post's summary and text from the facts, if they are later. A deletion replaces any of them.
--
-- KEYS     [1] summary  [2] text  [3] lease
-- ARGV     [1] summary  [2] text in the same revision, '' if it is not known  [3] lifetime ms
--          [4] token of the lease, '' if the caller has just changed the post
-- Returns  1, or 0 if the lease is lost, or nothing of this is newer than what is known, or that was of another epoch
-- Keeps    a deleted post stays deleted and has no text. A text is stored only beside its summary. A post that was read
--          before a change is not stored, even if Redis has lost the change: a change removes the lease, and another
--          epoch ends it.
local DELETED, EDITED, RANKED_POST, REPOST, QUOTE = 1, 2, 4, 8, 16
local UNRANKED = '\0\0\0\0\0\0'

-- The parts of a summary; nil if it cannot be read: revision and title change with an edit; weight, step and the number
-- of the step's changes with a change of the step. A deletion is later than both. The original never changes.
local function parts_of(summary)
  local flags, time = string.byte(summary, 1), string.sub(summary, 2, 7)
  if #summary < 7 then return nil end
  if flags == DELETED then return { time = time, revision = math.huge, changes = math.huge } end
  if bit.band(flags, DELETED) ~= 0 or flags >= REPOST + QUOTE then return nil end
  local at = 8
  local function take(flag, length, default)
    if bit.band(flags, flag) == 0 then return default end
    at = at + length
    return string.sub(summary, at - length, at - 1)
  end
  local revision = take(EDITED, 4, '\1\0\0\0')
  local rank = take(RANKED_POST, 6, UNRANKED)
  local original = take(REPOST + QUOTE, 16, '')
  if #summary < at - 1 then return nil end
  return {
    time = time, revision = (struct.unpack('<I4', revision)), rank = rank, changes = (struct.unpack('<I4', rank, 3)),
    original = original, reference = bit.band(flags, REPOST + QUOTE), title = string.sub(summary, at),
  }
end

local function joined(text, rank)
  local edited, ranked = text.revision > 1, rank.rank ~= UNRANKED
  return string.char((edited and EDITED or 0) + (ranked and RANKED_POST or 0) + text.reference) .. text.time
    .. (edited and struct.pack('<I4', text.revision) or '') .. (ranked and rank.rank or '') .. text.original .. text.title
end

local function remember(keys, argv, epoch)
  if argv[4] == '' then
    redis.call('DEL', keys[3])
  elseif redis.call('GET', keys[3]) ~= argv[4] .. epoch then
    return 0
  end
  local known, new, summary = redis.call('GET', keys[1]), parts_of(argv[1]), argv[1]
  local old = known and is_of(known, epoch) and #known > #epoch and parts_of(string.sub(known, 1, -#epoch - 1))
  -- What the caller has read under its lease replaces them. A change may be older than they are.
  if known and not current(known, old or argv[4] ~= '', keys[1], keys[2]) then return 0 end
  if old and new.revision < math.huge then
    local edited, stepped = new.revision >= old.revision, new.changes >= old.changes
    if not edited and not stepped then return 0 end
    summary = joined(edited and new or old, stepped and new or old)
    new.revision = edited and new.revision or -1
  end
  redis.call('SET', keys[1], summary .. epoch, 'PX', argv[3])
  if new.revision == math.huge then
    redis.call('DEL', keys[2])
  elseif argv[2] ~= '' and new.revision > 0 then
    redis.call('SET', keys[2], argv[2] .. epoch, 'PX', argv[3])
  end
  return 1
end
