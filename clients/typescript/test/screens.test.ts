// On a running stack, whose address is TIDEMARK_URL: the requests that a screen needs, and the example of a home screen.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { before, test } from "node:test";

import { Tidemark } from "../src/index.js";

const stack = process.env["TIDEMARK_URL"] ?? "http://127.0.0.1:3000";
const app = process.env["TIDEMARK_APP"] ?? assert.fail("TIDEMARK_APP is not set");
const table = readFileSync(new URL("../../../../docs/clients.md", import.meta.url), "utf8");

const [readerId, adaId, bobId] = [0, 1, 2].map(() => String(2 ** 40 + randomInt(2 ** 40))) as [string, string, string];
const platform = 1 + randomInt(65_535);
const [ada, bob] = [adaId, bobId].map((user) => new Tidemark({ baseUrl: stack, token: `${user} notices:write` })) as [Tidemark, Tidemark];
let [requests, trips, responded] = [0, 0, true];

/** Requests that begin before a response to one of them is there are one round trip. */
async function counted(request: Request): Promise<Response> {
  requests++;
  if (responded) trips++;
  responded = false;
  const response = await fetch(request);
  responded = true;
  return response;
}

const reader = new Tidemark({ baseUrl: stack, token: readerId, fetch: counted });
let post: string;

before(async () => {
  await ada.setProfile({ name: "Ada", handle: `ada_${adaId}` });
  await bob.setProfile({ name: "Bob" });
  await reader.setProfile({ name: "Reader" });
  for (const author of [adaId, bobId]) await reader.follow(author);
  await bob.follow(adaId);
  ({ id: post } = await ada.publish({ title: "Hello" }));
  await bob.likePost(post);
  await bob.writeComment(post, { text: "Welcome" });
  await ada.publishNotices({ platforms: [platform], title: "Maintenance", body: "At noon" });
  while ((await reader.unread()).total !== 1);
});

/** Shows a screen, and compares what it took with the table in docs/clients.md. */
async function screen(name: string, show: () => Promise<void>): Promise<void> {
  [requests, trips, responded] = [0, 0, true];
  await show();
  const row = table.split("\n").find((line) => line.startsWith(`| ${name} |`)) ?? assert.fail(`no row for ${name}`);
  assert.deepEqual(row.split("|").slice(-4, -2).map(Number), [requests, trips], `docs/clients.md: ${row}`);
}

test("home", () =>
  screen("home", async () => {
    const feed = reader.feed({ own: true, include: "counts" });
    const [me, page] = await Promise.all([reader.getMe(), feed.page()]);
    assert.deepEqual([me.profile?.name, me.inbox_unread, page.unread_total], ["Reader", 0, 1]);
    assert.deepEqual(page.items.map((it) => [feed.name(it.author), it.title, it.likes, it.comments]), [["Ada", "Hello", 1, 1]]);
  }));

test("profile", () =>
  screen("profile", async () => {
    const [ofAda, posts] = await Promise.all([reader.getUser(adaId), reader.posts(adaId, { include: "counts" }).page()]);
    assert.deepEqual([ofAda.profile?.name, ofAda.counters.followers, ofAda.relation.following], ["Ada", 2, true]);
    assert.deepEqual(ofAda.known_followers.users.map((user) => ofAda.profiles?.[user]?.name), ["Bob"]);
    assert.deepEqual(posts.items.map((it) => [it.title, it.likes]), [["Hello", 1]]);
  }));

test("profile by handle", () =>
  screen("profile by handle", async () => {
    const { id } = await reader.getUserByHandle(`ada_${adaId}`);
    assert.equal((await reader.posts(id, { include: "counts" }).page()).items.length, 1);
  }));

test("followers", () =>
  screen("followers", async () => {
    const followers = reader.listFollowers(adaId, { relation: true });
    const { items } = await followers.page();
    const shown = items.map((it) => [followers.name(it.user), it.relation?.following]);
    assert.deepEqual(shown, [["Bob", true], ["Reader", false]]);
  }));

test("post", () =>
  screen("post", async () => {
    const [comments, likes] = [reader.listComments(post), reader.listPostLikes(post)];
    const [shown, { items }, { items: likers }] = await Promise.all([reader.getPost(post), comments.page(), likes.page()]);
    assert.deepEqual([shown.profiles?.[shown.author]?.name, shown.likes, shown.comments], ["Ada", 1, 1]);
    assert.deepEqual(items.map((it) => [comments.name(it.author), it.text]), [["Bob", "Welcome"]]);
    assert.deepEqual(likers.map((it) => likes.name(it.user)), ["Bob"]);
  }));

test("notices", () =>
  screen("notices", async () => {
    const [page, counts] = await Promise.all([
      reader.listNotices(platform, { include: "body" }).page(),
      reader.countNotices([platform]),
    ]);
    assert.deepEqual(page.items.map((it) => [it.title, it.body, it.read]), [["Maintenance", "At noon", false]]);
    assert.equal(counts.unread, 1);
  }));

test("the example of a home screen shows names, likes and live counts", async (t) => {
  const env = { ...process.env, TIDEMARK_URL: stack, TIDEMARK_TOKEN: readerId };
  const home = spawn(process.execPath, ["--experimental-websocket", `${app}/home.js`], { env, stdio: ["ignore", "pipe", "inherit"] });
  t.after(() => home.kill());
  const lines = createInterface({ input: home.stdout })[Symbol.asyncIterator]();
  /** A count may be told twice. */
  const until = async (expected: string, before?: string) => {
    let line;
    do line = (await lines.next()).value as string | undefined;
    while (line === before);
    assert.equal(line, expected);
  };
  await until("Ada: Hello (1 likes, unread)");
  await until("1 unread");
  await ada.publish({ title: "Again" });
  await until("2 unread", "1 unread");
  await reader.markRead({ all: true });
  await until("0 unread", "2 unread");
});
