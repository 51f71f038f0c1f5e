// Takes pictures of the page with its sample people: docs/images/page-{1280,390}-{light,dark}.png, the post and the inbox
// beside each other, and every other screen in target/page-check/screens.

import { mkdirSync } from "node:fs";
import { Stack } from "./stack.mjs";
import { BOTH, ONE, View, launch } from "./view.mjs";

const DOCS = "docs/images";
const SCREENS = `${process.env.PAGE_CHECK_MODULES}/screens`;
const [RITA, SAM, ADA] = ["1", "2", "3"];

/** What else happens after the page has filled itself. */
async function fill(stack, browser) {
  const view = await View.open(browser, stack.url + BOTH, { width: 1280, scheme: "light" }, RITA, SAM);
  await view.section(0).getByRole("button", { name: "Fill with sample people" }).click();
  await view.badge(0, 6);
  await view.close();
  const { items } = await stack.call(RITA, "GET", "/v1/feed?status=unread");
  const post = (title) => items.find((item) => item.title === title).id;
  await stack.call(RITA, "PUT", `/v1/posts/${post("A notebook of small boats")}/read`);
  await stack.call(RITA, "PUT", `/v1/posts/${post("Low water, long walk")}/favorite`);
  const { id } = await stack.publish(RITA, "Reading on the pier tonight", "Bring a lamp and a coat.");
  for (const user of [SAM, ADA, "4", "5"]) await stack.call(user, "PUT", `/v1/posts/${id}/like`);
  await stack.call(SAM, "POST", `/v1/posts/${id}/comments`, { text: "I bring the lamp." });
  await stack.call(ADA, "POST", `/v1/posts/${id}/comments`, { text: "High water at nine, so not too close to the edge." });
  await stack.call(SAM, "PUT", `/v1/posts/${id}/repost`);
  await stack.call(`${RITA} notices:write`, "POST", "/v1/notices", { platforms: [1], title: "Maintenance on Sunday" });
  const list = await stack.call(RITA, "POST", "/v1/lists", { name: "Harbour" });
  await stack.call(RITA, "PUT", `/v1/lists/${list.id}/authors/${ADA}`);
  await stack.idle();
  return id;
}

/** Opens the page at an address, waits for content, and takes the picture, with the system or without. */
async function shoot(browser, url, size, path, address, { first = RITA, system = false } = {}) {
  const view = await View.open(browser, url + address, size, first, first === "0" ? "0" : SAM);
  const { page } = view;
  if (first !== "0") for (const index of address === ONE ? [0] : [0, 1]) await view.live(index, /^Live$/);
  if (system) await view.choose(2);
  await page.waitForLoadState("networkidle");
  await page.evaluate(() => document.activeElement.blur());
  await page.screenshot({ path });
  await view.close();
}

for (const folder of [DOCS, SCREENS]) mkdirSync(folder, { recursive: true });
const stack = await new Stack().start();
const browser = await launch();
try {
  const url = stack.url;
  const sizes = [1280, 390].flatMap((width) => ["light", "dark"].map((scheme) => ({ width, scheme, name: `${width}-${scheme}` })));
  for (const size of sizes) await shoot(browser, url, size, `${SCREENS}/newcomer-${size.name}.png`, ONE);
  const post = await fill(stack, browser);
  await shoot(browser, url, sizes[0], `${DOCS}/page-post-and-inbox.png`, `/#1=inbox&2=posts/${post}`);
  const screens = { author: `authors/${ADA}`, followers: `authors/${ADA}/followers`, post: `posts/${post}`, inbox: "inbox", people: "people", notices: "notices", profile: "profile" };
  for (const size of sizes) {
    await shoot(browser, url, size, `${DOCS}/page-${size.name}.png`, BOTH, { system: size.width === 1280 });
    await shoot(browser, url, size, `${SCREENS}/one-${size.name}.png`, ONE);
    await shoot(browser, url, size, `${SCREENS}/system-${size.name}.png`, ONE, { system: true });
    for (const [name, route] of Object.entries(screens)) await shoot(browser, url, size, `${SCREENS}/${name}-${size.name}.png`, `/#1=${route}&2=feed`);
    await shoot(browser, url, size, `${SCREENS}/refused-${size.name}.png`, BOTH, { first: "0" });
  }
} finally {
  await browser.close();
  await stack.remove();
}
