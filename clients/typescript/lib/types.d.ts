/** Types of requests and answers, taken from the service's OpenAPI document. */
import type { components, paths } from "../schema.js";
export type { components, paths };
/** Every shape of the API by its name: `Schemas["Memory"]`. */
export type Schemas = components["schemas"];
export type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
export type PathOf<M extends Method> = {
    [P in keyof paths]: Lowercase<M> extends keyof paths[P] ? P : never;
}[keyof paths];
export type OperationOf<M extends Method, P extends PathOf<M>> = paths[P][Lowercase<M> & keyof paths[P]];
type Parameters<O, K extends string> = O extends {
    parameters: {
        [N in K]: infer T;
    };
} ? {
    [N in K]: T;
} : O extends {
    parameters: {
        [N in K]?: infer T;
    };
} ? unknown extends T ? {} : {
    [N in K]?: T;
} : {};
/** A body that is a file: what the ending of its name says, or `mediaType`. */
export interface FileBody {
    file: Uint8Array | Blob | string;
    /** Of text in another encoding than UTF-8: "text/plain; charset=iso-8859-1". */
    mediaType?: "text/markdown" | "text/plain" | "text/html" | "application/pdf" | `text/${string}; charset=${string}`;
}
type Body<O> = O extends {
    requestBody: {
        content: {
            "application/octet-stream": unknown;
        };
    };
} ? FileBody : O extends {
    requestBody: {
        content: {
            "application/json": infer T;
        };
    };
} ? {
    body: T;
} : O extends {
    requestBody?: {
        content: {
            "application/json": infer T;
        };
    };
} ? unknown extends T ? {} : {
    body?: T;
} : {};
type Content<R> = R extends {
    content: infer C;
} ? C[keyof C] : undefined;
export interface CallOptions {
    /** Ends the call early. */
    signal?: AbortSignal;
    /** Milliseconds for each try; default: the client's. */
    timeout?: number;
    /** Further tries; default: the client's. */
    retries?: number;
    /** Sent with a POST; default: a random one, so that a retry is never a second write. */
    idempotencyKey?: string;
    /** Version of the record that a write expects; another one answers 412. */
    ifMatch?: number | string;
    /** "*": a write creates, and answers 412 where the record is there. */
    ifNoneMatch?: "*";
}
/** What one operation takes: `path`, `query` and `body`, as the document declares them. */
export type RequestOptions<O> = O extends unknown ? Parameters<O, "path"> & Parameters<O, "query"> & Body<O> & CallOptions : never;
/** What one operation answers: JSON, text, or undefined where there is no content. */
export type ResultOf<O> = O extends {
    responses: infer R;
} ? {
    [S in Exclude<keyof R, "default">]: Content<R[S]>;
}[Exclude<keyof R, "default">] : never;
/** Options may be left out where the operation needs none. */
export type Optional<T> = {} extends T ? [options?: T] : [options: T];
