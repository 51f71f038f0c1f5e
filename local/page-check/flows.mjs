// What people do with the page.

import assert from "node:assert/strict";
import { test } from "node:test";
import { Gate } from "./gate.mjs";
import { until } from "./stack.mjs";

export function flows(size, withPage) {
  const flow = (name, run) => test(`${size.width} ${size.scheme}: ${name}`, { timeout: 120_000 }, withPage(size, run));

  flow("a follow and a post change the other's badge, and reading lowers it", async ({ view, second }) => {
    await view.follow(0, second);
    await view.says(0, `You follow User ${second}.`);
    await view.tab(0, "Feed");
    const author = await view.publish(1, "Hello", "The first post.");
    await author.locator(".delivery").filter({ hasText: "is delivered. 1 of 1 follower" }).waitFor();
    await view.badge(0, 1);
    const reader = await view.choose(0);
    await reader.locator(".chips").filter({ hasText: `User ${second} 1` }).waitFor();
    await view.post(0, "Hello").getByRole("button", { name: "Hello" }).click();
    await view.post(0, "The first post.").waitFor();
    await view.badge(0, 0);
    await view.post(0, "Hello").getByRole("button", { name: "Mark unread" }).click();
    await view.badge(0, 1);
    await view.publish(1, "Again");
    await view.badge(0, 2);
    await view.shows(0, "Again", "Hello");
    await view.choose(0);
    await view.choice(0, "Show", "unread");
    await reader.getByRole("button", { name: "Mark all read" }).click();
    await view.badge(0, 0);
    await reader.getByText("Nothing is unread.").waitFor();
  });

  flow("what happens elsewhere changes the badge and the feed by live messages alone", async ({ stack, view, first, second }) => {
    await view.live(0, /^Live$/);
    await stack.follow(first, second);
    const reads = view.requests("/v1/unread");
    const { id } = await stack.publish(second, "Elsewhere");
    await view.badge(0, 1);
    await view.shows(0, "Elsewhere");
    await stack.call(first, "PUT", `/v1/posts/${id}/read`);
    await view.badge(0, 0);
    await view.choose(0);
    await view.post(0, "Elsewhere").getByRole("button", { name: "Mark unread" }).waitFor();
    const later = await stack.publish(second, "Withdrawn");
    await view.badge(0, 1);
    await stack.call(second, "DELETE", `/v1/posts/${later.id}`);
    await view.badge(0, 0);
    await view.shows(0, "Elsewhere");
    assert.deepEqual(reads, []);
  });

  flow("a live connection that is cut is shown as down, and opened again", async ({ stack, view, page, first, second }) => {
    const gate = await new Gate(stack.url).open();
    try {
      await view.settings({ "Live address": gate.live });
      await view.live(0, /^Live$/);
      await view.live(1, /^Live$/);
      await stack.follow(first, second);
      gate.close();
      await view.live(0, "Reconnecting…");
      await view.live(1, "Reconnecting…");
      assert.equal(await page.locator("#connection").textContent(), "Connected");
      await stack.publish(second, "Meanwhile");
      await gate.open();
      await view.live(0, /^Live$/);
      await view.live(1, /^Live$/);
      await view.badge(0, 1);
      const reads = view.requests("/v1/unread");
      await stack.publish(second, "Afterwards");
      await view.badge(0, 2);
      await view.shows(0, "Afterwards", "Meanwhile");
      assert.deepEqual(reads, []);
    } finally {
      gate.close();
    }
  });

  flow("likes and favorites are pressed buttons, and stay", async ({ stack, view, page, first, second }) => {
    await stack.follow(first, second);
    await stack.publish(second, "Popular");
    await view.choose(0);
    for (const name of ["Like", "Favorite"]) {
      await view.post(0, "Popular").getByRole("button", { name: `${name} 0`, pressed: false }).click();
      await view.post(0, "Popular").getByRole("button", { name: `${name} 1`, pressed: true }).waitFor();
    }
    await page.reload();
    await view.choose(0);
    await view.post(0, "Popular").getByRole("button", { name: "Like 1", pressed: true }).click();
    await view.post(0, "Popular").getByRole("button", { name: "Like 0", pressed: false }).waitFor();
  });

  flow("a repost and a quote show their original until it is deleted", async ({ stack, view, first, second, another }) => {
    const author = another();
    await stack.follow(first, second);
    await stack.follow(second, author);
    const { id } = await stack.publish(author, "Original");
    await stack.idle();
    await view.choose(1);
    await view.post(1, "Original").getByRole("button", { name: "Repost 0", pressed: false }).click();
    await view.post(1, "Original").getByRole("button", { name: "Repost 1", pressed: true }).first().waitFor();
    await view.choose(0);
    await view.post(0, "reposts").filter({ hasText: `User ${author}` }).filter({ hasText: "Original" }).waitFor();
    await view.badge(0, 1);
    const section = await view.choose(1);
    await view.post(1, "Original").getByLabel(`More about User ${author}`).last().click();
    await view.post(1, "Original").getByRole("button", { name: "Quote Original" }).last().click();
    await section.getByLabel("Title", { exact: true }).fill("Look at this");
    await section.getByRole("button", { name: "Quote", exact: true }).first().click();
    await view.choose(0);
    await view.post(0, "Look at this").locator("blockquote").filter({ hasText: "Original" }).waitFor();
    await stack.call(author, "DELETE", `/v1/posts/${id}`);
    await stack.idle();
    await view.choice(0, "Show", "unread");
    await view.post(0, "Look at this").locator("blockquote").filter({ hasText: "unavailable" }).waitFor();
    await view.shows(0, "Look at this", "This post is unavailable.");
  });

  flow("an opened post has its comments, and one's own can be deleted", async ({ stack, view, first, second }) => {
    await stack.follow(first, second);
    const { id } = await stack.publish(second, "Discussed");
    await stack.call(second, "POST", `/v1/posts/${id}/comments`, { text: "By the author" });
    await view.choose(0);
    const post = view.post(0, "Discussed");
    await post.getByRole("button", { name: "Comments" }).click();
    await post.getByText("By the author").waitFor();
    await post.getByLabel("Comment", { exact: true }).fill("By a reader");
    await post.getByRole("button", { name: "Send" }).click();
    await post.getByText("By a reader").waitFor();
    await post.getByRole("button", { name: "Comments 2" }).waitFor();
    await post.getByRole("button", { name: `Delete the comment by User ${first}` }).click();
    await post.getByText("By a reader").waitFor({ state: "detached" });
    await post.getByRole("button", { name: "Comments 1" }).waitFor();
    await post.getByText("By the author").waitFor();
  });

  flow("the inbox tells who did what, leads there, and its number falls", async ({ stack, view, page, first, second, another }) => {
    const third = another();
    const { id } = await stack.publish(first, "Popular");
    for (const user of [second, third]) {
      await stack.follow(user, first);
      await stack.call(user, "PUT", `/v1/posts/${id}/like`);
    }
    await stack.call(second, "POST", `/v1/posts/${id}/comments`, { text: "Well said" });
    await stack.call(third, "PUT", `/v1/posts/${id}/repost`);
    await stack.call(second, "POST", "/v1/posts", { title: "Look at this", of: id });
    const reader = await view.choose(0);
    await reader.getByRole("tab", { name: "Inbox 5" }).waitFor();
    await view.tab(0, "Inbox");
    const group = (text) => reader.locator("[data-is=inbox] > li").filter({ hasText: text });
    await group("liked your post Popular").filter({ hasText: `User ${second}` }).filter({ hasText: `User ${third}` }).waitFor();
    for (const text of ["followed you", "reposted your post", "quoted your post"]) await group(text).waitFor();
    await group("followed you").getByRole("button", { name: "Mark read" }).click();
    await reader.getByRole("tab", { name: "Inbox 4" }).waitFor();
    // Both take the like back: the group is gone, and nobody has to read it.
    for (const user of [second, third]) await stack.call(user, "DELETE", `/v1/posts/${id}/like`);
    await reader.getByRole("tab", { name: "Inbox 3" }).waitFor();
    await group("liked your post").waitFor({ state: "detached" });
    await group("commented on your post").getByRole("link", { name: "Popular" }).click();
    await reader.locator("[data-is=post]").getByText("Well said").waitFor();
    await page.goBack();
    await reader.getByRole("button", { name: "Mark all read", exact: true }).filter({ visible: true }).click();
    await reader.getByRole("tab", { name: "Inbox", exact: true }).waitFor();
  });

  flow("the ranked order puts a favorite first", async ({ stack, view, first, second }) => {
    await stack.follow(first, second);
    const older = await stack.publish(second, "Older");
    await stack.publish(second, "Newer");
    await stack.idle();
    await view.choose(0);
    await view.shows(0, "Newer", "Older");
    await view.post(0, "Older").getByRole("button", { name: "Favorite" }).click();
    await until("the favorite is ranked", async () => (await stack.call(first, "GET", "/v1/feed?order=ranked")).items[0]?.id === older.id);
    await view.choice(0, "Order", "ranked");
    await view.shows(0, "Older", "Newer");
    await view.post(0, "Older").getByText("#1", { exact: true }).waitFor();
  });

  flow("a list is a feed of its own", async ({ stack, view, first, second, another }) => {
    const third = another();
    for (const author of [second, third]) {
      await stack.follow(first, author);
      await stack.publish(author, `By ${author}`);
    }
    const reader = await view.tab(0, "People");
    await reader.getByLabel("New list").fill("Friends");
    await reader.getByRole("button", { name: "Create" }).click();
    await reader.getByLabel("Author to add to Friends").selectOption({ label: `User ${third}` });
    await reader.getByRole("button", { name: "Add to Friends" }).click();
    await reader.getByRole("button", { name: `Remove User ${third} from Friends` }).waitFor();
    await view.tab(0, "Feed");
    await view.choice(0, "From", { label: "Friends" });
    await view.shows(0, `By ${third}`);
    await view.tab(0, "People");
    await reader.getByRole("button", { name: "Delete list Friends" }).click();
    await view.shows(0, `By ${third}`, `By ${second}`);
  });

  flow("a notice is unread for everyone until it is read", async ({ view, second }) => {
    for (const index of [0, 1]) {
      const section = await view.tab(index, "Notices");
      await section.getByLabel("Platform", { exact: true }).fill(String(second));
      await section.getByLabel("Platform", { exact: true }).press("Enter");
    }
    const author = view.section(1);
    await author.getByLabel("New notice for everyone on this platform").fill("Maintenance");
    await author.getByRole("button", { name: "Publish notice" }).click();
    const reader = await view.choose(0);
    await reader.getByRole("tab", { name: "Notices 1" }).waitFor();
    await reader.getByRole("button", { name: "Maintenance", exact: true }).click();
    await reader.getByText("This notice has no text.").waitFor();
    await reader.getByRole("tab", { name: "Notices", exact: true }).waitFor();
    await reader.getByRole("button", { name: "Mark unread: Maintenance" }).click();
    await reader.getByRole("tab", { name: "Notices 1" }).waitFor();
    await reader.getByRole("button", { name: "Mark all read" }).click();
    await reader.getByRole("tab", { name: "Notices", exact: true }).waitFor();
  });

  flow("a long feed scrolls to its end, each post once", async ({ stack, view, page, first, second }) => {
    await stack.follow(first, second);
    for (let index = 1; index <= 65; index += 1) await stack.publish(second, `Post ${index}`);
    const reader = await view.choose(0);
    await view.badge(0, 65);
    await view.post(0, "Post 65").waitFor();
    await until("the end", async () => {
      await view.feed(0).locator("> li").last().scrollIntoViewIfNeeded();
      await page.mouse.wheel(0, 400);
      return reader.getByText("You have seen everything.").isVisible();
    });
    const expected = Array.from({ length: 65 }, (_, index) => `Post ${65 - index}`);
    assert.deepEqual(await view.titles(0), expected);
  });

  flow("a muted author's posts leave and return", async ({ stack, view, first, second }) => {
    await stack.follow(first, second);
    await stack.publish(second, "Loud");
    const reader = await view.choose(0);
    await view.post(0, "Loud").getByLabel(`More about User ${second}`).click();
    await view.post(0, "Loud").getByRole("button", { name: `Mute User ${second}` }).click();
    await view.says(0, "is muted");
    await view.shows(0);
    await view.badge(0, 0);
    await view.tab(0, "People");
    await reader.getByRole("button", { name: `Unmute User ${second}` }).click();
    await view.shows(0, "Loud");
    await view.badge(0, 1);
  });

  flow("a block is told in words, and can be undone", async ({ stack, view, first, second }) => {
    await stack.follow(first, second);
    await stack.follow(second, first);
    await stack.publish(second, "Unwelcome");
    await view.choose(0);
    await view.post(0, "Unwelcome").getByLabel("More about").click();
    await view.post(0, "Unwelcome").getByRole("button", { name: "Block" }).click();
    await view.confirm("Block");
    await view.shows(0);
    await view.follow(1, first);
    await view.says(1, "One of the two users blocks the other");
    assert.equal(await view.section(1).getByRole("alert").filter({ hasText: /./ }).count(), 1);
    assert.doesNotMatch((await view.section(1).locator(".messages").allInnerTexts()).join(), /[{}]/);
    const reader = await view.tab(0, "People");
    await reader.getByRole("button", { name: `Unblock User ${second}` }).click();
    await view.says(0, "is no longer blocked");
  });

  flow("a paused fan-out keeps a post waiting until it is resumed", async ({ stack, view, first, second }) => {
    await stack.follow(first, second);
    await stack.idle();
    let system = await view.choose(2);
    await system.getByRole("button", { name: "Pause fan-out" }).click();
    await system.getByRole("button", { name: "Resume fan-out" }).waitFor();
    const author = await view.publish(1, "Held");
    await author.locator(".delivery").filter({ hasText: "waits to be delivered" }).waitFor();
    system = await view.choose(2);
    await system.locator(".badge").filter({ hasText: "busy" }).waitFor();
    await system.locator("tr").filter({ hasText: "Out\u200bQueue" }).locator("td.busy").first().waitFor();
    await system.getByRole("button", { name: "Resume fan-out" }).click();
    await view.choose(1);
    await author.locator(".delivery").filter({ hasText: "is delivered" }).waitFor();
    await view.badge(0, 1);
  });

  flow("a profile has a name and a handle, by which others follow", async ({ view, second }) => {
    const author = await view.tab(1, "Profile");
    await author.getByLabel("Name", { exact: true }).fill("Grace Hopper");
    await author.getByLabel("Handle", { exact: true }).fill(`grace_${second}`);
    await author.getByRole("button", { name: "Save profile" }).click();
    await author.getByRole("heading", { name: "Grace Hopper" }).waitFor();
    await view.follow(0, "nobody_here");
    await view.says(0, "Nobody has the handle @nobody_here.");
    await view.follow(0, `@grace_${second}`);
    await view.says(0, "You follow Grace Hopper.");
    await view.section(0).getByRole("button", { name: "Unfollow Grace Hopper" }).click();
    await view.says(0, "You no longer follow Grace Hopper.");
  });

  flow("an author edits and deletes a post", async ({ stack, view, second, first }) => {
    await stack.follow(first, second);
    const author = await view.publish(1, "Draught");
    await view.badge(0, 1);
    await view.choose(1);
    await view.post(1, "Draught").getByLabel("More about Draught").click();
    await view.post(1, "Draught").getByRole("button", { name: "Edit Draught" }).click();
    await author.getByLabel("Title", { exact: true }).fill("Draft");
    await author.getByRole("button", { name: "Save", exact: true }).click();
    await view.post(1, "Draft").getByLabel("More about Draft").click();
    await view.post(1, "Draft").getByRole("button", { name: "Delete Draft" }).click();
    await view.says(1, "is deleted");
    await view.badge(0, 0);
    await view.shows(0);
  });

  flow("a busy API is asked again after Retry-After", async ({ stack, view, page, first, second }) => {
    await stack.follow(first, second);
    const { id } = await stack.publish(second, "Popular");
    let refusals = 0;
    await page.route(`**/v1/posts/${id}/like`, (route) => (refusals += 1) > 1 ? route.continue() : route.fulfill({
      status: 429, headers: { "Retry-After": "1" }, contentType: "application/problem+json", body: JSON.stringify({ title: "Too many requests", status: 429 }),
    }));
    await view.choose(0);
    await view.post(0, "Popular").getByRole("button", { name: "Like" }).click();
    await view.says(0, "The page tries again in 1 s.");
    await view.post(0, "Popular").getByRole("button", { name: "Like 1", pressed: true }).waitFor();
    assert.equal(refusals, 2);
  });

  flow("the system shows weather, reconcile, an empty Redis and latencies", async ({ stack, view, first, second }) => {
    await stack.follow(first, second);
    await stack.publish(second, "Kept");
    await view.badge(0, 1);
    const system = await view.choose(2);
    await system.getByLabel("Weather").selectOption("aws");
    await view.says(2, "The weather is aws.");
    await system.getByLabel("Weather").selectOption("calm");
    await view.says(2, "The weather is calm.");
    await system.getByRole("button", { name: "Run reconcile" }).click();
    await view.says(2, "Reconcile looked at");
    await system.getByRole("button", { name: "Empty Redis" }).click();
    await view.says(2, "Redis is empty.");
    await system.getByText(/^\d+ ms$/).first().waitFor();
    await view.badge(0, 1);
    await view.shows(0, "Kept");
  });

  flow("other tokens show other people", async ({ view, another }) => {
    const third = another();
    await view.settings({ "Token of the first person": String(third) });
    await view.section(0).locator("h2").filter({ hasText: `User ${third}` }).waitFor({ state: "attached" });
    await view.settings({ "Token of the first person": "nobody" });
    await view.section(0).getByText("This token is not accepted").waitFor({ state: "attached" });
    await view.live(0, /^Not live$/);
  });

  flow("a stopped stack is told in words, and the page recovers", async ({ stack, view, page, first, second }) => {
    await stack.follow(first, second);
    await stack.publish(second, "Before");
    await view.badge(0, 1);
    await stack.stop();
    await view.says(0, "Tidemark is not reachable.");
    await page.locator("#connection").filter({ hasText: "Not reachable" }).waitFor();
    const author = await view.publish(1, "Meanwhile");
    await view.says(1, "Tidemark is not reachable.");
    assert.equal(await author.getByLabel("Title", { exact: true }).inputValue(), "Meanwhile");
    await stack.start();
    await view.says(0, "Tidemark is reachable again.");
    await author.getByRole("button", { name: "Publish", exact: true }).click();
    await view.badge(0, 2);
    await view.shows(0, "Meanwhile", "Before");
  });
}
