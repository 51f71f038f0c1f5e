-- outdate: notes a change of a post's reaction counts. Counts that were stored in the last moment are used until that
-- moment is over, so that many reactions do not make every reader count again. Others are removed.
--
-- KEYS     [1] counts  [2] lease for storing them
-- ARGV     [1] lifetime ms of counts  [2] length of the moment, ms
-- Keeps    counts from before a reaction are never used after the moment.
local function outdate(keys, argv, epoch)
  redis.call('DEL', keys[2])
  local left, moment = redis.call('PTTL', keys[1]), tonumber(argv[2])
  local age = tonumber(argv[1]) - left
  if left > moment and age < moment then
    redis.call('PEXPIRE', keys[1], moment - age)
  elseif left > moment then
    redis.call('DEL', keys[1])
  end
  return 1
end
