#!lua name=redis_link_turn_2
-- turn: gives the bulk work of a process its next turn on this node. Turns are so far apart that the node is busy for a
-- stated share of its time, whatever keeps it busy. The process tells the work of the trip that ends with this call,
-- and its next trip comes in the turn that it gets. A process that has missed its turn calls this before the trip. So
-- trips of all processes follow each other evenly.
--
-- The next turn and the distance of turns are kept in the memory of this process only. After a restart or a failover
-- they are learned again. This is a library of its own, so all releases of the functions share them.
--
-- KEYS     none
-- ARGV     [1] work of the trip, in users
-- Returns  the time until the next trip of the process, in microseconds
-- Keeps    a turn that nobody uses is lost. The node is less busy then, and turns move closer.

-- The share of its time that the node may be busy.
local BUSY = 0.72
-- The least time after which the share is measured, and the longest time until a turn, in microseconds.
local WINDOW, LONGEST = 20000, 100000
-- The time from a turn to the next for the work of a user, in microseconds: at first, at least and at most. With the
-- last, a call that delivers to 35 users is followed by a turn after 10 ms.
local FIRST, LEAST, MOST = 8, 1, 250

local free, each = 0, FIRST
local at, spent

-- The processor time of the thread that runs commands, in microseconds. Without it, the time of all threads counts.
local function processor()
  local info = redis.call('INFO', 'cpu')
  local function micros(suffix)
    local user = string.match(info, 'used_cpu_user' .. suffix .. ':([%d.]+)')
    local sys = string.match(info, 'used_cpu_sys' .. suffix .. ':([%d.]+)')
    return user and sys and (user + sys) * 1e6
  end
  return micros('_main_thread') or micros('') or 0
end

local function turn(_, argv)
  local time = redis.call('TIME')
  local now = time[1] * 1e6 + time[2]
  -- Turns that are given already hide the effect of a change, so the share is measured after twice their time.
  if not at or now < at or now - at >= math.max(WINDOW, 2 * (free - now)) then
    local before, began = spent, at
    spent, at = processor(), now
    if began and now > began and spent >= before then
      local share = math.min((spent - before) / (now - began), 1)
      each = math.min(math.max(each * math.exp(share - BUSY), LEAST), MOST)
    end
  end
  local mine = math.min(math.max(now, free), now + LONGEST)
  free = mine + argv[1] * each
  return math.floor(mine - now)
end

redis.register_function{ function_name = 'redis_link_turn_2', callback = turn, flags = { 'no-writes' } }
