// Writes docs/images/page-{1280,390}-{light,dark}.png, with people who have something to say.

import { mkdirSync } from "node:fs";
import { Stack, until } from "./stack.mjs";
import { View, launch } from "./view.mjs";

const FOLDER = "docs/images";
const [ADA, GRACE, ALAN, MARY] = ["1", "2", "3", "4"];
const people = {
  [ADA]: ["Ada Lovelace", "ada"],
  [GRACE]: ["Grace Hopper", "grace"],
  [ALAN]: ["Alan Turing", "alan"],
  [MARY]: ["Mary Somerville", "mary"],
};
const posts = [
  [ADA, "Notes on the analytical engine", "Note G has a table. Read it twice."],
  [GRACE, "A compiler that compiles itself", "It took three nights and much coffee."],
  [ALAN, "On machines that learn from their mistakes", null],
  [MARY, "Two planets that should exist", "The orbit of Uranus does not add up."],
  [ALAN, "Morphogenesis, part two", "Why leopards have spots."],
  [GRACE, "Nanoseconds, handed out by the foot", "A nanosecond is 11.8 inches of wire. Bring your own."],
];

async function fill(stack) {
  for (const [user, [name, handle]] of Object.entries(people)) await stack.call(user, "PUT", "/v1/me/profile", { name, handle });
  for (const reader of [ADA, GRACE]) for (const author of Object.keys(people)) if (author !== reader) await stack.follow(reader, author);
  for (const post of posts) await stack.publish(...post);
  for (const [reader, post] of [[GRACE, "3-1"], [ALAN, "2-2"], [MARY, "2-2"], [ADA, "2-2"]]) await stack.call(reader, "PUT", `/v1/posts/${post}/like`);
  for (const post of ["4-1", "3-1"]) await stack.call(ADA, "PUT", `/v1/posts/${post}/read`);
  await stack.call(`${ADA} notices:write`, "POST", "/v1/notices", { platforms: [1], title: "Maintenance on Sunday" });
  await stack.idle();
}

async function shoot(browser, url, size) {
  const view = await View.open(browser, url, size, ADA, GRACE);
  await view.choose(0);
  await view.post(0, "Nanoseconds").getByRole("button", { name: "Nanoseconds" }).click();
  await view.post(0, "11.8 inches").waitFor();
  await view.post(0, "11.8 inches").getByRole("button", { name: "Mark unread" }).click();
  await view.badge(0, 3);
  await view.section(2).locator(".badge").filter({ hasText: "idle" }).waitFor({ state: "attached" });
  const requests = view.section(2).locator("[data-is=requests]");
  await until("latencies", async () => Number(await requests.textContent()) >= 30);
  await view.page.evaluate(() => document.activeElement.blur());
  await view.page.screenshot({ path: `${FOLDER}/page-${size.width}-${size.scheme}.png` });
  await view.close();
}

mkdirSync(FOLDER, { recursive: true });
const stack = await new Stack().start();
const browser = await launch();
try {
  await fill(stack);
  for (const width of [1280, 390]) for (const scheme of ["light", "dark"]) await shoot(browser, stack.url, { width, scheme });
} finally {
  await browser.close();
  await stack.remove();
}
