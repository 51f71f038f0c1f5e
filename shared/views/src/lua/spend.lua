-- spend: takes a request from a token bucket (generic cell rate algorithm), and reads whether the user may call.
--
-- KEYS     [1] buckets of one user: kind -> time in ms at which the bucket is full again  [2] access of the user
-- ARGV     [1] kind  [2] requests a minute, and at once; 0 without a limit  [3] now in ms
-- Returns  {0, or in how many ms the next request is allowed; 1 if the user may call, 2 if not, 0 if it is unknown}
-- Keeps    a request that is refused takes nothing. An absent bucket is full.
--          A repeated call takes another request.
--          A bucket is full again after a minute at the latest. A later time came from a machine whose clock is ahead.
local function spend(keys, argv, epoch)
  local access = redis.call('GET', keys[2])
  access = access and is_of(access, epoch) and tonumber(string.sub(access, 1, 1)) or 0
  if argv[2] == '0' then return {0, access} end
  local each, now = 60000 / tonumber(argv[2]), tonumber(argv[3])
  local known = tonumber(redis.call('HGET', keys[1], argv[1]) or 0)
  local full_at = math.min(math.max(known, now), now + 60000)
  local wait = math.ceil(full_at + each - now - 60000)
  if wait <= 0 then full_at, wait = full_at + each, 0 end
  if full_at ~= known then
    redis.call('HSET', keys[1], argv[1], string.format('%.3f', full_at))
    redis.call('PEXPIRE', keys[1], 60000)
  end
  return {wait, access}
end
