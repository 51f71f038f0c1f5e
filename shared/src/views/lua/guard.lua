#!lua name=tidemark_guard_1
-- guard: empties a node of a cluster that has become master in another's place. Replication is not waited for: such a node may lack the last that its
-- predecessor has acknowledged, and nobody would notice. Views that are missing are rebuilt; views that are behind would stay so.
--
-- A library of its own that is never replaced: it remembers, in the memory of this process alone, under which replication id it was guarded. A
-- node gets a new id when it becomes master, and a process that was started again remembers nothing.
--
-- KEYS     none; the whole node
-- ARGV     [1] '1' right after this library was loaded: nothing of ours can be here
-- Returns  1 when the node was emptied, else 0
-- Keeps    V8: what a view says was merged on this master, or is a view's absence.

local guarded

local function guard(keys, argv)
  local id = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
  if guarded == id then return 0 end
  guarded = id
  if argv[1] == '1' then return 0 end
  redis.call('FLUSHALL', 'ASYNC')
  return 1
end

redis.register_function('tidemark_guard_1', guard)
