-- The packed values of a view; author_state, reader_state and feed of shared/domain describe the layouts. A value that
-- is too short ends the call with an error: users before it in the call keep their changes, and users after it get
-- none. The caller then calls for each user alone.

local META = '@'
local BUILDING, FEED, RANKED, WATCHED = 1, 2, 4, 8
-- The newest entries of a feed may be in fields of the state hash, oldest first: a delivery writes to that hash anyway.
-- The flags from 16 on are their number; a field beyond it has an entry that is in the list too. `append` moves them to
-- the list.
local RECENT, MOST_RECENT, RECENT_FIELDS = 16, 8, {}
for i = 1, MOST_RECENT do RECENT_FIELDS[i] = '+' .. i end
-- Positions in the meta: the deadline, the token, the newest entry's time, the epoch, and the end of the fixed part.
local DEADLINE, TOKEN, NEWEST, EPOCH, META_BYTES = 8, 14, 22, 28, 31

local LIVE, OPENING, BITMAPS, MODES, OLDER, MUTED, LISTS, PREFERENCE = 1, 2, 4, 8, 16, 32, 64, 128
local AUTHOR = '<BI4I4I4I4I4I4I6'
local AUTHOR_BYTES = 31
local MODE_NUMBERS = '<I4I4I4I4'
local BEFORE_THROUGH = 21

-- The number of posts whose bits remain after a cut, and the number of posts above which a state is cut.
local WINDOW = 2048
local CUT_AT = 2 * WINDOW

-- The number of entries above which a feed is trimmed to its cap, so that not every delivery trims it. `FeedCap::most`
-- in shared/domain/src/feed.rs does the same.
local function most_of(cap)
  return cap < 32 and cap + 1 or cap + math.floor(cap / 16)
end

local function is_live(value)
  return bit.band(string.byte(value, 1), LIVE) == LIVE
end

local function rev_of(value)
  return (struct.unpack('<I4', value, 2))
end

local function tombstone(rev)
  return struct.pack(AUTHOR, 0, rev, 0, 0, 0, 0, 0, 0)
end

local function unpack_author(value)
  local e = { tail = '', read = '', deleted = '', changes = 0, pulled = 0, asked = 0, asked_deletions = 0, older = 0, horizon = 0, lists = '', preference = 0 }
  local at = AUTHOR_BYTES + 1
  e.flags, e.rev, e.version, e.deletions, e.floor, e.base, e.through, e.newest = struct.unpack(AUTHOR, value)
  e.base = e.base * 8
  local flags = e.flags
  e.flags = bit.band(flags, LIVE + OPENING + MUTED)
  if bit.band(flags, MODES) ~= 0 then
    e.changes, e.pulled, e.asked, e.asked_deletions, at = struct.unpack(MODE_NUMBERS, value, at)
  end
  if bit.band(flags, OLDER) ~= 0 then e.older, e.horizon, at = struct.unpack('<I4I4', value, at) end
  if bit.band(flags, LISTS) ~= 0 then
    local to = at + 4 * string.byte(value, at)
    e.lists, at = string.sub(value, at, to), to + 1
  end
  if bit.band(flags, PREFERENCE) ~= 0 then e.preference, at = struct.unpack('<b', value, at) end
  if bit.band(flags, BITMAPS) ~= 0 then
    local tail, read
    tail, read, at = struct.unpack('<I3I3', value, at)
    e.tail = string.sub(value, at, at + tail - 1)
    e.read = string.sub(value, at + tail, at + tail + read - 1)
    e.deleted = string.sub(value, at + tail + read)
  end
  return e
end

