// On a running stack, whose address is TIDEMARK_URL. `clients/check.sh` starts one.
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { test, type TestContext } from "node:test";

import { Pager, Tidemark, TidemarkProblem, type Retries } from "../src/index.js";
import { proxy, type Fault } from "./proxy.js";

const stack = process.env["TIDEMARK_URL"] ?? "http://127.0.0.1:3000";

/** A user whom no other test uses. */
function newUser(): string {
  return String(2 ** 40 + randomInt(2 ** 40));
}

function client(user: string, retries: Partial<Retries> = {}, baseUrl = stack): Tidemark {
  return new Tidemark({ baseUrl, token: user, retries });
}

/** A client whose requests meet these faults. */
async function faulty(t: TestContext, faults: Fault[], user = newUser(), retries: Partial<Retries> = { baseMs: 5 }) {
  const { url, seen, close } = await proxy(stack, faults);
  t.after(close);
  return { tidemark: client(user, retries, url), seen };
}

async function problem(promise: Promise<unknown>): Promise<TidemarkProblem> {
  return promise.then(
    () => assert.fail("it succeeded"),
    (error: unknown) => (error instanceof TidemarkProblem ? error : assert.fail(String(error))),
  );
}

test("a reader follows an author and reads what the author publishes", async () => {
  const [readerId, authorId] = [newUser(), newUser()];
  const [reader, author] = [client(readerId), client(authorId)];
  assert.equal((await reader.follow(authorId)).following, true);
  const post = await author.publish({ title: "Hello", body: "World", data: { topic: "test" } });
  assert.equal(post.author, authorId);

  let items = await reader.feed().take();
  while (items.length === 0) items = await reader.feed().take();
  assert.deepEqual(items.map((item) => [item.id, item.title, item.read]), [[post.id, "Hello", false]]);
  assert.deepEqual(await reader.unread(), { total: 1, authors: [{ author: authorId, unread: 1 }] });
  assert.deepEqual(await reader.markRead({ posts: [post.id] }), { changed: 1, total: 0 });
  const full = await reader.getPost(post.id);
  assert.deepEqual([full.body, full.data, full.read], ["World", { topic: "test" }, true]);
  assert.equal((await reader.unfollow(authorId)).following, false);
  assert.equal(await author.deletePost(post.id), undefined);
});

test("a pager returns every item of several pages once", async () => {
  const [reader, author] = [client(newUser()), newUser()];
  const publisher = client(author);
  const ids: string[] = [];
  for (let n = 0; n < 7; n++) ids.unshift((await publisher.publish({ title: `Post ${n}` })).id);

  const pager = reader.posts(author, { limit: 3 });
  const read: string[] = [];
  for await (const item of pager) read.push(item.id);
  assert.deepEqual(read, ids);
  const sizes: number[] = [];
  for await (const page of pager.pages()) {
    assert.equal(page.total, 7);
    sizes.push(page.items.length);
  }
  assert.deepEqual(sizes, [3, 3, 1]);
  assert.deepEqual((await pager.take(4)).map((item) => item.id), ids.slice(0, 4));
  for (const user of ["11", "12", "13"]) await reader.mute(user);
  const muted = await reader.listMutes({ limit: 2 }).take();
  assert.deepEqual(muted.map((entry) => entry.user), ["13", "12", "11"]);
});

test("a publish whose response is lost is repeated with the same key and publishes once", async (t) => {
  const author = newUser();
  const { tidemark, seen } = await faulty(t, ["lost"], author);
  const post = await tidemark.publish({ title: "Once" });
  assert.equal(post.seq, 1);
  assert.equal(seen.length, 2);
  assert.ok(seen[0]!.key, "the client makes a key");
  assert.equal(seen[0]!.key, seen[1]!.key);
  assert.deepEqual((await client(author).posts(author).take()).map((item) => item.id), [post.id]);
  await tidemark.publish({ title: "Twice" });
  assert.notEqual(seen[2]!.key, seen[0]!.key, "another call has another key");
});

test("a notice whose response is lost is published once", async (t) => {
  const platform = 1 + randomInt(65_535);
  const { tidemark, seen } = await faulty(t, ["lost"], `${newUser()} notices:write`);
  await tidemark.publishNotices({ platforms: [platform], title: "Maintenance" });
  assert.equal(seen[0]!.key, seen[1]!.key);
  assert.deepEqual((await tidemark.listNotices(platform).take()).map((notice) => notice.title), ["Maintenance"]);
});

