-- admit: opens the gate for follows before the caller reads their facts, so that deliveries in between reach the view.
--
-- KEYS     [1] state hash
-- ARGV     for each author: author, rev, new value (an opening author state)
-- Returns  for each author: 1 gate opened, 2 opened before and still opening, 0 complete, -1 stale (the view knows a
--          later revision or this unfollow); false without a view
-- Keeps    V1: a follow that is older than a known unfollow does not come back.
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
