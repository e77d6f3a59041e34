// Answers requests: one JSON value per line on standard input, one per line on standard output.

import readline from "node:readline";

export async function answerLines(first, answer) {
  const say = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
  say(first);
  for await (const line of readline.createInterface({ input: process.stdin })) say(await answer(JSON.parse(line)));
}
