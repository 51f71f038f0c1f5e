-- remember: stores a post's summary and text from the facts, if they are later. A deletion replaces any of them.
--
-- KEYS     [1] summary  [2] text  [3] lease
-- ARGV     [1] summary  [2] text in the same revision, '' if it is not known  [3] lifetime ms
--          [4] token of the lease, '' if the caller has just changed the post
-- Returns  1, or 0 if the lease is lost, or nothing of this is newer than what is known, or that was of another epoch
-- Keeps    a deleted post stays deleted and has no text. A text is stored only beside its summary. A post that was read
--          before a change is not stored, even if Redis has lost the change: a change removes the lease, and another
--          epoch ends it.
local LIVE_POST, DELETED, EDITED, RANKED_POST = 0, 1, 2, 3
local UNRANKED = '\0\0\0\0\0\0'

-- The parts of a summary; nil if it cannot be read: revision and title change with an edit; weight, step and the number
-- of the step's changes with a change of the step. A deletion is later than both.
local function parts_of(summary)
  local kind, time = string.byte(summary, 1), string.sub(summary, 2, 7)
  if kind == DELETED then return { time = time, revision = math.huge, changes = math.huge } end
  if kind > RANKED_POST or #summary < 7 then return nil end
  local revision, rank, title = 1, UNRANKED, string.sub(summary, 8)
  if kind == EDITED and #summary >= 11 then revision, title = struct.unpack('<I4', summary, 8), string.sub(summary, 12) end
  if kind == RANKED_POST and #summary >= 17 then
    revision, rank, title = struct.unpack('<I4', summary, 8), string.sub(summary, 12, 17), string.sub(summary, 18)
  end
  return { time = time, revision = revision, rank = rank, changes = (struct.unpack('<I4', rank, 3)), title = title }
end

local function joined(text, rank)
  if rank.rank ~= UNRANKED then
    return string.char(RANKED_POST) .. text.time .. struct.pack('<I4', text.revision) .. rank.rank .. text.title
  end
  if text.revision <= 1 then return string.char(LIVE_POST) .. text.time .. text.title end
  return string.char(EDITED) .. text.time .. struct.pack('<I4', text.revision) .. text.title
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
