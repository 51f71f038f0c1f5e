// A stack that is called from another origin: by the page on a static host, and by the TypeScript client.

import assert from "node:assert/strict";
import { test } from "node:test";
import { BOTH, View } from "./view.mjs";

/** `context()` returns `{ browser, stack, host, another }`. The stack allows the host's origin. */
export function origins(context) {
  for (const width of [1280, 390]) {
    test(`${width}: the page on a static host uses a stack elsewhere`, { timeout: 120_000 }, async () => {
      const { browser, stack, host, another } = context();
      const [first, second] = [another(), another()];
      const view = await View.open(browser, `${host.url}/page${BOTH}`, { width, scheme: "light" }, first, second, stack.url);
      await view.follow(0, second);
      await view.says(0, `You follow User ${second}.`);
      await view.tab(0, "Feed");
      await view.publish(1, "From elsewhere");
      await view.badge(0, 1);
      await view.choose(0);
      await view.shows(0, "From elsewhere");
      await view.follow(0, first);
      await view.says(0, "Users cannot");
      assert.equal(await view.page.locator("#connection").textContent(), "Connected");
      await view.close();
    });
  }

  test("the TypeScript client in a browser calls a stack elsewhere", { timeout: 120_000 }, async () => {
    const { browser, stack, host, another } = context();
    const page = await (await browser.newContext()).newPage();
    await page.goto(host.url);
    const users = { baseUrl: stack.url, reader: String(another()), author: String(another()), stranger: String(another()) };
    const found = await page.evaluate(async ({ baseUrl, reader: readerId, author: authorId, stranger }) => {
      const { Tidemark, TidemarkProblem } = await import("/client/index.js");
      let headers;
      const send = async (request) => {
        const response = await fetch(request);
        headers = Object.fromEntries(response.headers);
        return response;
      };
      const client = (token) => new Tidemark({ baseUrl, token, fetch: send, retries: { limit: 0 } });
      const problem = (call) => call.then(() => undefined, (error) => error instanceof TidemarkProblem ? error : Promise.reject(error));
      const [reader, author] = [client(readerId), client(authorId)];

      const { following } = await reader.follow(authorId);
      const totals = [], end = new AbortController();
      const onUnread = ({ total }) => totals.push(total);
      let ended;
      await new Promise((onState) => (ended = reader.live({ onUnread, onState, signal: end.signal })));
      const { id: published } = await author.publish({ title: "Hello" });
      await author.publish({ title: "Again" });
      let items = [];
      while (items.length < 2) items = await reader.feed().take();
      const feed = items.map(({ id, title }) => [id, title]);
      while (totals.at(-1) !== 2) await new Promise((done) => setTimeout(done, 50));
      end.abort();
      await ended;
      for await (const _ of reader.feed({ limit: 1 }).pages()) break;
      const { link } = headers;
      await reader.unread();
      const { etag } = headers;

      const self = await problem(reader.follow(readerId));
      const unauthorized = await problem(client("nobody").unread());
      const busy = client(stranger);
      let limited;
      while (!limited) limited = await problem(busy.likePost(published));
      return {
        following, published, feed, link, etag, totals,
        self: [self.status, self.slug], unauthorized: [unauthorized.status, unauthorized.slug],
        limited: [limited.status, limited.slug, limited.retryAfter], waits: headers["retry-after"],
      };
    }, users);
    await page.context().close();

    const { author } = users;
    assert.equal(found.following, true);
    assert.equal(found.published, `${author}-1`);
    assert.deepEqual(found.feed, [[`${author}-2`, "Again"], [`${author}-1`, "Hello"]]);
    assert.deepEqual([found.totals[0], found.totals.at(-1)], [0, 2]);
    assert.match(found.link, /<.*\/v1\/feed\?.*cursor=.*>; rel="?next"?/);
    assert.match(found.etag, /^(W\/)?".+"$/);
    assert.deepEqual(found.self, [422, "self-follow"]);
    assert.deepEqual(found.unauthorized, [401, "unauthorized"]);
    assert.deepEqual(found.limited, [429, "too-many-requests", Number(found.waits)]);
    assert.ok(found.limited[2] > 0);
  });
}