local function pack_author(e)
  local bitmaps = e.tail ~= '' or e.read ~= '' or e.deleted ~= ''
  local flags = e.flags + (bitmaps and BITMAPS or 0) + (e.changes > 0 and MODES or 0) + (e.older > 0 and OLDER or 0) + (e.lists ~= '' and LISTS or 0)
  if e.preference ~= 0 then flags = flags + PREFERENCE end
  local value = struct.pack(AUTHOR, flags, e.rev, e.version, e.deletions, e.floor, e.base / 8, e.through, e.newest)
  if e.changes > 0 then value = value .. struct.pack(MODE_NUMBERS, e.changes, e.pulled, e.asked, e.asked_deletions) end
  if e.older > 0 then value = value .. struct.pack('<I4I4', e.older, e.horizon) end
  value = value .. e.lists
  if e.preference ~= 0 then value = value .. struct.pack('<b', e.preference) end
  if not bitmaps then return value end
  return value .. struct.pack('<I3I3', #e.tail, #e.read) .. e.tail .. e.read .. e.deleted
end

local function has_bit(bits, index)
  local byte = string.byte(bits, math.floor(index / 8) + 1)
  return byte ~= nil and bit.band(byte, bit.lshift(1, index % 8)) ~= 0
end

local function with_bit(bits, index)
  local at = math.floor(index / 8) + 1
  if #bits < at then bits = bits .. string.rep('\0', at - #bits) end
  local byte = bit.bor(string.byte(bits, at), bit.lshift(1, index % 8))
  return string.sub(bits, 1, at - 1) .. string.char(byte) .. string.sub(bits, at + 1)
end

-- Moves `through` past the delivered posts that follow it, and shortens the tail accordingly.
local function advance(e)
  local first, through = math.floor(e.through / 8), e.through
  while has_bit(e.tail, through - first * 8) do through = through + 1 end
  e.through = through
  e.tail = string.sub(e.tail, math.floor(through / 8) - first + 1)
  if #e.tail == 1 and bit.rshift(string.byte(e.tail), through % 8) == 0 then e.tail = '' end
end

-- Cuts the exact bits of posts far below the end of a state to the number of unread posts among them, so a state stays
-- small. `AuthorState::bounded` in shared/domain/src/author_state.rs does the same.
local function bounded(e)
  local length = math.max(#e.read, #e.deleted)
  if length * 8 <= CUT_AT then return e end
  local cut = length - WINDOW / 8
  for i = 1, cut do
    local settled = bit.bor(string.byte(e.read, i) or 0, string.byte(e.deleted, i) or 0)
    for b = 0, 7 do
      if bit.band(settled, bit.lshift(1, b)) == 0 then e.older = e.older + 1 end
    end
  end
  e.horizon = e.base + cut * 8
  while cut < length and bit.bor(string.byte(e.read, cut + 1) or 0, string.byte(e.deleted, cut + 1) or 0) == 255 do cut = cut + 1 end
  e.base = e.base + cut * 8
  e.read, e.deleted = string.sub(e.read, cut + 1), string.sub(e.deleted, cut + 1)
  if e.through < e.base then
    e.tail = string.sub(e.tail, e.base / 8 - math.floor(e.through / 8) + 1)
    e.through = e.base
    advance(e)
  end
  return e
end

-- Stores the author's modes. Returns whether they are new.
local function set_modes(e, changes, pulled)
  if changes < e.changes or (changes == e.changes and pulled <= e.pulled) then return false end
  e.changes, e.pulled = changes, pulled
  return true
end

-- Stores that a post is delivered. Returns whether this is new.
local function set_delivered(e, seq)
  if seq <= e.through then return false end
  local index = seq - 1 - math.floor(e.through / 8) * 8
  if has_bit(e.tail, index) then return false end
  e.tail = with_bit(e.tail, index)
  advance(e)
  return true
end

-- The order of a feed: by time, then by the bytes of author and sequence number. `<` would follow the server's locale.
local function less(a, b)
  local at, bt = struct.unpack('>I6', a), struct.unpack('>I6', b)
  if at ~= bt then return at < bt end
  for i = 7, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The time of the newest entry ever, or of the low end if that is later. Later posts go to the end of the feed.
local function newest_of(meta)
  return (struct.unpack('<I6', meta, NEWEST))
end

-- The meta after the feed has received this entry, or has it as its low end.
local function reaching(meta, entry)
  local at = struct.unpack('>I6', entry)
  if at <= newest_of(meta) then return meta end
  return string.sub(meta, 1, NEWEST - 1) .. struct.pack('<I6', at) .. string.sub(meta, EPOCH)
end

-- Whether a value ends with this epoch. Such values carry the epoch in which they were written.
local function is_of(value, epoch)
  return string.sub(value, -#epoch) == epoch
end

-- Returns a value that is current. If there is another one, returns nil and deletes the view, which has these keys: it
-- was written in another epoch, or is damaged. It must not stay without the change of this call, because its slot may
-- return to the server of that epoch, where it counts. Every script that changes a part of a view checks it here;
-- for a relation list, which names its epoch in a member, `relate` does.
local function current(value, is_current, ...)
  if value and is_current then return value end
  if value then redis.call('DEL', ...) end
  return nil
end

-- The meta of a view, which was read from its state; nil if there is no view of this epoch.
local function current_meta(meta, epoch, ...)
  return current(meta, meta and string.sub(meta, EPOCH, META_BYTES) == epoch, ...)
end

-- The same for the first of these keys, the state.
local function meta_of(epoch, state, ...)
  return current_meta(redis.call('HGET', state, META), epoch, state, ...)
end

-- The field of a hash that names its epoch; nil if there is no hash of this epoch.
local function field_of(epoch, key, field)
  local value = redis.call('HGET', key, field)
  return current(value, value and is_of(value, epoch), key)
end

local function low_of(meta)
  return string.sub(meta, META_BYTES + 1)
end

local function with_low(meta, low)
  return string.sub(meta, 1, META_BYTES) .. low
end

local function has_flag(meta, flag)
  return bit.band(string.byte(meta, 1), flag) ~= 0
end

local function with_flag(meta, flag)
  return string.char(bit.bor(string.byte(meta, 1), flag)) .. string.sub(meta, 2)
end

local function without_flag(meta, flag)
  return string.char(bit.band(string.byte(meta, 1), 255 - flag)) .. string.sub(meta, 2)
end

-- Inserts an entry that is not the newest. Returns the length of the feed, or 0 if the entry was already there.
local function insert_late(feed, entry)
  local count = 16
  while true do
    local entries = redis.call('LRANGE', feed, -count, -1)
    for i = #entries, 1, -1 do
      if entries[i] == entry then return 0 end
      if less(entries[i], entry) then return redis.call('LINSERT', feed, 'AFTER', entries[i], entry) end
    end
    if #entries < count then return redis.call('LPUSH', feed, entry) end
    count = count * 8
  end
end

-- Inserts an entry into a feed, once. Returns the length of the feed, or 0 if the entry was already there.
local function insert(feed, entry)
  local newest = redis.call('LINDEX', feed, '-1')
  if not newest or less(newest, entry) then return redis.call('RPUSH', feed, entry) end
  if newest == entry then return 0 end
  return insert_late(feed, entry)
end

local function push_all(feed, entries)
  for from = 1, #entries, 1000 do
    redis.call('RPUSH', feed, unpack(entries, from, math.min(from + 999, #entries)))
  end
end

-- Moves the recent entries of a feed to its list, and then `entry`, if there is one. Their fields stay, so that later
-- entries replace them in place. Returns the meta and the length of the list; false if the list or an entry was lost,
-- and with it the view.
local function append(state, feed, meta, entry)
  local count = math.floor(string.byte(meta) / RECENT)
  if count == 0 then return meta, entry and redis.call('RPUSH', feed, entry) end
  local entries = redis.call('HMGET', state, unpack(RECENT_FIELDS, 1, count))
  for i = 1, count do
    if not entries[i] then return false end
  end
  entries[count + 1] = entry
  local length = redis.call('RPUSHX', feed, unpack(entries))
  if length == 0 then return false end
  return string.char(string.byte(meta) % RECENT) .. string.sub(meta, 2), length
end

-- Moves the recent entries to the list, before a change of the list. Returns the meta; false if the view was lost.
local function flush(state, feed, meta)
  local after = append(state, feed, meta)
  if not after then
    redis.call('DEL', state)
    return false
  end
  if after ~= meta then redis.call('HSET', state, META, after) end
  -- What the change removes from the list is then in no field either.
  redis.call('HDEL', state, unpack(RECENT_FIELDS))
  return after
end

-- Cuts a feed to its cap. Returns the meta with the entry from which the feed is complete.
local function trim(feed, meta, cap)
  redis.call('LTRIM', feed, -cap, -1)
  return with_low(meta, redis.call('LINDEX', feed, 0))
end

-- The hash of moves of a ranked feed: `@` -> half-life ms and the last stamp; an entry -> changes of the post's step,
-- and the stamp of its last move, 0 if it has not moved; an author -> the stamp of the last change of the preference.
local MARKER, MOVE, STAMP = '<I8I8', '<I4I8', '<I8'

local function half_life_of(marker)
  return (struct.unpack(MARKER, marker))
end

-- The hash of a reader's connections: `@` -> when a change was last noted, when a message was last built, when the next
-- one may be built (ms), and the bytes of the post that changed; a connection -> its expiry (ms), and if it is known
-- what it was told, with the epoch: the digest of the counts, and the number of unread groups of the inbox.
local NOTES, NOTES_BYTES = '<I6I6I6', 18
local EXPIRY, EXPIRY_BYTES, DIGEST_BYTES = '<I6', 6, 12

-- The expiry of a connection. A damaged one has expired.
local function expiry_of(value)
  return #value >= EXPIRY_BYTES and (struct.unpack(EXPIRY, value)) or 0
end

-- What a connection was told; '' if it is unknown.
local function digest_of(value, epoch)
  local is_known = #value == EXPIRY_BYTES + DIGEST_BYTES + #epoch and string.sub(value, -#epoch) == epoch
  return is_known and string.sub(value, EXPIRY_BYTES + 1, EXPIRY_BYTES + DIGEST_BYTES) or ''
end

-- The times of the notes, and the bytes of the post; zeros if they are damaged.
local function notes_of(value)
  if not value or #value < NOTES_BYTES then return 0, 0, 0, '' end
  local noted, built, free = struct.unpack(NOTES, value)
  return noted, built, free, string.sub(value, NOTES_BYTES + 1)
end

-- The hash of unread notices that a reader's connections were told: `<platform>:<connection>` -> the number, with the
-- epoch; '' if it is unknown.
local TOLD = '<I4'

local function platform_field(platform, connection)
  return platform .. ':' .. connection
end

local function connection_of(field)
  return string.match(field, ':(.*)$') or ''
end

local function pack_told(unread, epoch)
  return struct.pack(TOLD, unread) .. epoch
end

-- The number in digits; '' if it is unknown.
local function told_of(value, epoch)
  local is_known = #value == 4 + #epoch and is_of(value, epoch)
  return is_known and string.format('%d', (struct.unpack(TOLD, value))) or ''
end

-- Who sends the message about a change: the caller, at once or after the least time, or nobody if one is queued.
local NOW, LATER, ON_ITS_WAY = 1, 2, 3

-- The time from which the last message of a complete view may be built; nil for a view that is being rebuilt.
local function deadline_of(meta)
  return not has_flag(meta, BUILDING) and struct.unpack('<I6', meta, DEADLINE) or nil
end

local function with_deadline(meta, deadline)
  return string.sub(meta, 1, DEADLINE - 1) .. struct.pack('<I6', deadline) .. string.sub(meta, TOKEN)
end

-- Whether a message is built later than now. A deadline beyond the least time is from a clock that was ahead.
local function is_on_its_way(deadline, now, least)
  return deadline and deadline > now and deadline <= now + least
end

-- Decides who sends the message about a change of counts. Returns the decision, and the deadline after it, if it
-- changes. A message for a later time is sent once.
local function announce(deadline, now, least)
  if is_on_its_way(deadline, now, least) then return ON_ITS_WAY end
  if not deadline then return LATER end
  if deadline <= now - least then return NOW, now end
  return LATER, now + least
end

-- Forgets that a reader is watched, in the meta of the view.
local function unwatched(epoch, state, feed)
  local meta = meta_of(epoch, state, feed)
  if meta and has_flag(meta, WATCHED) then redis.call('HSET', state, META, without_flag(meta, WATCHED)) end
end

local function now_us()
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function now_ms()
  return math.floor(now_us() / 1000)
end

-- A stamp for a move: the server's time in microseconds, and later than every stamp before.
local function next_stamp(moves)
  local half_life, last = struct.unpack(MARKER, redis.call('HGET', moves, META))
  local stamp = math.max(last + 1, now_us())
  redis.call('HSET', moves, META, struct.pack(MARKER, half_life, stamp))
  return stamp
end

-- The score of a post. `HalfLife::score` in shared/domain/src/rank.rs does the same.
local function score_of(entry, points, half_life)
  return points + struct.unpack('>I6', entry) / half_life
end

-- Removes entries from a ranked feed.
local function unrank(ranks, moves, entries)
  for from = 1, #entries, 1000 do
    local last = math.min(from + 999, #entries)
    redis.call('ZREM', ranks, unpack(entries, from, last))
    redis.call('HDEL', moves, unpack(entries, from, last))
  end
end

-- The bytes of the author in an entry, without their time.
local function prefix_of(entry)
  return string.sub(entry, 7, 7 + string.byte(entry, 7))
end

-- The meta of a view whose feed may have lost its last entry.
local function without_empty_feed(feed, meta)
  return redis.call('EXISTS', feed) == 0 and without_flag(meta, FEED) or meta
end

-- Removes the entries of an author, whose bytes after the time are this prefix. Returns the meta, which the caller
-- stores; false if the view was lost.
local function remove_author(state, feed, ranks, moves, meta, prefix)
  meta = flush(state, feed, meta)
  if not meta then return false end
  local entries, kept, removed = redis.call('LRANGE', feed, 0, -1), {}, {}
  for i = 1, #entries do
    local list = prefix_of(entries[i]) == prefix and removed or kept
    list[#list + 1] = entries[i]
  end
  if #removed == 0 then return meta end
  if has_flag(meta, RANKED) then unrank(ranks, moves, removed) end
  local lifetime = redis.call('PTTL', feed)
  redis.call('DEL', feed)
  push_all(feed, kept)
  if #kept > 0 then redis.call('PEXPIRE', feed, lifetime) end
  return without_empty_feed(feed, meta)
end

-- Removes the entries below the low end. Returns the meta.
local function cut(feed, ranks, moves, meta)
  local entries, low, below = redis.call('LRANGE', feed, 0, -1), low_of(meta), {}
  while #below < #entries and less(entries[#below + 1], low) do below[#below + 1] = entries[#below + 1] end
  if #below == 0 then return meta end
  if has_flag(meta, RANKED) then unrank(ranks, moves, below) end
  redis.call('LTRIM', feed, #below, -1)
  return without_empty_feed(feed, meta)
end

-- Cuts a feed and its ranked feed to the cap. Returns the meta as `trim` does.
local function trim_ranked(feed, ranks, moves, meta, cap)
  if has_flag(meta, RANKED) then unrank(ranks, moves, redis.call('LRANGE', feed, 0, -cap - 1)) end
  return trim(feed, meta, cap)
end
