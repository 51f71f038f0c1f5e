-- spend: takes tokens from a token bucket (generic cell rate algorithm), and reads whether the user may call.
--
-- KEYS     [1] buckets of one user: kind -> time in ms at which the bucket is full again  [2] access of the user
-- ARGV     [1] kind  [2] tokens a minute, and at most in the bucket; 0 without a limit  [3] now in ms
--          [4] tokens of the request  [5] 'asked', or 'done' for work that is done and cannot be refused
-- Returns  {0, or in how many ms the request is allowed; the tokens in the bucket; 1 if the user may call, 2 if not, 0
--          if it is unknown}
-- Keeps    a request that is refused takes nothing. An absent bucket is full.
--          A request of more tokens than a bucket holds is allowed when the bucket is full, and leaves a debt.
--          A repeated call takes the tokens again.
--          A later time than that of the largest debt came from a machine whose clock is ahead. The bucket is then
--          empty, without a debt.

-- The tokens of the largest request.
local MOST_TOKENS = 500

local function spend(keys, argv, epoch)
  local access = redis.call('GET', keys[2])
  access = access and is_of(access, epoch) and tonumber(string.sub(access, 1, 1)) or 0
  if argv[2] == '0' then return {0, 0, access} end
  local each, now, tokens = 60000 / tonumber(argv[2]), tonumber(argv[3]), math.min(tonumber(argv[4]), MOST_TOKENS)
  local known = tonumber(redis.call('HGET', keys[1], argv[1]) or 0)
  local full_at = math.max(known, now)
  if full_at > now + math.max(60000, MOST_TOKENS * each) then full_at = now + 60000 end
  local wait = math.ceil(full_at - now - math.max(60000 - tokens * each, 0))
  if wait <= 0 or argv[5] == 'done' then full_at, wait = full_at + tokens * each, 0 end
  if full_at ~= known then
    redis.call('HSET', keys[1], argv[1], string.format('%.3f', full_at))
    redis.call('PEXPIRE', keys[1], math.max(60000, math.ceil(full_at - now)))
  end
  return {wait, math.max(math.floor((60000 - full_at + now) / each + 0.001), 0), access}
end
