#!/bin/sh
# Gemini CLI writes a session as lines that are changes. A resumed session is told twice: its turns are
# appended to the FIRST file, behind a line that sets all messages anew, and a second file with the same
# session id has none of them. In the messages set anew the answer, which was a text, is a list of parts,
# with what the model thought as the first of them; the result of a tool would be there twice.
# Versions: @google/gemini-cli 0.61.0 (npm, Node.js 20), against a stand-in of the API on loopback.
set -eu
dir=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; rm -rf "$dir"' EXIT
server=
mkdir "$dir/shop" "$dir/home" "$dir/home/.gemini"
cd "$dir"
npm init -y >/dev/null
npm install --no-audit --no-fund --silent @google/gemini-cli@0.61.0
cat >server.mjs <<'JS'
import { createServer } from "node:http";
import { writeFileSync } from "node:fs";
const parts = [{ text: "**Looking**\nI look it up.", thought: true }, { text: "Tea." }];
const answer = { candidates: [{ content: { role: "model", parts }, finishReason: "STOP", index: 0 }] };
const server = createServer((request, response) => {
  request.resume().on("end", () => {
    const stream = request.url.includes("stream");
    response.setHeader("content-type", stream ? "text/event-stream" : "application/json");
    response.end(stream ? `data: ${JSON.stringify(answer)}\n\n` : JSON.stringify(answer));
  });
});
server.listen(0, "127.0.0.1", () => writeFileSync("port", String(server.address().port)));
JS
node server.mjs &
server=$!
while [ ! -s port ]; do sleep 1; done
export HOME="$dir/home" GEMINI_API_KEY=none GOOGLE_GEMINI_BASE_URL="http://127.0.0.1:$(cat port)" GEMINI_CLI_TRUST_WORKSPACE=true
echo '{"security": {"auth": {"selectedType": "gemini-api-key"}}, "privacy": {"usageStatisticsEnabled": false}}' >home/.gemini/settings.json
gemini() { (cd shop && timeout 120 ../node_modules/.bin/gemini -m gemini-2.5-flash "$@" >/dev/null 2>&1 </dev/null); }
gemini -p "What do I drink?"
sleep 61 # a file is named after the minute
gemini --resume latest -p "And now?"
cat >read.mjs <<'JS'
import { readFileSync, readdirSync } from "node:fs";
const folder = "home/.gemini/tmp/shop/chats/";
const sessions = new Set();
for (const [number, name] of readdirSync(folder).sort().entries()) {
  const lines = readFileSync(folder + name, "utf8").trim().split("\n").map((line) => JSON.parse(line));
  sessions.add(lines[0].sessionId);
  const said = lines.filter((line) => line.type === "gemini").length;
  console.log(`file ${number + 1}: answers ${said}`);
  for (const line of lines) {
    const set = (line.$set?.messages ?? []).find((message) => message.type === "gemini");
    for (const message of [line.type === "gemini" ? line : null, set ?? null].filter(Boolean))
      console.log(`  ${message === set ? "set anew" : "appended"}: ${JSON.stringify(message.content)}`);
  }
}
console.log("sessions:", sessions.size);
JS
node read.mjs >seen
diff - seen <<'SEEN'
file 1: answers 2
  appended: "Tea."
  set anew: [{"text":"**Looking** I look it up.","thought":true},{"text":"Tea."}]
  appended: "Tea."
file 2: answers 0
sessions: 1
SEEN
echo "as seen"
