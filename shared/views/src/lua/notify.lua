-- notify: notes that the counts of watched readers have changed, and decides who sends the message that tells them.
--
-- KEYS     for each user: connections, state hash
-- ARGV     [1] the least time between two messages, ms  [2] the bytes of the post that changed, or ''
-- Returns  for each user: 0 the caller sends a message now, 1 the caller sends one that is delayed by the least time, 2 one is
--          on its way and will have this change, 3 nobody watches
-- Keeps    After a change there is always a message that is built after it.
--          A message for a later time is sent once: it is not built before that time, so it has all changes until then.
local function notify(keys, argv, epoch)
  local now, least, result = math.floor(now_us() / 1000), tonumber(argv[1]), {}
  for first = 1, #keys, 2 do
    local schedule, answer = redis.call('HGET', keys[first], META), 3
    if not schedule then
      unwatched(keys[first + 1], epoch)
    else
      local on_its_way, built, post = schedule_of(schedule)
      if on_its_way > now and on_its_way <= now + least then
        answer = 2
      elseif on_its_way <= now - least and built <= now - least then
        on_its_way, answer = now, 0
      else
        on_its_way, answer = now + least, 1
      end
      if argv[2] ~= '' then post = argv[2] end
      redis.call('HSET', keys[first], META, struct.pack(SCHEDULE, on_its_way, built) .. post)
    end
    result[#result + 1] = answer
  end
  return result
end
