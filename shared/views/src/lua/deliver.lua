-- deliver: puts a post into the views of live followers: feed entry and state bit in the same call.
--
-- KEYS     for each user: state hash, feed
-- ARGV     [1] state lifetime ms  [2] feed lifetime ms  [3] cap  [4] author  [5] seq  [6] time ms  [7] entry
--          [8] changes and [9] pulled, the author's modes  [10] the least time between two messages to connections, ms;
--          '' for no message
-- Returns  the number of users whose view follows the author; the positions (from 1) of those of them who have a ranked
--          feed, into which the caller puts the post with `rank`; those of them to whom the caller must send a message
--          now, and those to whom it must send one after the least time: their views rely on it
-- Keeps    V3, V4: a repeated or reordered call gives the same view.
--          V8: a view of another epoch is deleted.
--          V1: without a live field for the author the view does not change, so a late delivery after an unfollow
--          leaves no ghost.
--          If the response is lost, a repetition may name nobody for a message. Then the next change or ping sends it.
--          A deleted post stays deleted, and a read post read. A post below the low end, or of a muted author, is
--          counted and not stored.

-- The meta after the feed has received an entry and has this length; false if the feed was lost and the state was not.
local function stored(state, feed, meta, length, argv, cap)
  meta = reaching(meta, argv[7])
  if length == 1 then
    if has_flag(meta, FEED) then return false end
    -- The view had no feed. It has one now, with a feed's lifetime.
    redis.call('PEXPIRE', feed, argv[2])
    redis.call('PEXPIRE', state, argv[1])
    return with_flag(meta, FEED)
  end
  -- `rank` cuts a feed that is ranked too.
  if length > most_of(cap) and not has_flag(meta, RANKED) then return trim(feed, meta, cap) end
  return meta
end

-- The author's value after the post, and whether the feed must store the post.
local function note(value, seq, at, changes, pulled)
  local e = unpack_author(value)
  local dirty, index = set_modes(e, changes, pulled), seq - e.base - 1
  -- All posts after the last pulled post were pushed, up to this one.
  if changes % 2 == 1 and pulled <= e.asked and seq > e.asked then
    e.asked, dirty = seq, true
  end
  local shown = seq > e.floor and not (index >= 0 and has_bit(e.deleted, index))
  if shown and set_delivered(e, seq) then
    if at > e.newest then e.newest = at end
    dirty = true
  end
  return dirty and pack_author(bounded(e)) or value, shown and bit.band(e.flags, MUTED) == 0
end

-- The general case: any post, in any order. `known` is the meta in Redis.
local function deliver_one(state, feed, known, meta, value, argv, cap)
  local after, shown = note(value, tonumber(argv[5]), tonumber(argv[6]), tonumber(argv[8]), tonumber(argv[9]))
  if shown and not (#meta > META_BYTES and less(argv[7], low_of(meta))) then
    meta = flush(state, feed, meta)
    meta = meta and stored(state, feed, meta, insert(feed, argv[7]), argv, cap)
  end
  if not meta then
    -- Without its feed the whole view is lost. The next read rebuilds it.
    redis.call('DEL', state, feed)
  elseif meta ~= known then
    redis.call('HSET', state, META, meta, argv[4], after)
  elseif after ~= value then
    redis.call('HSET', state, argv[4], after)
  end
end

-- Whether the delivery of the next post in order changes only two numbers of this value, and the feed stores it: no
-- post after it is delivered yet, it is not deleted itself, and the author is not muted.
local function is_in_order(value, flags, seq)
  if flags % LISTS >= MUTED then return false end
  if flags % OLDER < BITMAPS then return true end
  if flags % OLDER >= MODES or flags % PREFERENCE >= LISTS then return false end
  local older, preference = flags % MUTED >= OLDER and 8 or 0, flags >= PREFERENCE and 1 or 0
  local tail, read, from = struct.unpack('<I3I3', value, AUTHOR_BYTES + 1 + older + preference)
  local deleted = #value - from + 1 - read
  return tail == 0 and seq > 8 * (struct.unpack('<I4', value, BEFORE_THROUGH - 3) + deleted)
end

local function deliver(keys, argv, epoch)
  -- Local copies, because a fan-out spends the server's time in this loop.
  local call, unpack_numbers, pack_numbers, sub, byte = redis.call, struct.unpack, struct.pack, string.sub, string.byte
  local char = string.char
  local cap, author, seq, at, entry = tonumber(argv[3]), argv[4], tonumber(argv[5]), tonumber(argv[6]), argv[7]
  local least, now, ranked, announced = tonumber(argv[10]), nil, {}, { {}, {} }
  local pushed_alone, newest, reached = argv[8] == '0', pack_numbers('<I6', at), 0
  for first = 1, #keys, 2 do
    local state, feed = keys[first], keys[first + 1]
    local values = call('HMGET', state, META, author)
    local meta, value = values[1], values[2]
    local flags = meta and value and byte(value) or 0
    if flags % 2 == LIVE and sub(meta, EPOCH, META_BYTES) == epoch then
      reached = reached + 1
      local kind, deadline = byte(meta), nil
      if kind % RECENT >= RANKED then
        -- One comparison for readers who have neither a ranked feed nor a connection.
        if kind % WATCHED >= RANKED then ranked[#ranked + 1] = (first + 1) / 2 end
        if kind % RECENT >= WATCHED and least then
          local decision
          now = now or now_ms()
          decision, deadline = announce(kind % FEED ~= BUILDING and unpack_numbers('<I6', meta, DEADLINE) or nil, now, least)
          local users = announced[decision]
          if users then users[#users + 1] = (first + 1) / 2 end
        end
      end
      local through, latest = unpack_numbers('<I4I6', value, BEFORE_THROUGH + 1)
      if pushed_alone and seq == through + 1 and at > unpack_numbers('<I6', meta, NEWEST) and is_in_order(value, flags, seq) then
        -- The newest of the feed: two numbers of the value and one of the meta change, and the feed grows at its end.
        local after = sub(value, 1, BEFORE_THROUGH) .. pack_numbers('<I4I6', seq, at > latest and at or latest) .. sub(value, AUTHOR_BYTES + 1)
        if kind % WATCHED == FEED and kind < MOST_RECENT * RECENT then
          -- One new string: each is half a microsecond.
          if deadline then
            meta = char(kind + RECENT) .. sub(meta, 2, DEADLINE - 1) .. pack_numbers('<I6', deadline)
              .. sub(meta, TOKEN, NEWEST - 1) .. newest .. sub(meta, EPOCH)
          else
            meta = char(kind + RECENT) .. sub(meta, 2, NEWEST - 1) .. newest .. sub(meta, EPOCH)
          end
          call('HSET', state, META, meta, author, after, RECENT_FIELDS[(kind - kind % RECENT) / RECENT + 1], entry)
        else
          local length
          meta, length = append(state, feed, deadline and with_deadline(meta, deadline) or meta, entry)
          meta = meta and stored(state, feed, meta, length, argv, cap)
          if meta then call('HSET', state, META, meta, author, after) else call('DEL', state, feed) end
        end
      else
        deliver_one(state, feed, meta, deadline and with_deadline(meta, deadline) or meta, value, argv, cap)
      end
    elseif meta then
      current_meta(meta, epoch, state, feed)
    end
  end
  return { reached, ranked, announced[NOW], announced[LATER] }
end
