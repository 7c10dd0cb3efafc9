/** A request as curl, Python and TypeScript, as the clients of the service are called. */
import { html, useState } from "../ui.js";
import { BASE, key } from "../api.js";
import { Code, curl } from "./text.js";

/** A JSON value as a Python literal. @param {unknown} value @param {string} [indent] @returns {string} */
export function python(value, indent = "") {
  const deeper = `${indent}    `;
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return value.length ? `[${value.map((one) => python(one, deeper)).join(", ")}]` : "[]";
  if (typeof value === "object") {
    const lines = Object.entries(value).map(([name, one]) => `${deeper}${JSON.stringify(name)}: ${python(one, deeper)},\n`);
    return lines.length ? `{\n${lines.join("")}${indent}}` : "{}";
  }
  return JSON.stringify(value);
}

/** @param {string} path @param {unknown} body @returns {Record<string, string>} */
export function written(path, body) {
  const withKey = Boolean(key.get());
  const json = JSON.stringify(body, null, 2);
  return {
    curl: curl("POST", BASE + path, body, withKey),
    Python: `import httpx${withKey ? "\nimport os" : ""}\n\nanswer = httpx.post(\n    ${JSON.stringify(BASE + path)},\n    json=${python(body, "    ")},\n`
      + `${withKey ? `    headers={"Authorization": f"Bearer {os.environ['RECALLD_KEY']}"},\n` : ""}    timeout=30,\n)\nprint(answer.raise_for_status().json()["text"])`,
    TypeScript: `const answer = await fetch(${JSON.stringify(BASE + path)}, {\n  method: "POST",\n  headers: { "content-type": "application/json"`
      + `${withKey ? ", authorization: `Bearer ${process.env.RECALLD_KEY}`" : ""} },\n  body: JSON.stringify(${json.replaceAll("\n", "\n  ")}),\n});\nif (!answer.ok) throw new Error(await answer.text());\nconsole.log((await answer.json()).text);`,
  };
}

/** The request in one of the languages, to copy. @param {{ path: string, body: unknown }} props */
export function Requests({ path, body }) {
  const [language, set] = useState("curl");
  const texts = written(path, body);
  return html`<section class="box"><h2>The request</h2>
    <div class="row" role="group" aria-label="Language">${Object.keys(texts).map((name) => html`<button type="button" class="small"
      aria-pressed=${name === language} onClick=${() => set(name)}>${name}</button>`)}</div>
    <${Code} text=${texts[language]} /></section>`;
}
