"""Follow, publish, feed and an error, with the client that openapi-generator made for Python."""

import os
import sys

import openapi_client
from openapi_client import PublishPostRequest

READER, AUTHOR = "1000000101", "1000000201"


def client(user: str) -> openapi_client.ApiClient:
    return openapi_client.ApiClient(openapi_client.Configuration(host=os.environ["TIDEMARK_URL"], access_token=user))


reader, author = client(READER), client(AUTHOR)
openapi_client.RelationsApi(reader).follow(AUTHOR)
post = openapi_client.PostsApi(author).publish_post(PublishPostRequest(title="Hello", data={"topic": "test"}))
assert post.data == {"topic": "test"}, post
page = openapi_client.FeedApi(reader).read_feed()
while not page.items or page.items[0].id != post.id:
    page = openapi_client.FeedApi(reader).read_feed()
assert page.items[0].created_at == post.created_at
print("feed:", page.items[0].id, page.items[0].title, "unread_total:", page.unread_total)
assert openapi_client.PostsApi(reader).get_post(post.id).revision == 1
assert openapi_client.UsersApi(reader).get_user(AUTHOR).profile is None
openapi_client.ReadStateApi(reader).mark_read(openapi_client.MarkReadRequest(openapi_client.MarkPosts(posts=[post.id])))
try:
    openapi_client.RelationsApi(reader).follow(READER)
    sys.exit("the follow of oneself succeeded")
except openapi_client.ApiException as error:
    problem = openapi_client.Problem.from_json(error.body)
    assert problem and (problem.status, problem.type) == (422, "/problems/self-follow"), problem
    print("error:", problem.status, problem.type)
