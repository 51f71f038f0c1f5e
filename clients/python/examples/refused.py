"""Each call with a code is wrong, and mypy refuses it with this error. The call above it is right.

tests/test_types.py compares.
"""

from tidemark_client import Tidemark, models


def calls(reader: Tidemark) -> None:
    reader.feed(order="oldest")
    reader.feed(order="newest")  # arg-type: there is no such order
    reader.feed(status="unread")
    reader.feed(stauts="unread")  # call-arg: there is no such option
    reader.like_post("2-1")
    reader.like_post(2)  # arg-type: ids are strings
    reader.publish("Hello")
    reader.publish(body="Hello")  # call-arg: a post has a title
    reader.make_list("Friends", idempotency_key="friends")
    reader.like_post("2-1", idempotency_key="like")  # call-arg: a like needs no key
    reader.mark_read(models.MarkThrough(author="2", through=7))
    reader.mark_read(models.MarkThrough(author="2"))  # call-arg: up to which post?
    items = reader.feed(include="counts").page().items
    reader.feed().items  # attr-defined: a list is no page
    print([(post.likes or 0) + 1 for post in items])
    print([post.likes + 1 for post in items])  # operator: only with `include` there are counts
