-- Writes the lines of docs/in-and-out.md for tables such as:
--   users (id, name), follows (user_id, author_id, created_at), blogs (id, user_id, title, content, created_at),
--   blog_reads (user_id, blog_id), blog_likes (user_id, blog_id, created_at)
-- psql --quiet --no-align --tuples-only --no-psqlrc --file local/transfer/sql/postgresql.sql DATABASE > all.ndjson
\set ON_ERROR_STOP on
\set time '\'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"\''
BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ;

-- A post is named by its author and its number: 1, 2, 3, … in the order of time. A body has at most 65,536 bytes: a
-- longer one is cut to 16,384 characters, which have at most four bytes each.
CREATE TEMPORARY TABLE numbered ON COMMIT DROP AS
    SELECT id, user_id, row_number() OVER (PARTITION BY user_id ORDER BY created_at, id) AS seq FROM blogs;
CREATE UNIQUE INDEX ON numbered (id);
ANALYZE numbered;

SELECT json_build_object('kind', 'profile', 'user', id::text, 'name', left(name, 100),
    'updated_at', to_char(now() AT TIME ZONE 'UTC', :time))
FROM users WHERE name <> '';

SELECT json_build_object('kind', 'post', 'user', user_id::text, 'id', user_id || '-' || seq,
    'title', left(coalesce(nullif(title, ''), '(no title)'), 200),
    'body', CASE WHEN octet_length(content) > 65536 THEN left(content, 16384) ELSE content END,
    'created_at', to_char(created_at AT TIME ZONE 'UTC', :time))
FROM blogs JOIN numbered USING (id, user_id);

SELECT json_build_object('kind', 'follow', 'user', user_id::text, 'author', author_id::text,
    'since', to_char(created_at AT TIME ZONE 'UTC', :time))
FROM follows WHERE user_id <> author_id;

-- Read posts as ranges of numbers: in a run, the number grows as its rank does. The temporary table has statistics.
-- With a subquery instead, two million rows of a table without statistics took more than seven minutes.
CREATE TEMPORARY TABLE read_posts ON COMMIT DROP AS
    SELECT r.user_id AS reader, n.user_id AS author, n.seq FROM blog_reads r JOIN numbered n ON n.id = r.blog_id;
ANALYZE read_posts;

SELECT json_build_object('kind', 'read', 'user', reader::text, 'author', author::text,
    'ranges', json_agg(json_build_array(first, last) ORDER BY first))
FROM (
    SELECT reader, author, min(seq) AS first, max(seq) AS last
    FROM (SELECT *, seq - dense_rank() OVER (PARTITION BY reader, author ORDER BY seq) AS run FROM read_posts) runs
    GROUP BY reader, author, run
) ranges
GROUP BY reader, author;

SELECT json_build_object('kind', 'like', 'user', l.user_id::text, 'post', n.user_id || '-' || n.seq,
    'at', to_char(l.created_at AT TIME ZONE 'UTC', :time))
FROM blog_likes l JOIN numbered n ON n.id = l.blog_id;

COMMIT;
