-- Makes the legacy lists of a pair agree with its edge. A legacy follow that is later than an unfollow here stays.
-- KEYS: u_follow:{user}, u_fans:{author}, uf:flws:{user}, uf:fans:{author}, u_fans_num:{author},
--       user:unread:{user}:{author}, user:unread:count:{user}
-- ARGV: user, author, time of the change in ms, 1 for a follow and 0 for an unfollow
-- Returns: 1, or 0 if a later legacy follow stays
-- Keeps: state, never a delta, so that it may be repeated; the number of fans changes with the list of fans alone
local user, author, at, follows = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local lists = { { KEYS[1], author, 1000 }, { KEYS[2], user, 1000 }, { KEYS[3], author, 1 }, { KEYS[4], user, 1 } }
if not follows then
    local since = redis.call('ZSCORE', KEYS[1], author)
    if since and tonumber(since) * 1000 > at then
        return 0
    end
    redis.call('DEL', KEYS[6])
    redis.call('HDEL', KEYS[7], author)
end
for place, list in ipairs(lists) do
    local key, member, unit = list[1], list[2], list[3]
    local changed = 0
    -- The lists in milliseconds are a cache of another database: a missing one stays missing.
    if place <= 2 or redis.call('EXISTS', key) == 1 then
        if follows then
            changed = redis.call('ZADD', key, 'NX', string.format('%.0f', math.floor(at / unit)), member)
        else
            changed = redis.call('ZREM', key, member)
        end
    end
    if place == 2 and changed == 1 and redis.call('EXISTS', KEYS[5]) == 1 then
        redis.call('INCRBY', KEYS[5], follows and 1 or -1)
    end
end
return 1
