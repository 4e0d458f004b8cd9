// Commands as lines of JSON on standard input, each answered by a line on standard output.

import { createInterface } from "node:readline";

/** Answer until the input ends; refusal makes [Kafka's code or null, a text] of an error. */
export async function answer(handlers, refusal) {
  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    let told;
    try {
      told = { answer: (await handlers[command.do](command)) ?? null };
    } catch (error) {
      told = { error: refusal(error) };
    }
    process.stdout.write(JSON.stringify(told) + "\n");
  }
  process.exit(0);
}

/** What a member of a group or a reader was given, until it is polled. */
export class Arrivals {
  #items = [];
  #news = () => {};

  push(item) {
    this.#items.push(item);
    this.#news();
  }

  /** Take up to count items, waiting for them up to ms milliseconds. */
  async take(count, ms) {
    const until = Date.now() + ms;
    while (this.#items.length < count && Date.now() < until) {
      await new Promise((resolve) => {
        const timer = setTimeout(resolve, Math.max(until - Date.now(), 0));
        this.#news = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
    return this.#items.splice(0, count);
  }

  clear() {
    this.#items = [];
  }
}

export const text = (bytes) => bytes?.toString() ?? null;
export const sorted = (rows) => rows.sort((a, b) => a[0] - b[0]);
