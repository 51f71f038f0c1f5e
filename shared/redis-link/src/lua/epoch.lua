#!lua name=tidemark_epoch_1
-- epoch: names this life of the server: the replication id that it had when it was asked first, as master. The id itself changes also while nothing is lost (when
-- a first replica attaches, when the last one has been gone for long), so it is remembered, in the memory of this process alone: a process that was started
-- again, or has loaded another server's data, remembers nothing and has another id. A replica has no epoch of its own, and forgets the one it had.
--
-- A library of its own that is never replaced.
--
-- KEYS     none
-- ARGV     none
-- Returns  the first eight digits of the id; false on a replica; an error where INFO does not tell it

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

redis.register_function{ function_name = 'tidemark_epoch_1', callback = learn, flags = { 'no-writes' } }
