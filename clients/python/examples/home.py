import os

from tidemark_client import Tidemark

reader = Tidemark(os.environ.get("TIDEMARK_URL", "http://127.0.0.1:3000"), os.environ.get("TIDEMARK_TOKEN", "1"))
feed = reader.feed(own=True, include="counts")
for post in feed.page().items:
    print(f"{feed.name(post.author)}: {post.title or 'a repost'} ({post.likes} likes, {'read' if post.read else 'unread'})")
for unread in reader.live():
    print(f"{unread.total} unread", flush=True)
