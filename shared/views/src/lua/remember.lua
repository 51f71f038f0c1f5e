-- remember: stores what lists show of a post. A deletion is stored over anything; anything else only where nothing of this epoch is, since a deletion may have come
-- after the facts were read.
--
-- KEYS     [1] summary
-- ARGV     [1] value  [2] lifetime ms  [3] '1' for a deletion
-- Returns  1, or 0 when there was a summary
local function remember(keys, argv, epoch)
  if argv[3] ~= '1' then
    local known = redis.call('GET', keys[1])
    if known and is_of(known, epoch) then return 0 end
  end
  redis.call('SET', keys[1], argv[1] .. epoch, 'PX', argv[2])
  return 1
end
