import type { Schemas } from "./types.js";
import type { UserMemory } from "./user.js";
export interface RecalldMiddlewareOptions {
    /** Whose memory it is: `new Recalld().user("ada", { agent: "support" })`. It needs an agent. */
    memory: UserMemory;
    /** Id of the conversation that is remembered; default: a new one. No other user's conversation has the same. */
    session?: string;
    /** Most tokens that are added to a prompt; default 1500. */
    budget?: number;
    /** Add what is remembered to the prompt; default true. */
    recall?: boolean;
    /** Store the user's message before the call and the answer after it; default true. */
    remember?: boolean;
    /** Most milliseconds that each call of the memory may take; default 5000. */
    timeout?: number;
    /** Is told what was done. What it throws is ignored. */
    onEvent?: (event: RecalldEvent) => void;
}
/** What the middleware did in one model call. */
export type RecalldEvent = {
    type: "recalled";
    context: Schemas["Context"];
} | {
    type: "remembered";
    role: "user" | "assistant";
    memoryIds: string[];
} | {
    type: "failed";
    during: "recall" | "remember";
    error: unknown;
};
/** Fits `LanguageModelMiddleware` of AI SDK 5, 6 and 7, whose types differ; `any` is where they do. */
export interface RecalldMiddleware {
    readonly specificationVersion: any;
    transformParams(options: {
        params: any;
    }): Promise<any>;
    wrapGenerate(options: {
        doGenerate: () => PromiseLike<any>;
    }): Promise<any>;
    wrapStream(options: {
        doStream: () => PromiseLike<any>;
    }): Promise<any>;
}
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
export declare function recalldMiddleware(options: RecalldMiddlewareOptions): RecalldMiddleware;
