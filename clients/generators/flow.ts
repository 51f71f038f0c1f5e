// Follow, publish, feed and an error, with the client that openapi-generator made for TypeScript (fetch).
import { Configuration, FeedApi, PostsApi, ProblemFromJSON, ReadStateApi, RelationsApi, ResponseError } from "./index.js";

const [readerId, authorId] = ["1000000102", "1000000202"];
const client = (user: string) => new Configuration({ basePath: process.env["TIDEMARK_URL"]!, accessToken: user });
const [reader, author] = [client(readerId), client(authorId)];

await new RelationsApi(reader).follow({ author: authorId });
const post = await new PostsApi(author).publishPost({ publishPostRequest: { title: "Hello", data: { topic: "test" } } });
if ((post.data as { topic?: string }).topic !== "test") throw new Error("data is lost");
let page = await new FeedApi(reader).readFeed();
while (page.items[0]?.id !== post.id) page = await new FeedApi(reader).readFeed();
console.log("feed:", page.items[0].id, page.items[0].title, "unread_total:", page.unreadTotal);
await new ReadStateApi(reader).markRead({ markReadRequest: { posts: [post.id] } });
try {
  await new RelationsApi(reader).follow({ author: readerId });
  throw new Error("the follow of oneself succeeded");
} catch (error) {
  if (!(error instanceof ResponseError)) throw error;
  const problem = ProblemFromJSON(await error.response.json());
  if (problem.status !== 422 || problem.type !== "/problems/self-follow") throw error;
  console.log("error:", problem.status, problem.type);
}
