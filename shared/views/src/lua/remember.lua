-- remember: stores a post's summary. A deletion replaces any summary. Any other summary is stored only if there is none
-- of this epoch, because a deletion may have come after the facts were read.
--
-- KEYS     [1] summary
-- ARGV     [1] value  [2] lifetime ms  [3] '1' for a deletion
-- Returns  1, or 0 if there was a summary
-- Keeps    a deleted post stays deleted.
local function remember(keys, argv, epoch)
  if argv[3] ~= '1' then
    local known = redis.call('GET', keys[1])
    if known and is_of(known, epoch) then return 0 end
  end
  redis.call('SET', keys[1], argv[1] .. epoch, 'PX', argv[2])
  return 1
end
