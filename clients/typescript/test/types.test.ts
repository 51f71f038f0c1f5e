// What the compiler says to a program that uses the installed package. `clients/check.sh` installs it in TIDEMARK_APP.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const app = process.env["TIDEMARK_APP"] ?? assert.fail("TIDEMARK_APP is not set");
const options = "--noEmit --pretty false --strict --target es2022 --module nodenext --types node --typeRoots node_modules/@types".split(" ");
const { stdout } = spawnSync("node_modules/.bin/tsc", [...options, `${app}/refused.ts`], { encoding: "utf8" });
const found = [...stdout.matchAll(/^.*refused\.ts\((\d+),\d+\): error (TS\d+)/gm)].map(([, line, code]) => `${line} ${code}`);
const lines = readFileSync(`${app}/refused.ts`, "utf8").split("\n");
const wrong = lines.flatMap((text, at) => [...text.matchAll(/^ *(.*) \/\/ (TS\d+): (.*)$/g)].map(([, ...it]) => ({ at: at + 1, it })));

for (const { at, it: [call, code, why] } of wrong) {
  test(`refused: ${call}, because ${why}`, () => assert.ok(found.includes(`${at} ${code}`), stdout));
}

test("eight calls are refused, and no other line", () => {
  assert.deepEqual(found, wrong.map(({ at, it: [, code] }) => `${at} ${code}`), stdout);
  assert.equal(wrong.length, 8);
});
