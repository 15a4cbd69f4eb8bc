// fetch, http and https as they come: `client.mjs fetch URL`, `client.mjs get FAMILY URL CA [SNI] [HOST]`.
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";

const [kind, ...words] = process.argv.slice(2);
if (kind === "fetch") {
  process.stdout.write(await (await fetch(words[0])).text());
} else {
  const [family, url, authority, servername, host] = words;
  const options = { family: Number(family), ca: readFileSync(authority), timeout: 10000 };
  if (servername) options.servername = servername;
  if (host) options.headers = { host };
  const module = url.startsWith("https:") ? https : http;
  module
    .get(url, options, (answer) => {
      if (answer.statusCode !== 200) process.exit(2);
      answer.on("data", (piece) => process.stdout.write(piece));
      answer.on("end", () => process.exit(0));
    })
    .on("error", (error) => {
      console.error(error.message);
      process.exit(1);
    });
}
