/** Memory for models of the Vercel AI SDK: `wrapLanguageModel({ model, middleware: recalldMiddleware({ … }) })`. */
import { Problem } from "./errors.js";
import { randomId } from "./transport.js";
/**
 * A middleware that recalls before each call of the model and remembers the conversation.
 *
 * A failing memory never fails the call: the model is asked without it, and `onEvent` gets `failed`. A `session` of
 * another user throws Problem `already_exists`: nothing would ever be stored.
 * The user's message is stored before the model is asked, so it stays when the model fails. The same prompt again, as in
 * a retry, is stored once. The answer of a stream that is cancelled is not stored.
 *
 * @example
 * const middleware = recalldMiddleware({ memory: ada });
 * const model = wrapLanguageModel({ model: openai("gpt-5"), middleware });
 */
export function recalldMiddleware(options) {
    const memory = new ConversationMemory(options);
    return {
        specificationVersion: "v4",
        async transformParams({ params }) {
            return { ...params, prompt: await memory.prepared(params.prompt, params.abortSignal) };
        },
        async wrapGenerate({ doGenerate }) {
            const result = await doGenerate();
            const answer = new Answer();
            for (const part of result.content)
                answer.add(part);
            await memory.store("assistant", answer.text);
            return result;
        },
        async wrapStream({ doStream }) {
            const result = await doStream();
            const answer = new Answer();
            const watched = new TransformStream({
                transform(chunk, controller) {
                    answer.add(chunk);
                    controller.enqueue(chunk);
                },
                flush: () => memory.store("assistant", answer.text),
            });
            return { ...result, stream: result.stream.pipeThrough(watched) };
        },
    };
}
class ConversationMemory {
    options;
    /** The block of the last user message: each step of a loop of tools sends that message again. */
    latest;
    session;
    constructor(options) {
        this.options = options;
        this.session = options.session ?? randomId();
    }
    /** The prompt with what is remembered in front of the last user message, which is stored. */
    async prepared(prompt, signal) {
        const index = prompt.map((turn) => turn.role).lastIndexOf("user");
        const turn = prompt[index];
        if (turn === undefined || turn.role === "system")
            return prompt;
        const query = textOf(turn.content);
        if (!query)
            return prompt;
        const key = fingerprint(this.session, prompt.slice(0, index + 1));
        const block = await this.recalled(query, key, signal);
        if (index === prompt.length - 1)
            await this.store("user", query, key);
        if (!block)
            return prompt;
        const enriched = { ...turn, content: [{ type: "text", text: block }, ...turn.content] };
        return [...prompt.slice(0, index), enriched, ...prompt.slice(index + 1)];
    }
    /** The block for a query; empty when nothing is remembered or the memory fails. */
    async recalled(query, key, signal) {
        const { memory, recall = true, budget = 1500, timeout = 5000 } = this.options;
        if (!recall)
            return "";
        if (this.latest?.key === key)
            return this.latest.text;
        try {
            const call = { timeout, retries: 0, ...(signal ? { signal } : {}) };
            // the prompt has the conversation's messages already
            const context = await memory.session(this.session).context(query, { budget, exclude: ["messages"], ...call });
            const found = context.sections.some((section) => section.items.length > 0);
            this.latest = { key, text: found ? context.text : "" };
            this.tell({ type: "recalled", context });
            return this.latest.text;
        }
        catch (error) {
            this.tell({ type: "failed", during: "recall", error });
            return "";
        }
    }
    /** Appends one message; `key` makes the same message in the same place one. */
    async store(role, content, key) {
        const { memory, remember = true, timeout = 5000 } = this.options;
        if (!remember || !content.trim())
            return;
        try {
            const call = { timeout, retries: 1, ...(key ? { idempotencyKey: key } : {}) };
            const stored = await memory.session(this.session).append({ role, content }, call);
            this.tell({ type: "remembered", role, memoryIds: stored.memory_ids });
        }
        catch (error) {
            if (error instanceof Problem && error.code === "already_exists")
                throw error;
            this.tell({ type: "failed", during: "remember", error });
        }
    }
    tell(event) {
        try {
            this.options.onEvent?.(event);
        }
        catch {
            // a hook must not fail the call of the model
        }
    }
}
/** What a model says. Texts beside each other are one, cut for citations; a tool or a thought between begins a line. */
class Answer {
    text = "";
    ended = false;
    /** A part of an answer, or of a stream. */
    add(part) {
        if (/^(tool|reasoning|file)/.test(part.type))
            this.ended = this.text !== "";
        const words = part.type === "text" ? part.text : part.type === "text-delta" ? part.delta : "";
        if (!words)
            return;
        this.text += (this.ended ? "\n" : "") + words;
        this.ended = false;
    }
}
function textOf(content) {
    return content
        .flatMap((part) => (part.type === "text" && part.text ? [part.text] : []))
        .join("\n")
        .trim();
}
/** An idempotency key of a conversation up to a message. System messages do not count: they may hold the time. */
function fingerprint(session, prompt) {
    const said = prompt.filter((turn) => turn.role !== "system");
    const text = JSON.stringify([session, said], (_, value) => (ArrayBuffer.isView(value) ? value.byteLength : value));
    return `ai-${said.length}-${hash(text)}`;
}
/** 53 bits (cyrb53): enough to tell prompts of one session apart, and no secret. */
function hash(text) {
    let [high, low] = [0xdeadbeef, 0x41c6ce57];
    for (let at = 0; at < text.length; at++) {
        const code = text.charCodeAt(at);
        high = Math.imul(high ^ code, 2654435761);
        low = Math.imul(low ^ code, 1597334677);
    }
    high = Math.imul(high ^ (high >>> 16), 2246822507) ^ Math.imul(low ^ (low >>> 13), 3266489909);
    low = Math.imul(low ^ (low >>> 16), 2246822507) ^ Math.imul(high ^ (high >>> 13), 3266489909);
    return (4294967296 * (2097151 & low) + (high >>> 0)).toString(36);
}
