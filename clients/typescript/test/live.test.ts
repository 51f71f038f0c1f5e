// Live updates on a running stack, whose address is TIDEMARK_URL. `clients/check.sh` starts one.
import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { test, type TestContext } from "node:test";
import { WebSocket as Ws } from "ws";

import { Tidemark, TidemarkProblem, type LiveOptions, type Unread, type UnreadChange } from "../src/index.js";
import { proxy, type Fault } from "./proxy.js";

const stack = process.env["TIDEMARK_URL"] ?? "http://127.0.0.1:3000";

/** A user whom no other test uses. */
function newUser(): string {
  return String(2 ** 40 + randomInt(2 ** 40));
}

async function until(what: string, condition: () => unknown): Promise<void> {
  for (const end = Date.now() + 40_000; Date.now() < end; ) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  assert.fail(`not in time: ${what}`);
}

const isChange = (unread: Unread | undefined): unread is UnreadChange => unread !== undefined && "at" in unread;

/** A reader who follows an author and is live through a proxy, and what the reader is told. */
async function watch(t: TestContext, { faults = [], ...options }: Partial<LiveOptions> & { faults?: Fault[] } = {}) {
  const [readerId, authorId] = [newUser(), newUser()];
  const reader = new Tidemark({ baseUrl: stack, token: readerId });
  const author = new Tidemark({ baseUrl: stack, token: authorId });
  await reader.follow(authorId);
  const { url, seen, tunnels, close } = await proxy(stack, faults);
  const abort = new AbortController();
  const told: Unread[] = [];
  const states: boolean[] = [];
  const ended = new Tidemark({ baseUrl: url, token: readerId }).live({
    onUnread: (unread) => told.push(unread),
    onState: (live) => states.push(live),
    signal: abort.signal,
    ...options,
  });
  ended.catch(() => {});
  t.after(async () => {
    abort.abort();
    await ended.catch(() => {});
    close();
  });
  const connects = () => seen.filter(({ path }) => path.startsWith("/v1/live")).length;
  const tunnel = () => [...tunnels].at(-1)!;
  const total = (count: number) => until(`${count} unread`, () => told.at(-1)?.total === count);
  const state = (...expected: boolean[]) => until(`states ${expected}`, () => states.join().startsWith(expected.join()));
  return { reader, author, authorId, told, states, abort, ended, connects, tunnels, tunnel, total, state };
}

test("counts come first, then what happens elsewhere", async (t) => {
  const { reader, author, authorId, told, total, state } = await watch(t);
  await state(true);
  assert.deepEqual(told, [{ total: 0, authors: [] }]);
  const post = await author.publish({ title: "Hello" });
  await total(1);
  assert.ok(isChange(told[1]));
  const { at, ...change } = told[1];
  assert.deepEqual(change, { total: 1, author: authorId, unread: 1, post: post.id });
  assert.ok(Date.parse(at) >= Date.parse(post.created_at));
  await reader.markRead({ posts: [post.id] });
  await total(0);
  const withdrawn = await author.publish({ title: "Withdrawn" });
  await total(1);
  await author.deletePost(withdrawn.id);
  await total(0);
});

test("a connection that is cut is opened again, and the counts are read", async (t) => {
  const { author, told, tunnel, total, state } = await watch(t);
  await state(true);
  tunnel().cut();
  await state(true, false);
  await author.publish({ title: "Meanwhile" });
  await state(true, false, true);
  await total(1);
  assert.ok(told.slice(1).some((unread) => !isChange(unread)), "all counts are read after the second connect");
  await author.publish({ title: "Afterwards" });
  await total(2);
  assert.ok(isChange(told.at(-1)));
});

test("a connection without a pong is replaced", async (t) => {
  const { author, tunnel, total, state, connects } = await watch(t, { pingMs: 500 });
  await state(true);
  tunnel().silence();
  await state(true, false, true);
  assert.ok(connects() >= 2);
  await author.publish({ title: "Hello" });
  await total(1);
});

test("a handshake that fails is tried again", async (t) => {
  const { state, connects } = await watch(t, { faults: [{ status: 503 }] });
  await state(true);
  assert.equal(connects(), 2);
});

