// Drives the official TypeScript client v2, which speaks both eras.

import { openSync } from "node:fs";

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";

import { Queue, USER, answer, main } from "./scenarios.mjs";

async function connect(job) {
  const asked = [];
  const changes = new Queue();
  const client = new Client(
    { name: "typescript-v2", version: "2" },
    {
      capabilities: { elicitation: { form: {} } },
      ...(job.revision && { supportedProtocolVersions: [job.revision] }),
      versionNegotiation: { mode: job.era === "modern" ? "auto" : "legacy" },
    },
  );
  client.setRequestHandler("elicitation/create", async ({ params }) => {
    asked.push(params.message);
    return { action: "accept", content: USER };
  });
  client.setNotificationHandler("notifications/tools/list_changed", () => changes.put());

  const [command, ...args] = job.command;
  await client.connect(
    job.transport === "http"
      ? new StreamableHTTPClientTransport(new URL(job.url))
      : new StdioClientTransport({
          command,
          args,
          cwd: job.cwd,
          env: job.env,
          stderr: openSync(job.log, "w"),
        }),
  );

  async function call(name, sent = {}, heard = undefined, options = {}) {
    if (heard) options.onprogress = ({ progress }) => heard(progress);
    return answer(await client.callTool({ name, arguments: sent }, options));
  }

  return {
    revision: client.getNegotiatedProtocolVersion(),
    asked,
    call,
    // It turns the pages itself.
    listTools: async () => (await client.listTools({}, { cacheMode: "refresh" })).tools,
    async changes() {
      if (job.era === "modern") await client.listen({ toolsListChanged: true });
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
