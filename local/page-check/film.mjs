// Films a first-time session as numbered pictures: clone, `make run`, the page, sample people, phones. Redis is killed and
// then emptied, and every badge must be right. `film.mjs <folder>` uses an existing clone, which is not removed.

import assert from "node:assert/strict";
import { mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { stripVTControlCharacters } from "node:util";
import { Clone, shell } from "./clone.mjs";
import { ONE, View, launch } from "./view.mjs";

const FILM = `${process.env.PAGE_CHECK_MODULES}/film`;
const LINES = 22;
const LIVE_SECONDS = 20;
/** If Redis has lost a page's connection, the page learns the counts from its next ping. It pings once a minute. */
const PING_SECONDS = 75;
const [RITA, SAM] = ["1", "2"];

rmSync(FILM, { recursive: true, force: true });
mkdirSync(FILM, { recursive: true });
const stack = new Clone(process.argv[2]);
const browser = await launch();
const stage = await browser.newPage({ viewport: { width: 1280, height: 80 } });
await stage.setContent(`<style>
  body { margin: 0; display: flex; flex-wrap: wrap; justify-content: center; gap: 16px; background: #3a4149; }
  pre { box-sizing: border-box; width: 100%; margin: 0; padding: 16px; background: #16191d; color: #d6dbe0; font: 13px/1.5 monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
</style>`);
let frames = 0;

/** Takes the next picture, of windows, and of texts as a terminal shows them. Prints the seconds since the start. */
async function frame(name, ...panes) {
  const file = `${String((frames += 1)).padStart(2, "0")}-${name}.png`;
  console.log(`${file.padEnd(34)} ${(performance.now() / 1000).toFixed(1)} s`);
  const text = (pane) => stripVTControlCharacters(pane).trimEnd().split("\n").slice(-LINES).join("\n");
  const window = async ({ page }) => `data:image/png;base64,${(await page.screenshot()).toString("base64")}`;
  const shown = await Promise.all(panes.map(async (pane) => (typeof pane === "string" ? ["pre", "textContent", text(pane)] : ["img", "src", await window(pane)])));
  await stage.evaluate(async (all) => {
    document.body.replaceChildren(...all.map(([tag, property, value]) => Object.assign(document.createElement(tag), { [property]: value })));
    await Promise.all([...document.images].map((image) => image.decode()));
  }, shown);
  await stage.screenshot({ path: join(FILM, file), fullPage: true });
}

await frame("clone", stack.entered + shell("git log --oneline -1", stack.folder) + shell("ls -C", stack.folder));
await stack.start();
await stack.call(RITA, "GET", "/v1/me");
await frame("make-run", stack.terminal);

const unread = { [RITA]: 6, [SAM]: 5 };
const desktop = await View.open(browser, stack.url + ONE, { width: 1280, scheme: "light" }, RITA, SAM);
const sample = desktop.section(0).getByRole("button", { name: "Fill with sample people" });
await sample.waitFor();
await frame("page", desktop);
await sample.click();
await desktop.badge(0, unread[RITA]);
await desktop.badge(1, unread[SAM]);
await frame("sample-people", desktop);

const phone = (user, scheme) => View.open(browser, stack.url + ONE, { width: 390, scheme }, user, user);
const phones = [await phone(RITA, "light"), await phone(RITA, "dark"), await phone(SAM, "light")];
const windows = [[desktop, 0, RITA], [desktop, 1, SAM], [phones[0], 0, RITA], [phones[1], 0, RITA], [phones[2], 0, SAM]];

/** The API's counts, and the lists behind them, are right at once. */
async function counted() {
  for (const user of [RITA, SAM]) {
    const { total, authors } = await stack.call(user, "GET", "/v1/unread");
    const { items } = await stack.call(user, "GET", "/v1/feed?status=unread&limit=100");
    const counts = [total, authors.reduce((sum, one) => sum + one.unread, 0), items.length];
    assert.deepEqual(counts, Array(3).fill(unread[user]), `the counts of user ${user}`);
  }
}

/** Every badge becomes right, and the API agrees. */
async function right(seconds = LIVE_SECONDS) {
  for (const [view] of windows) view.page.setDefaultTimeout(seconds * 1000);
  await Promise.all(windows.map(([view, index, user]) => view.badge(index, unread[user]))).catch(async (error) => {
    await frame("wrong", desktop, ...phones, stack.terminal);
    throw error;
  });
  await counted();
}

/** Sam publishes on the desktop. */
async function publish(title, body, seconds) {
  const author = await desktop.publish(1, title, body);
  unread[RITA] += 1;
  await author.getByRole("status").filter({ hasText: `“${title}” is delivered` }).waitFor();
  await right(seconds);
  for (const [view, index, user] of windows) if (user === RITA) await view.post(index, title).waitFor();
  return author;
}

/** After a loss of Redis, the counts are those of before: in the API, on each window, and on one that asks anew. */
async function kept() {
  await counted();
  for (const [view, index, user] of windows) assert.equal(await view.section(index).locator("[data-is=badge]").textContent(), `${unread[user]} unread`);
  await phones[1].page.reload();
  await right();
}

for (const [view, index] of windows) await view.live(index, /^Live$/);
await right();
await frame("phones", ...phones);
const author = await publish("Reading on the pier tonight", "Bring a lamp and a coat.");
await author.getByRole("img", { name: /1 of 1 follower in .+Rita.+ ms/ }).waitFor();
await frame("delivered", desktop);
await frame("phones-after-the-post", ...phones);

const [pid] = /(?<=process_id:)\d+/.exec(await stack.redis("INFO server"));
const killed = shell(`kill -9 ${pid}`);
await stack.prints(/Redis responds again/);
await kept();
await frame("redis-killed", killed, stack.terminal);
await publish("The ferry runs again", "Every hour, and twice at noon.", PING_SECONDS);
await frame("phones-after-the-kill", ...phones);

const commands = ["DBSIZE", "FLUSHALL", "DBSIZE"];
const replies = (await stack.redis(...commands)).split("\r\n");
assert.match(replies.join(" "), /^:[1-9]\d* \+OK :0 /, "Redis held views, and then nothing");
await kept();
const typed = commands.map((command, index) => `127.0.0.1:${stack.port}> ${command}\n${replies[index]}\n`);
await frame("redis-emptied", typed.join(""), stack.terminal);
await publish("Fog until noon", "Take the bell.", PING_SECONDS);
await frame("phones-after-the-emptying", ...phones);

await phones[0].post(0, "Fog until noon").getByRole("button", { name: "Mark read" }).click();
unread[RITA] -= 1;
await right();
await frame("read-on-one-phone", ...phones);

for (const view of [desktop, ...phones]) await view.close();
await stack.stop();
assert.match(stack.terminal, /stopping…/);
await assert.rejects(stack.redis("PING"), /ECONNREFUSED/, "Redis has ended too");
await frame("ctrl-c", stack.terminal);
await browser.close();
