-- Stores a post as a blog of the legacy system. The title of a blog that the legacy system has is replaced.
-- KEYS: blog:info:{blog}, author:blogs:{author}
-- ARGV: blog, author, title, time in ms, lifetime of the information in seconds, 1 if the blog is new there
-- Returns: 1
-- Keeps: a blog that has expired stays expired
if ARGV[6] == '1' or redis.call('EXISTS', KEYS[1]) == 1 then
    redis.call('HSET', KEYS[1], 'id', ARGV[1], 'userId', ARGV[2], 'title', ARGV[3], 'createTime', ARGV[4])
end
if ARGV[6] == '1' then
    redis.call('EXPIRE', KEYS[1], ARGV[5])
    redis.call('SADD', KEYS[2], ARGV[1])
end
return 1
