/**
 * The pages in the order of the menu. A page is a module in this folder; README.md beside the package says how one is
 * added. `verb` is what a key needs to see the page.
 * @type {{ name: string, title: string, load: () => Promise<{ default: import("../console.js").Page }>, verb: "read" | "admin" }[]}
 */
export const PAGES = [
  { name: "overview", title: "Overview", load: () => import("./overview.js"), verb: "read" },
  { name: "memories", title: "Memories", load: () => import("./memories.js"), verb: "read" },
  { name: "sessions", title: "Sessions", load: () => import("./sessions.js"), verb: "read" },
  { name: "prompt", title: "Prompt", load: () => import("./prompt.js"), verb: "read" },
  { name: "owners", title: "Users and agents", load: () => import("./owners.js"), verb: "read" },
  { name: "tasks", title: "Tasks", load: () => import("./tasks.js"), verb: "read" },
  { name: "operations", title: "Operations", load: () => import("./operations.js"), verb: "read" },
  { name: "findings", title: "Findings", load: () => import("./findings.js"), verb: "read" },
];
