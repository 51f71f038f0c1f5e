-- moved: notes that the step of a post has changed, for the next task that moves the author's posts (`note_step`).
--
-- KEYS     [1] moved posts of an author: seq -> changes of the step; `life` -> when this hash began (us), with the
--          epoch; `next` -> ms before which no task should run; `sent` -> ms at which the next task runs; `by` -> who
--          sends it
-- ARGV     [1] seq  [2] changes  [3] now in ms  [4] ms after `sent` from which the task counts as lost  [5] lifetime ms
--          [6] token of the caller
-- Returns  the hash's `life` without the epoch; the delay in ms of the task that the caller has to send, -1 if another
--          caller sends one, or has sent one
-- Keeps    a noted post stays until a task has taken it (`settle`). A task names the life of the hash for which it was
--          sent. In another life it takes all posts, because this one may lack some.
--          A repetition with the same token returns the delay again, as long as no task has run.
local function moved(keys, argv, epoch)
  local values, now = redis.call('HMGET', keys[1], 'life', 'next', 'sent', 'by'), tonumber(argv[3])
  local life, next, sent, by = values[1], tonumber(values[2] or 0), tonumber(values[3] or 0), values[4]
  if not (life and is_of(life, epoch)) then
    life, next, by = string.format('%d', now_us()) .. epoch, 0, false
    redis.call('DEL', keys[1])
    redis.call('HSET', keys[1], 'life', life)
  end
  redis.call('HSET', keys[1], argv[1], argv[2])
  redis.call('PEXPIRE', keys[1], argv[5])
  local began = string.sub(life, 1, -1 - #epoch)
  if by and by ~= argv[6] and now < sent + tonumber(argv[4]) then return { began, -1 } end
  local delay = math.max(0, next - now)
  redis.call('HSET', keys[1], 'sent', string.format('%d', now + delay), 'by', argv[6])
  return { began, delay }
end
