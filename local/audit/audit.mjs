// Runs cdk-nag on the expanded template, and compares its findings and checkov's with accepted.json:
// `node audit.mjs <folder>`, which has
// template.json, checkov.json and node_modules. Writes report.txt there.

import { readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";

const folder = process.argv[2];
const require = createRequire(`${folder}/`);
const { App, Aspects, Stack } = require("aws-cdk-lib");
const { Annotations, Match } = require("aws-cdk-lib/assertions");
const { CfnInclude } = require("aws-cdk-lib/cloudformation-include");
const { AwsSolutionsChecks } = require("cdk-nag");
const json = (path) => JSON.parse(readFileSync(path, "utf8"));

const stack = new Stack(new App({ analyticsReporting: false }), "tidemark");
new CfnInclude(stack, "template", { templateFile: `${folder}/template.json` });
Aspects.of(stack).add(new AwsSolutionsChecks());
const annotations = Annotations.fromStack(stack);
const about = Match.stringLikeRegexp("AwsSolutions-");
const nagged = [annotations.findError("*", about), annotations.findWarning("*", about)].flat().map(({ id, entry }) => ({
  check: /AwsSolutions-\w+/.exec(entry.data)[0],
  resource: id.split("/").at(-1),
}));
const checked = json(`${folder}/checkov.json`).results.failed_checks.map((failed) => ({
  check: failed.check_id,
  resource: failed.resource.split(".").at(-1),
}));

const accepted = json(new URL("accepted.json", import.meta.url));
const found = new Map();
for (const { check, resource } of [...checked, ...nagged]) found.set(check, [...(found.get(check) ?? []), resource]);
const wrong = [
  ...[...found].filter(([check]) => !accepted[check]).map(([check, resources]) => `${check} is not accepted: ${resources.join(", ")}`),
  ...Object.keys(accepted).filter((check) => !found.has(check)).map((check) => `accepted.json has ${check}, which finds nothing`),
];
const counts = [...found].map(([check, resources]) => `${check}: ${resources.length} (${accepted[check] ?? "not accepted"})`);
const sum = `template.yaml: ${checked.length} findings of checkov, ${nagged.length} of cdk-nag, ${wrong.length} errors`;
writeFileSync(`${folder}/report.txt`, [...counts, ...wrong, sum, ""].join("\n"));
process.exitCode = wrong.length > 0 ? 1 : 0;
