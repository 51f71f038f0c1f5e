-- Removes a deleted post from the legacy system.
-- KEYS: blog:info:{blog}, author:blogs:{author}
-- ARGV: blog
-- Returns: 1
-- Keeps: nothing else of the author changes
redis.call('DEL', KEYS[1])
redis.call('SREM', KEYS[2], ARGV[1])
return 1
