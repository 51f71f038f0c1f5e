#!lua name=redis_link_epoch_1
-- epoch: names this life of the server. The name is the replication id that the server had, as a master, at the first
-- call. The id itself also changes while no data is lost: when a first replica attaches, or when the last one has been
-- disconnected for long. So this process keeps the first id, only in its memory. A process that restarts, or loads
-- another server's data, loses it and has another id. A replica has no epoch, and forgets the one that it had.
--
-- This is a library of its own, and no deployment replaces it.
--
-- KEYS     none
-- ARGV     none
-- Returns  the first eight digits of the id; false on a replica; an error if INFO does not contain the id

local epoch

local function learn()
  local info = redis.call('INFO', 'replication')
  if not string.find(info, 'role:master', 1, true) then
    epoch = nil
    return false
  end
  epoch = epoch or string.match(info, 'master_replid:(%x%x%x%x%x%x%x%x)')
  return epoch or redis.error_reply('ERR INFO has no master_replid: whether the data is current cannot be told, so this Redis is not used')
end

redis.register_function{ function_name = 'redis_link_epoch_1', callback = learn, flags = { 'no-writes' } }
