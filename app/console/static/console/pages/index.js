/**
 * The pages in the order of the menu. A page is a module in this folder; README.md beside the package says how one is
 * added. `verb` is what a key needs to see the page; `group` is the heading of the menu that it stands under.
 * A `hidden` page is in no menu.
 * @type {{ name: string, icon: string, title: string, group: string, hidden?: boolean, load: () => Promise<{ default: import("../console.js").Page }>, verb: "read" | "admin" }[]}
 */
export const PAGES = [
  { name: "overview", icon: "gauge", title: "Overview", group: "", load: () => import("./overview.js"), verb: "read" },
  { name: "owners", icon: "users", title: "People and agents", group: "", load: () => import("./owners.js"), verb: "read" },
  { name: "prompt", icon: "text-quote", title: "Prompt", group: "", load: () => import("./prompt.js"), verb: "read" },
  { name: "memories", icon: "notebook-text", title: "Memories", group: "What is kept", load: () => import("./memories.js"), verb: "read" },
  { name: "sessions", icon: "messages-square", title: "Sessions", group: "What is kept", load: () => import("./sessions.js"), verb: "read" },
  { name: "tasks", icon: "list-checks", title: "Tasks", group: "What is kept", load: () => import("./tasks.js"), verb: "read" },
  { name: "findings", icon: "lightbulb", title: "Findings", group: "What is kept", load: () => import("./findings.js"), verb: "read" },
  { name: "operations", icon: "server-cog", title: "Operations", group: "The service", load: () => import("./operations.js"), verb: "read" },
  { name: "components", icon: "check", title: "Components", group: "", hidden: true, load: () => import("./components.js"), verb: "read" },
];
