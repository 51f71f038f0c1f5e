-- outdate: notes a change of a post's reaction counts. They are removed, so that the next reader counts again. If there
-- are many reactions in a moment, counts that were stored within it are used until it is over.
--
-- KEYS     [1] counts  [2] lease for storing them  [3] number of reactions in this moment  [4] note that a `rank` task
--          was sent that has not begun
-- ARGV     [1] lifetime ms of counts  [2] length of the moment, ms  [3] reactions in a moment after which readers may
--          see older counts  [4] number of new reactions; 0 for those that were noted before
-- Returns  the time now (ms) if the caller has to enqueue the task, else 0
-- Keeps    Counts from before this call are not used after the moment.
--          After a repetition the reaction counts twice in KEYS [3].
local function outdate(keys, argv, epoch)
  redis.call('DEL', keys[2])
  local moment, many = tonumber(argv[2]), tonumber(argv[3])
  local reactions = redis.call('INCRBY', keys[3], argv[4])
  if reactions == tonumber(argv[4]) then redis.call('PEXPIRE', keys[3], moment) end
  local left = redis.call('PTTL', keys[1])
  local age = tonumber(argv[1]) - left
  if reactions <= many then
    redis.call('DEL', keys[1])
  elseif left > moment and age < moment then
    redis.call('PEXPIRE', keys[1], moment - age)
  elseif left > moment then
    redis.call('DEL', keys[1])
  end
  return redis.call('EXISTS', keys[4]) == 1 and 0 or now_ms()
end
