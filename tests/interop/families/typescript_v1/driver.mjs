// Drives the official TypeScript client v1, which knows the `initialize` era alone.

import { openSync } from "node:fs";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import {
  ElicitRequestSchema,
  ToolListChangedNotificationSchema,
} from "@modelcontextprotocol/sdk/types.js";

import { Queue, USER, answer, main } from "./scenarios.mjs";

async function connect(job) {
  const asked = [];
  const changes = new Queue();
  const client = new Client(
    { name: "typescript-v1", version: "1" },
    { capabilities: { elicitation: {} } },
  );
  client.setRequestHandler(ElicitRequestSchema, async ({ params }) => {
    asked.push(params.message);
    return { action: "accept", content: USER };
  });
  client.setNotificationHandler(ToolListChangedNotificationSchema, () => changes.put());

  const [command, ...args] = job.command;
  const transport =
    job.transport === "http"
      ? new StreamableHTTPClientTransport(new URL(job.url))
      : new StdioClientTransport({
          command,
          args,
          cwd: job.cwd,
          env: job.env,
          stderr: openSync(job.log, "w"),
        });
  let revision = "";
  const agreed = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    revision = version;
    agreed?.(version);
  };
  await client.connect(transport);

  async function call(name, sent = {}, heard = undefined, options = {}) {
    if (heard) options.onprogress = ({ progress }) => heard(progress);
    return answer(await client.callTool({ name, arguments: sent }, undefined, options));
  }

  return {
    revision,
    asked,
    call,
    async listTools() {
      const found = [];
      let cursor;
      do {
        const page = await client.listTools({ cursor });
        found.push(...page.tools);
        cursor = page.nextCursor;
      } while (cursor !== undefined);
      return found;
    },
    async changes() {
      return () => changes.get();
    },
    async giveUp(name, begun) {
      const controller = new AbortController();
      const holding = call(name, {}, undefined, { signal: controller.signal });
      const settled = Promise.allSettled([holding]);
      await begun();
      controller.abort("enough");
      await settled;
    },
    close: () => client.close(),
  };
}

await main(connect);
