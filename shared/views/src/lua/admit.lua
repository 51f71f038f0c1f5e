-- admit: opens the gate for follows, before the facts are read that seed them: what is delivered in between lands.
--
-- KEYS     [1] state hash
-- ARGV     for every author: author, rev, fresh value (an opening author state)
-- Returns  for every author 1 admitted, 2 admitted before and still opening, 0 complete, -1 stale (the view knows a later revision);
--          false without a view
-- Keeps    V1: a follow that an unfollow has overtaken does not come back.
local function admit(keys, argv, epoch)
  if not meta_of(keys[1], epoch) then return false end
  local results = {}
  for a = 1, #argv, 3 do
    local value, rev = redis.call('HGET', keys[1], argv[a]), tonumber(argv[a + 1])
    local known = value and rev_of(value)
    if known and known > rev then
      results[#results + 1] = -1
    elseif known == rev then
      results[#results + 1] = not is_live(value) and -1 or bit.band(string.byte(value, 1), OPENING)
    else
      redis.call('HSET', keys[1], argv[a], argv[a + 2])
      results[#results + 1] = 1
    end
  end
  return results
end
