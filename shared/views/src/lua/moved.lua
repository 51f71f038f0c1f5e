-- moved: notes that the step of a post has changed, for the next task that moves the author's posts (`note_step`).
--
-- KEYS     [1] moved posts of an author: seq -> changes of the step; `next` -> ms before which no task should run;
--          `sent` -> ms at which a task that was sent runs; `epoch`; `all` if posts may be missing
-- ARGV     [1] seq  [2] changes  [3] now in ms  [4] ms after `sent` from which the task counts as lost  [5] lifetime ms
-- Returns  the delay in ms of the task that the caller has to send, or -1 if one was sent before
-- Keeps    a noted post stays until a task has taken it (`settle`).
local function moved(keys, argv, epoch)
  local values, now = redis.call('HMGET', keys[1], 'epoch', 'next', 'sent'), tonumber(argv[3])
  if values[1] and values[1] ~= epoch then redis.call('HSET', keys[1], 'all', '') end
  redis.call('HSET', keys[1], argv[1], argv[2], 'epoch', epoch)
  redis.call('PEXPIRE', keys[1], argv[5])
  if values[1] == epoch and values[3] and now < tonumber(values[3]) + tonumber(argv[4]) then return -1 end
  return math.max(0, tonumber(values[2] or 0) - now)
end
