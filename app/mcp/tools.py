"""The table of the MCP tools: name, description, arguments and hints of each."""

from typing import Any

from app.mcp import knowledge_tools, memory_tools, work_tools
from app.mcp import schemas as args
from app.mcp.calls import Tool

TOOLS: dict[str, Tool[Any]] = {
    tool.name: tool
    for tool in (
        Tool(
            "remember",
            "Remember",
            "Store one lasting thing: a fact, a preference, an instruction, a lesson. Not small talk, not secrets. "
            "An equal memory is not stored twice. To correct one, give its memory_id in supersedes.",
            args.RememberArguments,
            memory_tools.remember,
            idempotent=True,
        ),
        Tool(
            "recall",
            "Recall",
            "Search long-term memory by meaning, names and words; best first. Use it before answering what may depend "
            "on earlier conversations. A weak match seldom answers.",
            args.RecallArguments,
            memory_tools.recall,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "get_context",
            "Get context",
            "All that bears on a message, as one text within a token budget: profile, facts, procedures, memories, "
            "past actions, task and recent messages. Use it at the start of a conversation or task; recall is for one "
            "question.",
            args.GetContext,
            knowledge_tools.get_context,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "log_action",
            "Log an action",
            "Record what you did and how it ended, once per task or tool call that matters, so that later runs learn "
            "from it.",
            args.LogAction,
            work_tools.log_action,
        ),
        Tool(
            "find_procedure",
            "Find a procedure",
            "Look up how something is done here, with steps and how often they worked. Use it before a task of more "
            "than one step.",
            args.FindProcedure,
            work_tools.find_procedure,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "update_task",
            "Update a task",
            "Keep the state of long work outside the conversation: begin a task, set its plan, mark a step, note "
            "something, end it. Answers the task's working memory; with task_id alone it only reads it.",
            args.UpdateTask,
            work_tools.update_task,
        ),
        Tool(
            "memory_feedback",
            "Memory feedback",
            "After answering: say which recalled memories helped and which misled, so that later searches rank better.",
            args.MemoryFeedback,
            memory_tools.memory_feedback,
            idempotent=True,
        ),
        Tool(
            "list_memories",
            "List memories",
            "Page through what is remembered, newest first. For a question use recall.",
            args.ListMemories,
            memory_tools.list_memories,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "get_memory",
            "Get a memory",
            "Read one memory in full, with its source and status.",
            args.GetMemory,
            memory_tools.get_memory,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "update_memory",
            "Update a memory",
            "Fix a memory that was stored wrongly; only the fields given change. If the world changed, use remember "
            "with supersedes.",
            args.UpdateMemory,
            memory_tools.update_memory,
            idempotent=True,
        ),
        Tool(
            "forget",
            "Forget",
            "Delete memories for good, by the memory_ids that recall gave, with the ones that they superseded. Only "
            "when the user asks for it; to correct one, use remember with supersedes.",
            args.Forget,
            memory_tools.forget,
            destroys=True,
            idempotent=True,
        ),
        Tool(
            "assert_fact",
            "Assert a fact",
            "Record subject, predicate and object with the time when it is true, such as who lives or works where. It "
            "ends the earlier fact that it contradicts.",
            args.AssertFact,
            knowledge_tools.assert_fact,
            idempotent=True,
        ),
        Tool(
            "find_facts",
            "Find facts",
            "Ask facts: what is true now, was true at a time (as_of), or was known at one (known_at).",
            args.FindFacts,
            knowledge_tools.find_facts,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "append_messages",
            "Append messages",
            "Keep the wording of a conversation, in order. Its messages become memories.",
            args.AppendMessages,
            knowledge_tools.append_messages,
        ),
        Tool(
            "get_profile",
            "Get the profile",
            "What is known of the user for good: name, home, interests, preferences.",
            args.GetProfile,
            knowledge_tools.get_profile,
            reads=True,
            idempotent=True,
        ),
        Tool(
            "update_profile",
            "Update the profile",
            "Add to the user's profile: lists grow, the rest is overwritten, null clears.",
            args.UpdateProfile,
            knowledge_tools.update_profile,
            idempotent=True,
        ),
    )
}
