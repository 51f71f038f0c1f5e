// One person or two, the drawer of the system, and the picture of a delivery.

import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "./stack.mjs";
import { BOTH, ONE } from "./view.mjs";

/** As many followers as make an author pulled, and more than a row of dots has. */
const PULLED = 30;

export function modes(size, withPage) {
  const mode = (name, address, run) => test(`${size.width} ${size.scheme}: ${name}`, { timeout: 120_000 }, withPage(size, run, address));
  const clean = async (view, what) => {
    assert.deepEqual(await view.violations(), [], what);
    assert.deepEqual(await view.overflows(), [], `${what} overflows`);
  };

  mode("one person is shown until two are asked for, and only who is shown asks the API", ONE, async ({ stack, view, page, first, second }) => {
    await stack.follow(first, second);
    await stack.follow(second, first);
    const tokens = [], sockets = [];
    page.on("request", (request) => tokens.push(request.headers().authorization));
    page.on("websocket", (socket) => sockets.push(socket));
    const sends = (user) => tokens.includes(`Bearer ${user}`) || sockets.some((socket) => !socket.isClosed() && socket.url().endsWith(`token=${user}`));
    const people = (count) => until(`${count} shown`, async () => (await page.locator("main > section").count()) === count);
    const toggle = page.getByRole("button", { name: "Side by side" });
    const pressed = (is) => page.getByRole("button", { name: "Side by side", pressed: is }).waitFor();

    await page.reload();
    await view.live(0, /^Live$/);
    await page.waitForLoadState("networkidle");
    await people(1);
    assert.equal(sends(first), true);
    assert.equal(sends(second), false);
    assert.equal(await page.locator("#switcher").isVisible(), false);
    await clean(view, "one person");
    await view.tab(0, "Inbox");
    assert.match(page.url(), /#1=inbox$/);

    await view.tabTo("Side by side", -1, "Shift+Tab");
    await page.keyboard.press("Space");
    await people(2);
    assert.match(page.url(), /#1=inbox&2=feed$/);
    await pressed(true);
    await view.live(1, /^Live$/);
    await clean(view, "two people");
    if (view.narrow) {
      assert.equal(await view.section(1).isVisible(), false, "there is room for one");
      await view.choose(1);
      assert.equal(await view.section(1).isVisible(), true);
    }
    // A socket of a page that is left is never reported as closed.
    sockets.length = 0;
    await page.reload();
    await view.identified(1);
    assert.match(page.url(), /#1=inbox&2=feed$/);
    await pressed(true);

    await page.goBack();
    await people(1);
    await pressed(false);
    tokens.length = 0;
    await until("the live connection is closed", () => !sends(second));
    const { id } = await stack.publish(first, "Unseen");
    await stack.call(second, "PUT", `/v1/posts/${id}/like`);
    await view.section(0).getByRole("tab", { name: "Inbox 2" }).waitFor();
    await page.waitForLoadState("networkidle");
    assert.equal(sends(second), false);
    await page.goForward();
    await people(2);
    await view.badge(1, 1);
    await view.choose(1);
    await toggle.click();
    await people(1);
    assert.match(page.url(), /#1=inbox$/);
    assert.equal(await view.section(0).isVisible(), true);
  });

  mode("sample people are shown side by side", ONE, async ({ view, page }) => {
    await view.section(0).getByRole("button", { name: "Fill with sample people" }).click();
    await view.badge(0, 6);
    await view.badge(1, 5);
    assert.match(page.url(), /#1=feed&2=feed$/);
  });

  mode("the system is a drawer that keys open and close, and that moves no post down", ONE, async ({ stack, view, page, first, second }) => {
    await stack.follow(first, second);
    await stack.publish(second, "A post");
    await view.post(0, "A post").waitFor();
    const opener = view.opener(), drawer = view.section(2), { keyboard } = page;
    await opener.waitFor();
    assert.equal(await drawer.isVisible(), false, "it is closed at first");
    await page.waitForLoadState("networkidle");
    const sent = view.requests("/_local/");
    await view.post(0, "A post").getByRole("button", { name: "Like 0" }).click();
    await view.post(0, "A post").getByRole("button", { name: "Like 1" }).waitFor();
    assert.deepEqual(sent, [], "a closed drawer asks nothing");

    const top = async () => (await view.post(0, "A post").boundingBox()).y;
    await view.tabTo("System", -1, "Shift+Tab");
    const before = await top();
    await keyboard.press("Enter");
    await page.getByRole("button", { name: "System", exact: true, expanded: true }).waitFor();
    assert.equal(await opener.getAttribute("aria-controls"), await drawer.getAttribute("id"));
    await drawer.locator(".badge").filter({ hasText: /idle|busy/ }).waitFor();
    assert.equal(await top(), before);
    if (view.narrow) {
      const { x, y, width, height } = await drawer.boundingBox();
      assert.deepEqual([x, width, Math.round(y + height)], [0, 390, 844], "it covers the bottom");
      assert.ok(y > 844 / 3, "and no more than the bottom");
    }
    await clean(view, "the open drawer");
    await view.tabTo("Settings");
    await view.tabTo("Close");
    await keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.dataset.is), "weather");
    await keyboard.press("Escape");
    await drawer.waitFor({ state: "hidden" });
    assert.equal(await opener.evaluate((element) => element === document.activeElement), true, "the focus returns");
    await page.getByRole("button", { name: "System", exact: true, expanded: false }).click();
    await drawer.getByRole("button", { name: "Close" }).click();
    await drawer.waitFor({ state: "hidden" });

    await page.route("**/_local/status", (route) => route.fulfill({ status: 404, json: {} }));
    await page.reload();
    await view.post(0, "A post").waitFor();
    await page.waitForLoadState("networkidle");
    assert.deepEqual([await opener.count(), await drawer.count()], [0, 0]);
  });

  mode("a picture shows whom a post has reached, and when the other heard of it", BOTH, async ({ stack, view, page, first, second, another }) => {
    await stack.follow(first, second);
    await stack.follow(another(), second);
    await view.live(0, /^Live$/);
    const author = await view.publish(1, "Reaching");
    const picture = author.getByRole("img");
    await author.getByRole("img", { name: new RegExp(`^“Reaching”: 2 of 2 followers in .+s\\. .?User ${first}.?, [\\d,]+ ms\\.$`) }).waitFor();
    assert.deepEqual([await picture.locator("circle").count(), await picture.locator(".full").count(), await picture.locator(".reached").count()], [2, 2, 1]);
    assert.match(await picture.locator("text").textContent(), new RegExp(`User ${first}.?, [\\d,]+ ms`));
    await author.getByRole("status").filter({ hasText: /is delivered\. 2 of 2 followers in \d+/ }).waitFor();
    assert.equal(await picture.locator("circle").first().evaluate((dot) => getComputedStyle(dot).transitionDuration), "0s", "nothing moves");
    await clean(view, "the picture");
    await view.publish(1, "The next");
    await author.getByRole("img", { name: "“The next”: 2 of 2" }).waitFor();
    assert.equal(await picture.count(), 1, "it replaces the one before");
    const sent = view.requests("/v1/posts/");
    await author.getByRole("button", { name: "Dismiss the delivery" }).click();
    await picture.waitFor({ state: "detached" });
    assert.equal(await page.evaluate(() => document.activeElement.dataset.is), "posts", "the focus stays in the panel");
    await page.waitForTimeout(500);
    assert.deepEqual(sent, [], "a delivery that is done is not asked for");
  });

  mode("a dot stands for many, and a delivery that lasts is not asked for without end", ONE, async ({ view, page }) => {
    const followers = 1200, delivery = { mode: "push", state: "pending", followers, delivered: 0, pages: 4, pages_done: 0, attempts: 0, started_at: "2026-11-20T08:00:00.000Z", finished_at: null };
    await page.route("**/v1/posts", async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), delivery } });
    });
    let progress = { state: "running", delivered: 610, pages_done: 2 }, asked = 0;
    await page.route("**/v1/posts/*/delivery", (route) => ((asked += 1), route.fulfill({ json: { ...delivery, ...progress } })));
    await page.clock.install();
    const author = await view.publish(0, "Widely read");
    const named = (text) => author.getByRole("img", { name: text }).waitFor();
    await named("“Widely read”: 0 of 1,200 followers. A dot stands for 20.");
    await page.clock.runFor(400);
    await named("“Widely read”: 610 of 1,200 followers. A dot stands for 20.");
    assert.deepEqual([await author.locator("circle").count(), await author.locator("circle.full").count()], [60, 30]);
    await clean(view, "half of a delivery");
    for (let second = 0; second < 40; second += 1) await page.clock.runFor(1000);
    await author.getByRole("button", { name: "Look again" }).waitFor();
    assert.ok(asked <= 25, `asked ${asked} times`);
    const before = asked;
    await page.clock.runFor(10_000);
    assert.equal(asked, before, "it has stopped");
    progress = { state: "done", delivered: followers, pages_done: 4, finished_at: "2026-11-20T08:00:00.800Z" };
    await author.getByRole("button", { name: "Look again" }).click();
    await page.clock.runFor(400);
    await named("“Widely read”: 1,200 of 1,200 followers in 800 ms. A dot stands for 20.");
    assert.equal(await author.locator("circle.full").count(), 60);
    assert.equal(await author.getByRole("button", { name: "Look again" }).isVisible(), false);
  });

  mode("the picture of an author who is pulled says that readers fetch", ONE, async ({ stack, view, first, another }) => {
    for (let reader = 0; reader < PULLED; reader += 1) await stack.follow(another(), first);
    await until("the followers are counted", async () => (await stack.call(first, "GET", "/v1/me")).counters.followers === PULLED);
    await stack.publish(first, "Pushed");
    await stack.idle();
    const author = await view.publish(0, "Pulled");
    await author.getByRole("img", { name: `“Pulled”: ${PULLED} followers: readers fetch it when they read.` }).waitFor();
    await author.locator(".delivery").filter({ hasText: "is published" }).waitFor();
    assert.equal(await author.locator("circle.full").count(), 0);
    await clean(view, "a pulled post");
  });
}
