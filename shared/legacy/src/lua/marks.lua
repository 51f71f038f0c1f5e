-- Makes the legacy read state of a pair agree with the facts, for the given blogs alone.
-- KEYS: user:read:{user}, user:unread:{user}:{author}, user:unread:count:{user}
-- ARGV: author, lifetime in seconds, then pairs of an operation and a blog: `read`; `gone`, which is neither read nor
--       unread; `unread`, unless the legacy system has it read; `unmarked`, unread after it was read
-- Returns: 1
-- Keeps: the count is the number of members of the unread set
local author, lifetime = ARGV[1], ARGV[2]
local changed = 0
for i = 3, #ARGV, 2 do
    local operation, blog = ARGV[i], ARGV[i + 1]
    if operation == 'read' or operation == 'gone' then
        changed = changed + redis.call('SREM', KEYS[2], blog)
        if operation == 'read' then
            redis.call('SADD', KEYS[1], blog)
        end
    else
        if operation == 'unmarked' then
            redis.call('SREM', KEYS[1], blog)
        end
        if redis.call('SISMEMBER', KEYS[1], blog) == 0 then
            changed = changed + redis.call('SADD', KEYS[2], blog)
        end
    end
end
if changed > 0 then
    redis.call('HSET', KEYS[3], author, redis.call('SCARD', KEYS[2]))
end
for _, key in ipairs(KEYS) do
    redis.call('EXPIRE', key, lifetime)
end
return 1
