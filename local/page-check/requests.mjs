// What the screens of the page cost: requests of the API, and round trips, which are requests that wait for a response.

import assert from "node:assert/strict";
import { test } from "node:test";

/** The most requests and round trips of a screen. */
const MOST = {
  // The posts wait for two of them at once. The third reads the authors with unread posts, once the live channel is open.
  home: [3, 2],
  profile: [2, 1],
  followers: [1, 1],
  post: [2, 1],
  "who liked": [1, 1],
  inbox: [2, 2],
  notices: [1, 1],
  people: [6, 1],
};

export function requests(size, withPage) {
  test(`${size.width} ${size.scheme}: screens cost few requests and round trips`, { timeout: 120_000 }, withPage(size, async ({ stack, view, page, first, second }) => {
    await stack.follow(first, second);
    await stack.follow(second, first);
    const { id } = await stack.publish(second, "A post", "Text");
    const mine = await stack.publish(first, "Mine");
    for (const [user, post] of [[first, id], [second, id], [second, mine.id]]) await stack.call(user, "PUT", `/v1/posts/${post}/like`);
    await stack.call(first, "PUT", `/v1/posts/${id}/read`);
    await stack.call(second, "POST", `/v1/posts/${id}/comments`, { text: "By the author" });
    await stack.call(`${first} notices:write`, "POST", "/v1/notices", { platforms: [1], title: "A notice" });
    await stack.idle();
    const calls = [], found = {};
    page.on("request", (request) => {
      // Those of the second person are of another screen.
      if (new URL(request.url()).pathname.startsWith("/v1/") && request.headers().authorization === `Bearer ${first}`) calls.push({ request, end: Infinity, start: performance.now() });
    });
    page.on("requestfinished", (request) => {
      const call = calls.find((other) => other.request === request);
      if (call) call.end = performance.now();
    });
    const measure = async (screen, open, shown) => {
      await page.waitForLoadState("networkidle");
      calls.length = 0;
      await open();
      await shown.waitFor();
      const sent = [...calls];
      const depth = (call) => 1 + Math.max(0, ...sent.filter((other) => other.end <= call.start).map(depth));
      found[screen] = [sent.length, Math.max(...sent.map(depth)), sent.map(({ request }) => new URL(request.url()).pathname)];
    };
    const reader = view.section(0);
    const visible = (text) => reader.getByText(text, { exact: true }).filter({ visible: true }).first();
    const tab = (name) => () => reader.getByRole("tab", { name }).click();
    await view.choose(0);
    await measure("home", () => page.reload({ waitUntil: "commit" }), view.post(0, "A post"));
    await view.live(0, /^Live$/);
    await measure("profile", () => view.post(0, "A post").locator("> a").click(), reader.locator("[data-is=timeline]").getByText("A post"));
    await measure("followers", () => reader.locator("[data-is=listsOfAuthor] a").nth(1).click(), reader.locator("[data-is=relations] > li").first());
    await tab("Feed")();
    await measure("post", async () => {
      await view.post(0, "A post").getByLabel("More about").click();
      await view.post(0, "A post").getByRole("link", { name: "Open" }).click();
    }, visible("By the author"));
    await measure("who liked", () => reader.locator("[data-is=post]").getByRole("button", { name: "2 likes" }).click(), reader.getByRole("list", { name: "likes" }));
    await measure("inbox", tab("Inbox"), reader.locator("[data-is=inbox] > li").first());
    // The live channel tells the number once, and an open screen reads its notices again then.
    await reader.getByRole("tab", { name: /^Notices \d/ }).waitFor();
    await measure("notices", tab("Notices"), visible("A notice"));
    await measure("people", tab("People"), reader.locator("[data-is=following] > li").first());
    console.log(`! requests and round trips, ${size.width}: ${JSON.stringify(Object.fromEntries(Object.entries(found).map(([screen, [count, trips]]) => [screen, [count, trips]])))}`);
    for (const [screen, [count, trips]] of Object.entries(MOST)) {
      assert.ok(found[screen][0] <= count && found[screen][1] <= trips, `${screen}: ${JSON.stringify(found[screen])}`);
    }
  }));
}
