// HTTP/2 and TLS in front of a scripted model: `front.mjs ADDRESS KEY-AND-CERTIFICATE MODEL`. Says which version of HTTP each
// request came in.

import { readFileSync } from "fs";
import http from "http";
import http2 from "http2";

const [address, identity, model] = process.argv.slice(2);
const pem = readFileSync(identity, "utf8");
const options = { key: pem, cert: pem, allowHTTP1: true };

const server = http2.createSecureServer(options, (request, response) => {
  console.log(`HTTP ${request.httpVersion} ${request.method} ${request.url}`);
  const headers = Object.fromEntries(Object.entries(request.headers).filter(([name]) => !name.startsWith(":")));
  const asked = http.request(`http://${model}${request.url}`, { method: request.method, headers }, (answer) => {
    const { connection, "transfer-encoding": _, ...rest } = answer.headers;
    response.writeHead(answer.statusCode, rest);
    answer.pipe(response);
  });
  request.pipe(asked);
});
server.listen(443, address, () => console.log("ready"));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
