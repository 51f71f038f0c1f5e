// Each call with a code is wrong, and the compiler refuses it with this error. The call above it is right.
// test/types.test.ts compares.
import { Tidemark } from "tidemark-client";

export async function calls(reader: Tidemark): Promise<void> {
  reader.feed({ order: "oldest" });
  reader.feed({ order: "newest" }); // TS2322: there is no such order
  reader.feed({ status: "unread" });
  reader.feed({ stauts: "unread" }); // TS2561: there is no such option
  await reader.likePost("2-1");
  await reader.likePost(2); // TS2345: ids are strings
  await reader.publish({ title: "Hello" });
  await reader.publish({ body: "Hello" }); // TS2345: a post has a title
  await reader.makeList({ name: "Friends" }, { idempotencyKey: "friends" });
  await reader.likePost("2-1", { idempotencyKey: "like" }); // TS2353: a like needs no key
  await reader.markRead({ author: "2", through: 7 });
  await reader.markRead({ author: "2" }); // TS2345: up to which post?
  const { items } = await reader.feed({ include: "counts" }).page();
  (await reader.feed()).items; // TS2339: a list is no page
  for (const post of items) (post.likes ?? 0).toFixed();
  for (const post of items) post.likes.toFixed(); // TS18048: only with `include` there are counts
}
