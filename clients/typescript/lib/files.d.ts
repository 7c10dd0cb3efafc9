import type { UserMemory } from "./user.js";
/** A command that cannot be done, in the words that the model reads. */
export declare class FileRefused extends Error {
}
/** What `betaMemoryTool` of `@anthropic-ai/sdk/helpers/beta/memory` takes. */
export interface MemoryFiles {
    view(command: {
        path: string;
        view_range?: number[] | null;
    }): Promise<string>;
    create(command: {
        path: string;
        file_text: string;
    }): Promise<string>;
    str_replace(command: {
        path: string;
        old_str: string;
        new_str: string;
    }): Promise<string>;
    insert(command: {
        path: string;
        insert_line: number;
        insert_text: string;
    }): Promise<string>;
    delete(command: {
        path: string;
    }): Promise<string>;
    rename(command: {
        old_path: string;
        new_path: string;
    }): Promise<string>;
}
/**
 * Texts under paths below /memories, which no search sees. It answers in the words of the SDK's own backend.
 *
 * @throws TypeError when no agent was named.
 */
export declare function memoryFiles(memory: UserMemory): MemoryFiles;