const EACH_LOST_ONCE = Array.from({ length: 18 }, (_, at) => (at % 2 === 0 ? "lost" as const : "passed" as const));

test("each other request with a key, whose response is lost, is repeated with the same key and done once", async (t) => {
  const [readerId, author, platform] = [newUser(), newUser(), 1 + randomInt(65_535)];
  const [reader, writer] = [client(readerId), client(`${author} notices:write`)];
  await reader.follow(author);
  await writer.follow(readerId);
  const post = (await writer.publish({ title: "One" })).id;
  const notice = (await writer.publishNotices({ platforms: [platform], title: "Notice" })).items[0]!.id;
  let group: string | undefined;
  while (!group) group = (await reader.getInbox().take())[0]?.id;

  const { tidemark, seen } = await faulty(t, EACH_LOST_ONCE, `${readerId} notices:write`);
  assert.equal((await tidemark.markRead({ all: true })).changed, 1);
  assert.equal((await tidemark.markRead({ author, through: 1 })).changed, 0);
  assert.equal((await tidemark.markNoticesRead({ platform, through: 1 })).changed, 1);
  assert.equal((await tidemark.editNotice(notice, { title: "Again", renotify: true })).title, "Again");
  assert.equal((await tidemark.editNotices([notice], { title: "Once more" })).items.length, 1);
  assert.equal((await tidemark.readInboxGroup(group)).unread, 0);
  assert.equal((await tidemark.readInbox({ before: new Date().toISOString() })).unread, 0);
  await tidemark.makeList({ name: "Friends" });
  await tidemark.writeComment(post, { text: "Welcome" });
  const keys = seen.map((request) => request.key);
  for (let at = 0; at < keys.length; at += 2) assert.ok(keys[at] && keys[at] === keys[at + 1], `request ${at}`);
  assert.deepEqual([keys.length, new Set(keys).size], [18, 9]);
  assert.deepEqual((await reader.listLists().take()).map((list) => list.name), ["Friends"]);
  assert.equal((await reader.listComments(post).page()).total, 1);
});

test("a POST without a key is not repeated after a lost response, and is after a 429", async (t) => {
  const author = newUser();
  const { tidemark, seen } = await faulty(t, ["lost", { status: 429, headers: { "retry-after": "0" } }], author);
  await assert.rejects(tidemark.send("POST", "/v1/posts", {}, { title: "Perhaps" }), TypeError);
  assert.equal(seen.length, 1);
  await tidemark.send("POST", "/v1/posts", {}, { title: "Surely" });
  assert.deepEqual([seen.length, (await client(author).posts(author).take()).length], [3, 2]);
});

for (const status of [429, 503]) {
  test(`a ${status} is retried after Retry-After`, async (t) => {
    const { tidemark, seen } = await faulty(t, [{ status, headers: { "retry-after": "1" } }]);
    assert.equal((await tidemark.unread()).total, 0);
    assert.equal(seen.length, 2);
    assert.ok(seen[1]!.at - seen[0]!.at >= 1000, "not before Retry-After");
  });
}

test("the stack's own 429 is retried, and all requests succeed", async (t) => {
  const { tidemark, seen } = await faulty(t, []);
  const post = await client(newUser()).publish({ title: "Popular" });
  for (let likes = 0; seen.length === likes; likes++) assert.equal((await tidemark.likePost(post.id)).liked, true);
});

test("retries end, with the last problem", async (t) => {
  const fault = { status: 503, headers: { "retry-after": "0" }, body: '{"message":"Service Unavailable"}' };
  const { tidemark, seen } = await faulty(t, [fault, fault, fault], newUser(), { baseMs: 1, limit: 2 });
  const { status, slug, detail } = await problem(tidemark.unread());
  assert.deepEqual([status, slug, detail, seen.length], [503, "unavailable", "Service Unavailable", 3]);
});

test("a Retry-After that is too long is a problem at once", async (t) => {
  const { tidemark, seen } = await faulty(t, [{ status: 429, headers: { "retry-after": "3600" } }]);
  const { slug, retryAfter } = await problem(tidemark.unread());
  assert.deepEqual([slug, retryAfter, seen.length], ["too-many-requests", 3600, 1]);
});

