import { Tidemark } from "tidemark-client";

const { TIDEMARK_URL: baseUrl = "http://127.0.0.1:3000", TIDEMARK_TOKEN: token = "1" } = process.env;
const reader = new Tidemark({ baseUrl, token });
const feed = reader.feed({ own: true, include: "counts" });
for (const post of (await feed.page()).items) {
  console.log(`${feed.name(post.author)}: ${post.title ?? "a repost"} (${post.likes} likes, ${post.read ? "read" : "unread"})`);
}
await reader.live({ onUnread: ({ total }) => console.log(`${total} unread`) });