test("a message that comes again later is left out", async (t) => {
  const { author, told, tunnel, total, state } = await watch(t);
  await state(true);
  for (const count of [1, 2]) {
    await author.publish({ title: `Post ${count}` });
    await total(count);
  }
  tunnel().replay();
  await author.publish({ title: "Post 3" });
  await total(3);
  assert.deepEqual(told.filter(isChange).map((change) => change.total), [1, 2, 3]);
});

test("a token that is refused ends the updates with its problem", async (t) => {
  const { url, seen, close } = await proxy(stack, []);
  t.after(close);
  const refused = new Tidemark({ baseUrl: url, token: "nobody" }).live({ onUnread: () => assert.fail("no counts") });
  await assert.rejects(refused, (error) => error instanceof TidemarkProblem && error.status === 401);
  assert.deepEqual(seen.map(({ path }) => path), ["/v1/live?token=nobody", "/v1/unread"]);
});

test("a user who has asked to leave gets no more updates", async (t) => {
  const { reader, ended, state } = await watch(t, { pingMs: 500 });
  await state(true);
  await reader.eraseMe();
  await assert.rejects(ended, (error) => error instanceof TidemarkProblem && error.slug === "erased");
  await state(true, false);
});

test("an abort closes the connection, and no other is opened", async (t) => {
  const { ended, abort, tunnels, state, connects } = await watch(t);
  await state(true);
  abort.abort();
  await ended;
  await until("the connection is closed", () => tunnels.size === 0);
  await state(true, false);
  assert.equal(connects(), 1);
});

test("an error of a callback ends the updates", async (t) => {
  const broken = () => {
    throw new RangeError("broken");
  };
  const { ended, tunnels } = await watch(t, { onUnread: broken });
  await assert.rejects(ended, RangeError);
  await until("the connection is closed", () => tunnels.size === 0);
});

/** Runs without the `WebSocket` of the platform, as Node 20 does without an option. */
async function withoutWebSocket<T>(run: () => Promise<T>): Promise<T> {
  const { WebSocket } = globalThis;
  Reflect.deleteProperty(globalThis, "WebSocket");
  return run().finally(() => Object.assign(globalThis, { WebSocket }));
}

test("a platform without a WebSocket is an error that says what to do", async () => {
  const reader = new Tidemark({ baseUrl: stack, token: newUser() });
  await withoutWebSocket(() => assert.rejects(reader.live({ onUnread: () => {} }), /Node 22.*webSocket: WebSocket/));
});

test("the WebSocket of a package serves on a platform without one", async () => {
  const [readerId, abort] = [newUser(), new AbortController()];
  const reader = new Tidemark({ baseUrl: stack, token: readerId, webSocket: Ws });
  const totals: number[] = [];
  await withoutWebSocket(() =>
    reader.live({ onUnread: ({ total }) => totals.push(total), onState: (live) => live && abort.abort(), signal: abort.signal }),
  );
  assert.deepEqual(totals, [0]);
  const refused = new Tidemark({ baseUrl: stack, token: "nobody", webSocket: Ws }).live({ onUnread: () => {} });
  await assert.rejects(refused, (error) => error instanceof TidemarkProblem && error.status === 401);
});

test("unread notices of the platforms that were asked for, and the inbox, are told", async (t) => {
  const [platform, notices, inbox] = [1 + randomInt(65_535), [] as number[][], [] as number[]];
  const onNotices = (...told: number[]) => notices.push(told);
  const onInbox = (unread: number) => inbox.push(unread);
  const { reader, authorId, state } = await watch(t, { platforms: [platform], onNotices, onInbox, pingMs: 1500 });
  await state(true);
  const operator = new Tidemark({ baseUrl: stack, token: `${authorId} notices:write` });
  await operator.publishNotices({ platforms: [platform], title: "Maintenance" });
  await until("the notice is told", () => notices.length > 0);
  assert.deepEqual(notices[0], [platform, 1]);
  await reader.markNoticesRead({ platform, through: 1 });
  await until("the mark is told", () => notices.at(-1)?.[1] === 0);
  await operator.follow((await reader.getMe()).id);
  await until("the follower is told", () => inbox.at(-1) === 1);
});
