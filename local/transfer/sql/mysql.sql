-- The same as postgresql.sql beside it, for MySQL 8 with times in UTC.
-- mysql --batch --raw --skip-column-names --default-character-set=utf8mb4 DATABASE < local/transfer/sql/mysql.sql > all.ndjson
SET SESSION time_zone = '+00:00', SESSION group_concat_max_len = 67108864;

-- A post is named by its author and its number: 1, 2, 3, … in the order of time. A body has at most 65,536 bytes: a
-- longer one is cut to 16,384 characters, which have at most four bytes each.
CREATE TEMPORARY TABLE numbered (PRIMARY KEY (id)) AS
    SELECT id, user_id, ROW_NUMBER() OVER (PARTITION BY user_id ORDER BY created_at, id) AS seq FROM blogs;

SELECT JSON_OBJECT('kind', 'profile', 'user', CAST(id AS CHAR), 'name', LEFT(name, 100),
    'updated_at', DATE_FORMAT(NOW(3), '%Y-%m-%dT%H:%i:%s.%fZ'))
FROM users WHERE name <> '';

SELECT JSON_OBJECT('kind', 'post', 'user', CAST(user_id AS CHAR), 'id', CONCAT(user_id, '-', seq),
    'title', LEFT(COALESCE(NULLIF(title, ''), '(no title)'), 200),
    'body', IF(OCTET_LENGTH(content) > 65536, LEFT(content, 16384), content),
    'created_at', DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%fZ'))
FROM blogs JOIN numbered USING (id, user_id);

SELECT JSON_OBJECT('kind', 'follow', 'user', CAST(user_id AS CHAR), 'author', CAST(author_id AS CHAR),
    'since', DATE_FORMAT(created_at, '%Y-%m-%dT%H:%i:%s.%fZ'))
FROM follows WHERE user_id <> author_id;

-- Read posts as ranges of numbers: in a run, the number grows as the row does.
SELECT JSON_OBJECT('kind', 'read', 'user', CAST(reader AS CHAR), 'author', CAST(author AS CHAR),
    'ranges', JSON_ARRAYAGG(JSON_ARRAY(first, last)))
FROM (
    SELECT reader, author, MIN(seq) AS first, MAX(seq) AS last
    FROM (
        SELECT r.user_id AS reader, n.user_id AS author, n.seq,
            CAST(n.seq AS SIGNED) - CAST(ROW_NUMBER() OVER (PARTITION BY r.user_id, n.user_id ORDER BY n.seq) AS SIGNED) AS run
        FROM (SELECT DISTINCT user_id, blog_id FROM blog_reads) r JOIN numbered n ON n.id = r.blog_id
    ) runs
    GROUP BY reader, author, run
) ranges
GROUP BY reader, author;

SELECT JSON_OBJECT('kind', 'like', 'user', CAST(l.user_id AS CHAR), 'post', CONCAT(n.user_id, '-', n.seq),
    'at', DATE_FORMAT(l.created_at, '%Y-%m-%dT%H:%i:%s.%fZ'))
FROM blog_likes l JOIN numbered n ON n.id = l.blog_id;
