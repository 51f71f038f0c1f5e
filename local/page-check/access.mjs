// Whom the page does not leave out: keyboards, small windows, both colour schemes, and what axe checks.

import assert from "node:assert/strict";
import { test } from "node:test";

export function access(size, withPage) {
  const check = (name, run) => test(`${size.width} ${size.scheme}: ${name}`, { timeout: 180_000 }, withPage(size, run));

  check("axe finds nothing, and nothing overflows", async ({ stack, view, page, first, second }) => {
    const long = "Anunusuallylongtitlewithoutanyspacewhatsoever".repeat(3);
    await stack.call(second, "PUT", "/v1/me/profile", { name: "Wolfeschlegelsteinhausenbergerdorff", handle: `wolfe_${second}` });
    await stack.follow(first, second);
    await stack.publish(second, long, "Text");
    await stack.publish(second, "Short");
    await stack.call(`${first} notices:write`, "POST", "/v1/notices", { platforms: [1], title: long });
    await stack.call(first, "POST", "/v1/lists", { name: long.slice(0, 100) });
    await page.reload();
    await view.badge(0, 2);
    const clean = async (what) => {
      assert.deepEqual(await view.violations(), [], what);
      assert.deepEqual(await view.overflows(), [], `${what} overflows`);
    };
    const reader = await view.choose(0);
    await view.post(0, long).getByRole("button", { name: long }).click();
    await view.badge(0, 1);
    await clean("the feed");
    await view.post(0, "Short").getByLabel("More about").click();
    await clean("an open menu");
    for (const [tab, content] of Object.entries({ Inbox: "What others do", People: long.slice(0, 100), Notices: long, Profile: "Save profile" })) {
      await view.tab(0, tab);
      await reader.getByText(content).filter({ visible: true }).first().waitFor();
      await clean(tab);
    }
    await view.tab(0, "Feed");
    await view.post(0, long).getByRole("button", { name: "Like 0" }).click();
    await view.post(0, long).getByRole("button", { name: "Like 1" }).waitFor();
    await view.post(0, long).locator("> a").click();
    await reader.locator("[data-is=timeline]").getByText("Short").waitFor();
    await clean("an author");
    await reader.locator("[data-is=listsOfAuthor] a").nth(1).click();
    await reader.locator("[data-is=relations] > li").first().waitFor();
    await clean("followers");
    await view.tab(0, "Feed");
    await view.post(0, long).getByLabel("More about").click();
    await view.post(0, long).getByRole("link", { name: "Open" }).click();
    await reader.locator("[data-is=post]").getByRole("button", { name: "1 like" }).click();
    await reader.getByRole("list", { name: "likes" }).waitFor();
    await clean("a post");
    await view.tab(0, "People");
    await reader.locator("[data-is=following]").getByLabel("More about").click();
    await reader.locator("[data-is=following]").getByRole("button", { name: "Block" }).click();
    await clean("a question");
    await view.confirm("Cancel");
    await view.choose(1);
    await view.section(1).getByRole("button", { name: "Fill with sample people" }).or(view.post(1, "Short")).first().waitFor();
    await clean("the other person");
    await view.follow(0, "0");
    await reader.getByRole("alert").filter({ hasText: "not valid" }).waitFor();
    await clean("a problem");
    await view.publish(1, "Delivered");
    await view.section(1).locator(".delivery").filter({ hasText: "is delivered" }).waitFor();
    await clean("a delivery");
    await view.choose(2);
    await clean("the system");
    await page.getByRole("button", { name: "Settings" }).click();
    await clean("the settings");
    await page.keyboard.press("Escape");
    await view.settings({ "Token of the first person": "nobody", "Token of the second person": String(first + 100_000) });
    for (const [index, text] of ["This token is not accepted", "Fill with sample people"].entries()) {
      await view.choose(index);
      await view.section(index).getByText(text).waitFor();
      await clean(text);
    }
  });

  check("the keyboard alone follows, publishes, reads, likes and mutes", async ({ view, page, first, second }) => {
    const { keyboard } = page;
    const choose = async (index) => {
      if (!view.narrow) return;
      await view.tabTo(index ? `User ${second}` : `User ${first}`, -1, "Shift+Tab");
      await keyboard.press("Enter");
    };
    await choose(0);
    await view.tabTo("Feed", 0);
    await keyboard.press("ArrowRight");
    await keyboard.press("ArrowRight");
    await view.tabTo("Follow by id or @handle", 0);
    await keyboard.type(String(second));
    await keyboard.press("Enter");
    await view.says(0, "You follow");
    await view.tabTo("People", 0, "Shift+Tab");
    await keyboard.press("Home");
    await choose(1);
    await view.tabTo("Title", 1);
    await keyboard.type("By keyboard");
    await keyboard.press("Tab");
    await keyboard.type("Text");
    await view.tabTo("Publish", 1);
    await keyboard.press("Space");
    await view.badge(0, 1);
    await choose(0);
    await view.shows(0, "By keyboard");
    await view.tabTo("By keyboard", 0, view.narrow ? "Tab" : "Shift+Tab");
    await keyboard.press("Enter");
    await view.badge(0, 0);
    await view.tabTo("Like", 0);
    await keyboard.press("Space");
    await view.post(0, "By keyboard").getByRole("button", { name: "Like 1", pressed: true }).waitFor();
    assert.match(await page.evaluate(() => document.activeElement.ariaLabel), /^Like/, "the focus stays");
    await view.tabTo("More about", 0, "Shift+Tab");
    await keyboard.press("Enter");
    await view.tabTo("Mute", 0);
    await keyboard.press("Enter");
    await view.shows(0);
    await view.says(0, "is muted");
  });
}