test("an abort ends the wait before a retry", async (t) => {
  const { tidemark, seen } = await faulty(t, [{ status: 503, headers: { "retry-after": "30" } }]);
  const abort = new AbortController();
  const pending = tidemark.unread({ signal: abort.signal });
  const waiting = setInterval(() => seen.length && abort.abort(new Error("enough")), 5);
  await assert.rejects(pending, /enough/);
  clearInterval(waiting);
});

test("a 404, a 422 and a 400 are typed problems", async () => {
  const user = newUser();
  const tidemark = client(user);
  const missing = await problem(tidemark.getPost(`${user}-1`));
  assert.deepEqual([missing.status, missing.type, missing.slug], [404, "/problems/not-found", "not-found"]);
  assert.ok(missing.requestId && missing.title && missing.detail);
  const self = await problem(tidemark.follow(user));
  assert.deepEqual([self.status, self.slug, self.errors], [422, "self-follow", []]);
  const invalid = await problem(tidemark.feed({ limit: 1000 }).take());
  assert.deepEqual([invalid.status, invalid.errors], [400, [{ field: "limit", message: "must be 1 to 100" }]]);
});

test("a token can be a function, and a missing token is a problem", async () => {
  let calls = 0;
  const user = newUser();
  const tidemark = new Tidemark({ baseUrl: stack, token: async () => (calls++, user) });
  assert.equal((await tidemark.getMe()).id, user);
  assert.equal(calls, 1);
  assert.equal((await problem(new Tidemark({ baseUrl: stack }).unread())).slug, "unauthorized");
});

test("a list knows the names of the users on the pages that were requested", async () => {
  const [reader, authors] = [client(newUser()), [newUser(), newUser(), newUser()]];
  for (const [n, author] of authors.slice(0, 2).entries()) await client(author).setProfile({ name: `Author ${n}` });
  for (const author of authors) await client(author).follow(authors[0]!).catch(() => {});
  for (const author of authors) await reader.mute(author);
  const mutes = reader.listMutes({ limit: 1 });
  const names: string[] = [];
  for await (const { user } of mutes) names.push(mutes.name(user));
  assert.deepEqual(names, [authors[2], "Author 1", "Author 0"]);
  assert.deepEqual([...mutes.profiles.keys()], [authors[1], authors[0]]);
  assert.deepEqual((await reader.listMutes({ profiles: false }).page()).profiles, undefined);
});

test("a list begins at a cursor, at an offset, or at what has entered since", async () => {
  const [reader, author] = [client(newUser()), newUser()];
  const publisher = client(author);
  for (let n = 1; n <= 5; n++) await publisher.publish({ title: `Post ${n}` });
  const first = await reader.posts(author, { limit: 2 }).page();
  const rest = await reader.posts(author, { limit: 2, cursor: first.next_cursor! }).take();
  assert.deepEqual(rest.map((post) => post.seq), [3, 2, 1]);
  for (let n = 6; n <= 8; n++) await publisher.publish({ title: `Post ${n}` });
  const since = await reader.posts(author, { limit: 2, since: first.first_cursor! }).take();
  assert.deepEqual(since.map((post) => post.seq), [8, 7, 6]);
  for (const user of ["11", "12", "13", "14"]) await reader.follow(user);
  const me = (await reader.getMe()).id;
  assert.deepEqual((await reader.listFollowing(me, { offset: 1, limit: 1 }).take()).map(({ user }) => user), ["13", "12", "11"]);
});

test("a list keeps the profiles of 10,000 users, and those of its last page", async () => {
  const card = (user: string) => [user, { name: `User ${user}`, handle: null, picture: null }] as const;
  let loaded = 0;
  const list = new Pager(async () => {
    const items = Array.from({ length: 100 }, () => String(++loaded));
    return { items, next_cursor: loaded < 10_100 ? "next" : null, profiles: Object.fromEntries(items.map(card)) };
  });
  for await (const user of list) assert.equal(list.name(user), `User ${user}`);
  assert.deepEqual([loaded, list.profiles.size, list.name("100"), list.name("101")], [10_100, 10_000, "100", "User 101"]);
});
