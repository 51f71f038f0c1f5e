-- claim: begins to build the message for a watched reader. The caller reads the counts after this call.
--
-- KEYS     [1] connections
-- ARGV     [1] the least time between two messages, ms
-- Returns  false if nobody watches; 'later' if the last message was built less than the least time ago and another one is on
--          its way; 'again' if the caller has to send one that is delayed by the least time; or the bytes of the post that
--          changed last, the digest that was told last or '', and the connections
-- Keeps    A reader has at most one message in the least time.
local function claim(keys, argv)
  local fields = redis.call('HGETALL', keys[1])
  if #fields == 0 then return false end
  local now, least, schedule, told, result = math.floor(now_us() / 1000), tonumber(argv[1]), nil, '', {}
  for f = 1, #fields, 2 do
    if fields[f] == META then
      schedule = fields[f + 1]
    elseif fields[f] == TOLD then
      told = fields[f + 1]
    elseif struct.unpack('<I6', fields[f + 1]) > now then
      result[#result + 1] = fields[f]
    else
      redis.call('HDEL', keys[1], fields[f])
    end
  end
  local on_its_way, built, post = schedule_of(schedule)
  -- A time in the future was written by a server whose clock was ahead.
  if built > now - least and built <= now then
    if on_its_way > now and on_its_way <= now + least then return 'later' end
    redis.call('HSET', keys[1], META, struct.pack(SCHEDULE, now + least, built) .. post)
    return 'again'
  end
  redis.call('HSET', keys[1], META, struct.pack(SCHEDULE, on_its_way, now) .. post)
  table.insert(result, 1, told)
  table.insert(result, 1, post)
  return result
end
