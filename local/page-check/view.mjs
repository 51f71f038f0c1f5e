// The page in a browser, as a test sees it.

import { createRequire } from "node:module";
import { until } from "./stack.mjs";

const require = createRequire(`${process.env.PAGE_CHECK_MODULES}/`);
const { chromium } = require("playwright-core");
const axe = require.resolve("axe-core/axe.min.js");

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

/** The addresses of the page with one person, and with two. */
export const ONE = "/", BOTH = "/#1=feed&2=feed";

export const launch = () => chromium.launch({ executablePath: process.env.PAGE_CHECK_CHROMIUM, args: FLAGS });

export class View {
  /** Opens the page for two users, of the API at `base` or at `url` itself. An error in the page fails the next `close`. */
  static async open(browser, url, { width, scheme, height = width < 900 ? 844 : 860 }, first, second, base = "") {
    const context = await browser.newContext({ viewport: { width, height }, colorScheme: scheme, reducedMotion: "reduce", hasTouch: width < 900 });
    const settings = JSON.stringify({ base, first: String(first), second: String(second) });
    await context.addInitScript((value) => sessionStorage.getItem("tidemark") ?? sessionStorage.setItem("tidemark", value), settings);
    const page = await context.newPage();
    page.setDefaultTimeout(20_000);
    const view = Object.assign(new View(), { context, page, narrow: width < 900, errors: [] });
    page.on("pageerror", (error) => view.errors.push(error));
    await page.goto(url);
    await view.identified(0);
    if (/[#&]2=/.test(url)) await view.identified(1);
    return view;
  }

  async close() {
    await this.context.close();
    if (this.errors.length) throw this.errors[0];
  }

  section = (index) => (index === 2 ? this.page.locator("#drawer") : this.page.locator("main > section").nth(index));
  identified = (index) => this.section(index).locator("h2:not(:text('…'))").waitFor({ state: "attached" });
  opener = () => this.page.getByRole("button", { name: "System", exact: true });

  /** Brings a person (0, 1) or the system (2) into view. */
  async choose(index) {
    await this.section(index).waitFor({ state: "attached" });
    const open = await this.section(2).isVisible();
    if (index === 2 && !open) await this.opener().click();
    if (index !== 2 && open) await this.page.keyboard.press("Escape");
    const chooser = this.page.locator("#switcher button").nth(index);
    if (index !== 2 && (await chooser.isVisible())) await chooser.click();
    return this.section(index);
  }

  /** Brings one of a person's tabs into view. */
  async tab(index, name) {
    const section = await this.choose(index);
    await section.getByRole("tab", { name }).click();
    return section;
  }

  async follow(index, who) {
    const section = await this.tab(index, "People");
    await section.getByLabel("Follow by id or @handle").fill(String(who));
    await section.getByRole("button", { name: "Follow", exact: true }).click();
    return section;
  }

  async publish(index, title, body = "") {
    const section = await this.tab(index, "Feed");
    await section.getByLabel("Title", { exact: true }).fill(title);
    await section.getByLabel("Text", { exact: true }).fill(body);
    await section.getByRole("button", { name: "Publish", exact: true }).click();
    return section;
  }

  /** Chooses what the feed shows. */
  async choice(index, name, option) {
    const section = this.section(index);
    if (await section.locator("[data-is=filters]").isHidden()) await section.locator("[data-is=filter]").click();
    await section.getByRole("combobox", { name, exact: true }).selectOption(option);
  }

  feed = (index) => this.section(index).locator("[data-is=posts]");
  post = (index, title) => this.feed(index).locator("> li").filter({ hasText: title });
  titles = (index) => this.feed(index).locator("button.title").allTextContents();
  says = (index, text) => this.section(index).locator(".messages").filter({ hasText: text }).waitFor({ state: "attached" });
  badge = (index, count) => this.section(index).locator("[data-is=badge]").filter({ hasText: new RegExp(`^${count} unread$`) }).waitFor({ state: "attached" });
  live = (index, text) => this.section(index).locator("[data-is=live]").filter({ hasText: text }).waitFor({ state: "attached" });
  shows = (index, ...titles) => until(`posts ${titles}`, async () => (await this.titles(index)).join() === titles.join());

  /** Sets the fields of the settings, by their labels. */
  async settings(values) {
    await this.page.getByRole("button", { name: "Settings" }).click();
    for (const [label, value] of Object.entries(values)) await this.page.getByLabel(label).fill(value);
    await this.page.getByRole("button", { name: "Use these" }).click();
  }

  /** The requests from now on whose path begins so. */
  requests(path = "/") {
    const sent = [];
    this.page.on("request", (request) => {
      const url = new URL(request.url());
      if (url.pathname.startsWith(path)) sent.push(`${request.method()} ${url.pathname}`);
    });
    return sent;
  }

  /** Answers the question before something that is hard to take back. */
  confirm = (verb) => this.page.getByRole("dialog").getByRole("button", { name: verb, exact: true }).click();

  /** Presses Tab until the element with this label, in this section, has the focus. Every stop must show it. */
  async tabTo(name, index, key = "Tab") {
    for (let presses = 0; presses < 120; presses += 1) {
      await this.page.keyboard.press(key);
      const stop = await this.page.evaluate(() => {
        const element = document.activeElement;
        const style = getComputedStyle(element);
        const section = [...document.querySelectorAll("main > section")].findIndex((one) => one.contains(element));
        const label = element.ariaLabel ?? element.labels?.[0]?.innerText ?? element.innerText;
        return { label: label.trim(), section, visible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2, body: element === document.body };
      });
      if (!stop.visible && !stop.body) throw new Error(`the focus on "${stop.label}" is not visible`);
      if (stop.label.startsWith(name) && (index === undefined || stop.section === index)) return;
    }
    throw new Error(`the keyboard does not reach "${name}"`);
  }

  /** Violations of WCAG 2.2 A and AA and of axe's best practices, in one line each. */
  async violations() {
    await this.page.addScriptTag({ path: axe }).catch(async () => this.page.evaluate(require("node:fs").readFileSync(axe, "utf8")));
    const found = await this.page.evaluate(async () => (await globalThis.axe.run(document, { runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"] })).violations);
    return found.map((one) => `${one.id}: ${one.help} (${one.nodes.map((node) => `${node.target}: ${node.any[0]?.message ?? ""}`).join("; ")})`);
  }

  /** What is wider than the window or than its panel, and buttons whose text is wider than they are; the number of a tab may lie beside it. */
  overflows = () => this.page.evaluate(() => {
    const wide = document.documentElement.scrollWidth > innerWidth ? ["the window"] : [];
    for (const panel of document.querySelectorAll("main > section, #drawer")) {
      const edge = panel.getBoundingClientRect().right;
      const beyond = [...panel.querySelectorAll("*")].filter((element) => element.getBoundingClientRect().right > edge + 1);
      const tight = [...panel.querySelectorAll("button:not([role=tab])")].filter((button) => getComputedStyle(button).overflowX === "visible" && button.scrollWidth > button.clientWidth + 1);
      wide.push(...[...beyond, ...tight].map((element) => element.outerHTML.slice(0, 120)));
    }
    return wide;
  });
}
