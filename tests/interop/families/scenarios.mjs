// What every client is put through, for the drivers that are written for Node.js.
//
// The same as scenarios.py: a job on standard input, one JSON line for each scenario on standard
// output. A client has `revision`, `asked`, `listTools()`, `call(name, arguments, heard)`,
// `changes()` and `giveUp(name, begun)`. What the oldest revisions lack is known here alone: only
// drivers for Node.js are told to ask for one of them.

import assert from "node:assert/strict";
import { text } from "node:stream/consumers";

const SCENARIO_MS = 15_000;

export const USER = { name: "octocat" };

/** The client has no means for a scenario; the message says what is missing. */
export class NoMeans extends Error {}

/** An unbounded queue: `put` never waits, `get` does. */
export class Queue {
  #items = [];
  #waiting = [];

  put(item) {
    const waiter = this.#waiting.shift();
    if (waiter) waiter(item);
    else this.#items.push(item);
  }

  async get() {
    if (this.#items.length) return this.#items.shift();
    return await new Promise((resolve) => this.#waiting.push(resolve));
  }
}

/** The text, the structured content and the verdict of a result. */
export function answer(result) {
  const texts = result.content.filter((block) => block.type === "text").map((block) => block.text);
  return {
    text: texts.join(""),
    structured: result.structuredContent,
    isError: result.isError === true,
  };
}

const SCENARIOS = {
  async connect(client, job) {
    assert.equal(client.revision === "2026-07-28", job.era === "modern", client.revision);
    if (job.revision) assert.equal(client.revision, job.revision);
    return client.revision;
  },

  async list(client) {
    const found = (await client.listTools()).filter((tool) => tool.name === "divide");
    assert.equal(found.length, 1);
    assert.equal(found[0].description, "Divide one whole number by another.");
    assert.deepEqual(found[0].inputSchema.required, ["dividend", "divisor"]);
  },

  async paginate(client, job) {
    const names = (await client.listTools()).map((tool) => tool.name);
    assert.deepEqual(names, job.tools);
  },

  async call(client) {
    const sent = { region: "Zürich", query: "SELECT 1" };
    const result = await client.call("execute_sql", sent);
    assert.deepEqual(JSON.parse(result.text), { ...sent, tenant: null });
    assert.equal(result.isError, false);
  },

  async structured(client, job) {
    const division = await client.call("divide", { dividend: 17, divisor: 5 });
    if (client.revision < "2025-06-18") {
      assert.equal(division.structured, undefined);
      throw new NoMeans("The revision has results in text alone.");
    }
    assert.deepEqual(division.structured, { quotient: 3, remainder: 2 });
    const primes = await client.call("primes", { below: 8 });
    const list = [2, 3, 5, 7];
    assert.deepEqual(primes.structured, job.era === "modern" ? list : { result: list });
  },

  async error(client) {
    const result = await client.call("divide", { dividend: 1, divisor: 0 });
    assert.deepEqual([result.isError, result.text], [true, "divisor must not be zero"]);
  },

  async "bad arguments"(client) {
    const calling = client.call("divide", { dividend: "many", divisor: 1 });
    if (client.revision < "2025-11-25") {
      // Until then they are an error of the protocol.
      await assert.rejects(calling, (error) => error.code === -32602 && /dividend/.test(error.message));
      return;
    }
    const result = await calling;
    assert.deepEqual([result.isError, result.text.includes("dividend")], [true, true]);
  },

  async progress(client) {
    const heard = new Queue();
    const climbing = client.call("climb", { steps: 3 }, (value) => heard.put(value));
    const early = climbing.then(() => {
      throw new Error("the call ended before its progress was heard");
    });
    early.catch(() => {}); // at the end it ends indeed
    for (const step of [1, 2, 3]) {
      assert.equal(await Promise.race([heard.get(), early]), step);
      await client.call("take_step");
    }
    assert.equal((await climbing).text, "3 steps");
  },

  async elicitation(client) {
    if (client.revision < "2025-06-18") {
      await assert.rejects(client.call("greet"), /elicitation/);
      throw new NoMeans("The revision has no elicitation.");
    }
    assert.equal((await client.call("greet")).text, "Hello, octocat!");
    assert.deepEqual(client.asked, ["Who is there?"]);
  },

  async cancellation(client) {
    await client.giveUp("hold", () => client.call("await_hold", { state: "started" }));
    assert.equal((await client.call("await_hold", { state: "cancelled" })).text, "cancelled");
  },

  // The last: the tools are others from then on.
  async list_changed(client, job) {
    const changed = await client.changes();
    await client.call("invite");
    await changed();
    const names = (await client.listTools()).map((tool) => tool.name);
    assert.deepEqual(names, [...job.tools, "newcomer"].sort());
    assert.equal((await client.call("newcomer")).text, "hello");
  },
};

function say(scenario, ok, detail) {
  process.stdout.write(`${JSON.stringify({ scenario, ok, detail })}\n`);
}

function told(error) {
  return `${error.name}: ${String(error.message).split(/\s+/).join(" ").slice(0, 300)}`;
}

async function within(promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not within ${SCENARIO_MS} ms`)), SCENARIO_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Drive a client as the job on standard input says. `connect` makes it of a job. */
export async function main(connect) {
  const job = JSON.parse(await text(process.stdin));
  let client;
  try {
    client = await within(connect(job));
  } catch (error) {
    say("connect", false, told(error));
    process.exit(0);
  }
  for (const [name, scenario] of Object.entries(SCENARIOS)) {
    try {
      say(name, true, (await within(scenario(client, job))) ?? "");
    } catch (error) {
      say(name, error instanceof NoMeans ? null : false, error instanceof NoMeans ? error.message : told(error));
    }
  }
  await within(client.close()).catch(() => {});
  process.exit(0);
}
