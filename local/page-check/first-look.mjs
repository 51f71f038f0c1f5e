// What a stranger meets: each of these was a fault once.

import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "./stack.mjs";

const IDLE_MS = 60_000;

export function firstLook(size, withPage) {
  const look = (name, run) => test(`${size.width} ${size.scheme}: ${name}`, { timeout: 180_000 }, withPage(size, run));
  const once = size.width === 1280 ? look : () => {};

  look("the first post waits for no live channel, and the feed for no other response", async ({ stack, view, page, first, second }) => {
    await stack.follow(first, second);
    await stack.publish(second, "First");
    await view.badge(0, 1);
    await page.addInitScript(() => {
      new MutationObserver(() => {
        if (document.querySelector(".posts article")) globalThis.firstPost ??= Math.round(performance.now());
      }).observe(document, { childList: true, subtree: true });
    });
    let channel;
    await page.routeWebSocket(/\/live/, (socket) => channel(socket));
    const took = {};
    for (const [name, behaviour] of Object.entries({
      well: (socket) => socket.connectToServer(),
      silent: () => {},
      refused: (socket) => socket.close(),
    })) {
      channel = behaviour;
      await page.reload();
      await page.waitForFunction(() => globalThis.firstPost, null, { timeout: 8_000 });
      took[name] = await page.evaluate(() => globalThis.firstPost);
    }
    const calls = await page.evaluate(() => performance.getEntriesByType("resource").filter(({ name }) => name.includes("/v1/"))
      .map(({ name, startTime, responseEnd }) => ({ name, startTime, responseEnd })));
    const earliest = Math.min(...calls.map((call) => call.responseEnd));
    assert.ok(calls.filter(({ name }) => name.includes("/v1/feed")).some((call) => call.startTime < earliest), "the feed is asked for at once");
    console.log(`! ms to the first post, ${size.width}: ${JSON.stringify(took)}`);
  });

  look("sixty unread authors take one line, and a list shows its own", async ({ stack, view, first, second }) => {
    const authors = Array.from({ length: 60 }, (_, index) => String(first * 1000 + index));
    await stack.call(first, "POST", "/v1/following", { authors: authors.slice(0, 50) });
    await stack.call(first, "POST", "/v1/following", { authors: [...authors.slice(50), String(second)] });
    const reader = await view.choose(0);
    const readAll = reader.locator("[data-is=readAll]");
    const place = async () => Math.round((await readAll.boundingBox()).y - (await reader.boundingBox()).y);
    assert.equal(await readAll.isDisabled(), true, "nothing is unread");
    const before = await place();
    for (const author of authors) await stack.publish(author, `By ${author}`);
    await view.badge(0, 60);
    await view.post(0, `By ${authors.at(-1)}`).waitFor();
    assert.equal(await readAll.isDisabled(), false);
    assert.equal(await place(), before, "the button stays where it is");
    const top = async () => (await view.feed(0).boundingBox()).y - (await reader.boundingBox()).y;
    assert.ok((await top()) < 420, `the first post begins at ${await top()}`);
    await reader.getByRole("button", { name: "57 more" }).click();
    await reader.locator(".chips").getByText(`User ${authors[0]}`).waitFor();
    assert.ok((await top()) < 560, `with all authors, the first post begins at ${await top()}`);

    const { id } = await stack.call(first, "POST", "/v1/lists", { name: "Few" });
    for (const author of [authors[3], String(second)]) await stack.call(first, "PUT", `/v1/lists/${id}/authors/${author}`);
    await view.choice(0, "From", { label: "Few" });
    await view.shows(0, `By ${authors[3]}`);
    await until("the authors of the list", async () => (await reader.locator(".chips li").allInnerTexts()).length === 1);
    assert.match(await reader.locator(".chips").innerText(), new RegExp(`^User ${authors[3]}\\s*1$`));
    // The rest is not of the list, so it stays unread.
    await readAll.click();
    await view.says(0, "1 marked read.");
    await view.badge(0, 59);
    await until("nothing of the list is unread", () => readAll.isDisabled());
  });

  look("a name leads to its author, who has posts, followers and an address", async ({ stack, view, page, first, second }) => {
    await stack.call(second, "PUT", "/v1/me/profile", { name: "Grace Hopper", handle: `grace_${second}`, bio: "Writes compilers." });
    await stack.follow(first, second);
    const { id } = await stack.publish(second, "Compilers");
    await stack.call(first, "PUT", `/v1/posts/${id}/like`);
    await page.waitForFunction(() => document.title === "(1) Tidemark");
    await page.reload();
    const reader = await view.choose(0);
    await view.post(0, "Compilers").getByRole("link", { name: "Grace Hopper" }).click();
    await reader.getByText("Writes compilers.").waitFor();
    await reader.getByRole("heading", { name: "Compilers" }).filter({ visible: true }).waitFor();
    assert.match(page.url(), new RegExp(`#1=authors/${second}`));
    await reader.getByRole("link", { name: "1 follower", exact: true }).filter({ visible: true }).last().click();
    await reader.locator("[data-is=relations]").getByRole("link", { name: `User ${first}` }).waitFor();
    await page.reload();
    await view.choose(0);
    await reader.locator("[data-is=relations]").getByRole("link", { name: `User ${first}` }).waitFor();
    await page.goBack();
    await reader.locator("[data-is=timeline]").getByText("Compilers").waitFor();
    await page.goBack();
    await view.post(0, "Compilers").waitFor();
    await view.post(0, "Compilers").getByRole("button", { name: "Compilers" }).click();
    await view.post(0, "Compilers").getByRole("button", { name: "1 like" }).click();
    await view.post(0, "Compilers").getByRole("list", { name: "likes" }).getByRole("link", { name: `User ${first}` }).waitFor();
    await page.waitForFunction(() => document.title === "Tidemark");
    await view.tab(0, "People");
    assert.match(page.url(), /#1=people/);
    await view.post(0, "Compilers").waitFor({ state: "hidden" });
  });

  look("a person's own post appears when it is published", async ({ view }) => {
    await view.publish(0, "Of my own");
    await view.shows(0, "Of my own");
  });

  look("an error stays where it was made, and a bad token is told once", async ({ view, page, first }) => {
    await view.follow(0, first);
    const reader = view.section(0);
    const error = reader.getByRole("alert").filter({ hasText: "Users cannot follow themselves" });
    await error.waitFor();
    await view.tab(0, "Feed");
    await error.waitFor({ state: "hidden" });
    await view.tab(0, "People");
    await error.waitFor();
    await view.settings({ "Token of the first person": "nobody" });
    await view.choose(0);
    await reader.getByText("This token is not accepted").waitFor();
    await reader.getByRole("button", { name: "Open settings" }).waitFor();
    assert.equal(await reader.getByLabel("Title", { exact: true }).isVisible(), false, "nothing can be published");
    await page.locator("#connection").filter({ hasText: "Token refused" }).waitFor();
    await view.identified(1);
    assert.equal(await view.section(1).locator("h2").textContent(), await view.section(1).getAttribute("aria-label"));
  });

  look("a handle is found as it is written, and a wrong id is refused", async ({ stack, view, first, second, another }) => {
    await stack.call(second, "PUT", "/v1/me/profile", { name: "Grace Hopper", handle: `grace_${second}` });
    await view.follow(0, `@Grace_${second}`);
    await view.says(0, "You follow Grace Hopper.");
    const number = another();
    await view.follow(0, `@${number}`);
    await view.says(0, "with a letter");
    await view.follow(0, number);
    await view.says(0, `User ${number} has no profile, no posts and no followers.`);
    assert.equal((await stack.call(first, "GET", `/v1/relations/${number}`)).following, false);
    await stack.publish(number, "A trace");
    await until("the post is counted", async () => (await stack.call(first, "GET", `/v1/users/${number}/counters`)).posts === 1);
    await view.follow(0, number);
    await view.says(0, `You follow User ${number}.`);
  });

  look("a rank is a place, and a closed post shows how its text begins", async ({ stack, view, first, second }) => {
    await stack.follow(first, second);
    const text = "A text that goes on and on. ".repeat(20);
    await stack.publish(second, "Long", text);
    await stack.publish(second, "Short");
    await stack.idle();
    await view.choose(0);
    await view.post(0, "Long").getByText("A text that goes on").waitFor();
    const height = async () => (await view.post(0, "Long").boundingBox())?.height;
    const closed = await height();
    await view.post(0, "Long").getByRole("button", { name: "Long" }).click();
    await until("the text is there", async () => (await height()) > closed + 100);
    await view.choice(0, "Order", "ranked");
    await view.post(0, "#1").waitFor();
    await view.post(0, "#2").waitFor();
    assert.doesNotMatch(await view.feed(0).innerText(), /\d{4,}\.\d/);
  });

  look("a block is behind a menu and asks first, and the live state has company", async ({ stack, view, page, first, second }) => {
    await stack.follow(first, second);
    await page.reload();
    const reader = await view.tab(0, "People");
    const row = reader.locator("[data-is=following] > li");
    await row.waitFor();
    const block = row.getByRole("button", { name: `Block User ${second}` });
    assert.equal(await block.isVisible(), false, "the menu is closed");
    const [name, button] = await Promise.all([row.locator(".name"), row.getByRole("button", { name: "Unfollow" })].map((one) => one.boundingBox()));
    assert.ok(button.y < name.y + name.height, "a row is not wrapped");
    await row.getByLabel(`More about User ${second}`).click();
    await block.click();
    await page.getByRole("dialog").getByText(`Block User ${second}?`).waitFor();
    await view.confirm("Cancel");
    assert.equal((await stack.call(first, "GET", `/v1/relations/${second}`)).following, true);
    await row.getByLabel(`More about User ${second}`).click();
    await block.click();
    await view.confirm("Block");
    await view.says(0, "is blocked");
    const [live, about] = await Promise.all(["live", "about"].map((part) => reader.locator(`[data-is=${part}]`).boundingBox()));
    assert.ok(live.y < about.y + about.height && about.y < live.y + live.height, "the state is beside other text");
  });

  look("names of any script and length keep to their place", async ({ stack, view, page, first, second }) => {
    const arabic = "مرحبا ".repeat(16).trim(), long = "Wolfeschlegelsteinhausenbergerdorff ".repeat(3).slice(0, 100);
    await stack.call(first, "PUT", "/v1/me/profile", { name: arabic });
    await stack.call(second, "PUT", "/v1/me/profile", { name: long });
    await stack.follow(first, second);
    await stack.publish(second, arabic, arabic);
    await page.reload();
    const reader = await view.choose(0);
    const post = view.post(0, "مرحبا");
    await post.waitFor();
    const direction = (locator) => locator.evaluate((element) => getComputedStyle(element).direction);
    assert.equal(await direction(reader.getByRole("heading", { level: 2 })), "rtl");
    assert.equal(await direction(post.getByRole("button", { name: "مرحبا" }).first()), "rtl");
    assert.equal(await direction(post.locator(".text")), "rtl");
    assert.equal(await direction(post.getByRole("link", { name: "Wolfe" })), "ltr");
    for (const name of [reader.getByRole("heading", { level: 2 }), post.getByRole("link", { name: "Wolfe" })]) {
      const box = await name.boundingBox();
      assert.ok(box.height <= 48, `a name is ${box.height} px high`);
    }
    assert.deepEqual(await view.overflows(), []);
  });

  look("few stops of the Tab key, a skip link, and targets that a finger hits", async ({ stack, view, page, first, second }) => {
    await stack.follow(first, second);
    for (let index = 0; index < 20; index += 1) await stack.publish(second, `Post ${index}`, "Text");
    await view.badge(0, 20);
    await view.choose(0);
    await page.evaluate(() => (document.activeElement.blur(), scrollTo(0, 0)));
    await page.reload();
    await view.post(0, "Post 19").waitFor();
    await page.keyboard.press("Tab");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), `Skip to User ${second}`);
    let stops = 1;
    const outside = () => page.evaluate(() => {
      const panels = [...document.querySelectorAll("main > section")];
      return document.activeElement === document.body || panels[1].contains(document.activeElement) || panels[2]?.contains(document.activeElement);
    });
    for (; !(await outside()); stops += 1) await page.keyboard.press("Tab");
    // A narrow window has a switcher before the first person, and shows no second.
    assert.ok(stops - 1 <= (view.narrow ? 22 : 20), `${stops - 1} stops`);
    console.log(`! stops of the Tab key before the second person, ${size.width}: ${stops - 1}`);
    await view.post(0, "Post 19").getByRole("button", { name: "Post 19" }).focus();
    await page.keyboard.press("ArrowDown");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), "Post 18");
    await page.locator("#skip").focus();
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement.textContent), `User ${second}`);
    if (view.narrow) await view.choose(0);
    await view.post(0, "Post 19").getByRole("button", { name: "Post 19" }).click();
    await view.post(0, "Post 19").getByRole("button", { name: "Send" }).waitFor();
    for (const tab of ["Feed", "People", "Notices", "Profile"]) {
      const section = await view.tab(0, tab);
      if (tab === "People") await section.locator("[data-is=following] > li").waitFor();
      const small = await page.evaluate((least) => [...document.querySelectorAll("a, button, input, select, textarea, summary")]
        .filter((element) => element.checkVisibility() && element.id !== "skip")
        .map((element) => [element.closest("label.row") ?? element, element])
        .map(([target, element]) => ({ box: target.getBoundingClientRect(), element }))
        .filter(({ box }) => box.width < 32 || box.height < least)
        .map(({ box, element }) => `${element.outerHTML.slice(0, 90)} ${Math.round(box.width)}x${Math.round(box.height)}`), view.narrow ? 44 : 32);
      assert.deepEqual(small, [], tab);
    }
  });

  look("an empty page offers people, whom the demo has too", async ({ stack, view, page, first, second }) => {
    const reader = await view.choose(0);
    await reader.getByRole("button", { name: `Follow User ${second}` }).waitFor();
    await reader.getByRole("button", { name: "Fill with sample people" }).click();
    await reader.getByRole("heading", { name: "Rita", level: 2 }).waitFor();
    await view.badge(0, 6);
    await view.badge(1, 5);
    const titles = "Low water, long walk|Knots I use every day|Salt, and how to keep it out|What the gauge says|A notebook of small boats|High water at six";
    await until("the posts", async () => (await view.titles(0)).slice(0, 6).join("|") === titles);
    await view.post(0, "High water at six").first().getByRole("button", { name: "Like 2" }).waitFor();
    await view.publish(1, "From Sam");
    await view.badge(0, 7);
    // `make demo` prints such a link.
    await page.goto(`${stack.url}/#people=${second},${first}`);
    await view.section(0).getByRole("heading", { name: "Sam", level: 2 }).waitFor({ state: "attached" });
    await view.section(1).locator("h2").filter({ hasText: "Rita" }).waitFor({ state: "attached" });
  });

  once("an idle page sends at most four requests a minute", async ({ stack, view, page }) => {
    await view.live(0, /^Live$/);
    await view.live(1, /^Live$/);
    await (await view.choose(2)).locator(".badge").filter({ hasText: "idle" }).waitFor();
    await stack.idle();
    await page.waitForLoadState("networkidle");
    const sent = view.requests();
    const end = Date.now() + IDLE_MS;
    await until("a minute has passed", () => Date.now() > end, 70);
    console.log(`! requests of an idle page in a minute: ${sent.length} (${sent.join(", ")})`);
    assert.ok(sent.length <= 4, sent.join(", "));
  });

  look("marking all read leaves what the page has not shown", async ({ stack, view, page, first, second }) => {
    const hold = async (path) => {
      const held = [];
      await page.route(path, (route) => held.push(route));
      return { go: async () => (await Promise.all(held.splice(0).map((route) => route.continue())), page.unroute(path)) };
    };
    await stack.follow(first, second);
    await stack.publish(second, "Shown");
    await view.badge(0, 1);
    const reader = await view.choose(0);
    await view.post(0, "Shown").waitFor();
    // The page hears of the next post, but does not get it yet.
    const feed = await hold("**/v1/feed?**");
    await stack.publish(second, "Not shown");
    await view.badge(0, 2);
    await reader.getByRole("button", { name: "Mark all read", exact: true }).filter({ visible: true }).click();
    await view.badge(0, 1);
    await feed.go();
    await view.shows(0, "Not shown", "Shown");
    await view.post(0, "Not shown").getByRole("button", { name: "Mark read" }).waitFor();

    // Nor does the inbox mark an act that arrives between its page and the click.
    await stack.follow(second, first);
    const { id } = await stack.publish(first, "Liked");
    await view.tab(0, "Inbox");
    await reader.locator("[data-is=inbox] > li").filter({ hasText: "followed you" }).waitFor();
    const inbox = await hold("**/v1/inbox?**");
    await stack.call(second, "PUT", `/v1/posts/${id}/like`);
    await reader.getByRole("tab", { name: "Inbox 2" }).waitFor();
    await reader.getByRole("button", { name: "Mark all read", exact: true }).filter({ visible: true }).click();
    await inbox.go();
    await reader.getByRole("tab", { name: "Inbox 1" }).waitFor();
    await reader.locator("[data-is=inbox] > li").filter({ hasText: "liked your post" }).getByRole("button", { name: "Mark read" }).waitFor();
  });
}
