// Types of @atta/web. Bodies and responses of requests are those of OpenAI's interface; the fields here are those that most
// programs use, and all others that `atta serve` knows are taken, too.

/** Where a model is: an address, all its files, or a file of a repository on Hugging Face. */
export type ModelSource = string | URL | File | Blob | readonly File[] | FileList | HubFile;

export interface HubFile {
  /** Such as "org/name". */
  repo: string;
  /** Path of a GGUF file in it; any file of a split model. */
  file: string;
  /** A branch, tag or commit; "main" if absent. */
  revision?: string;
  /** Another hub than https://huggingface.co. */
  endpoint?: string;
}

export type Build = "mt-relaxed" | "mt-simd" | "st-simd";

export interface LoadOptions {
  /** Threads that compute. The cores less one if absent; 1 where the page has no shared memory. */
  threads?: number;
  /**
   * WebGPU, with threads only. "off" (if absent): the CPU alone. "auto": the browser's GPU, or the CPU where there is none
   * or it lacks what the model needs; `stats()` says why. "on": a GPU, a software one counts, or an error.
   */
  gpu?: "off" | "auto" | "on";
  /** The last layers that lie on the GPU, with the head; as many as `gpuBudget` has room for if absent. */
  gpuLayers?: number;
  /** Bytes of the GPU's memory; no limit but its own if absent. */
  gpuBudget?: number;
  /** Bytes that the model may take; what does not fit is read again for each token. 1.5 GiB, on phones 0.7, if absent. */
  ramBudget?: number;
  /** Whether files of servers are kept for the next visit. "none" needs a model that fits the budget. */
  cache?: "opfs" | "none";
  /** Told while files are downloaded, and at the end. */
  onProgress?: (progress: Progress) => void;
  /** Told of warnings, such as those of unknown fields of a request; console.warn if absent. */
  onNote?: (note: string) => void;
  signal?: AbortSignal;
  /** Takes this build of the module, or fails. */
  build?: Build;
  /** Context length in tokens; what the model and the budget allow if absent. */
  nCtx?: number;
  /** Prompt tokens per step. */
  nBatch?: number;
  /** Requests that are answered at the same time; 1 if absent, others wait. */
  nParallel?: number;
  /** Type of the KV cache. */
  kv?: "f32" | "f16" | "q8" | "q4";
  /** "chatml", "plain", or Jinja, in place of the file's own. */
  chatTemplate?: string;
  /** The name of the model in responses. */
  name?: string;
  /** Node: where files are kept; ~/.cache/atta/web if absent. */
  folder?: string;
  /** The folder of the builds of the module, if it is not `dist` of this package. */
  modules?: string | URL;
}

export interface Progress {
  /** Bytes that are here. */
  loaded: number;
  total: number;
  /** Bytes of `loaded` that were here before. */
  cached: number;
  build: Build;
}

export interface RequestOptions {
  /** Ends the request within a token. */
  signal?: AbortSignal;
}

export interface ChatMessage {
  role: "system" | "developer" | "user" | "assistant" | "tool";
  content?: string | null | readonly { type: string; text?: string; [field: string]: unknown }[];
  name?: string;
  tool_calls?: readonly ToolCall[];
  tool_call_id?: string;
  [field: string]: unknown;
}

export interface ToolCall {
  id: string;
  type: "function";
  function: { name: string; arguments: string };
}

export interface Tool {
  type: "function";
  function: { name: string; description?: string; parameters?: object; strict?: boolean };
}

export type ResponseFormat =
  | { type: "text" }
  | { type: "json_object" }
  /** The answer is sure to be valid by the schema. */
  | { type: "json_schema"; json_schema: { name: string; schema: object; strict?: boolean; description?: string } };

export interface SamplingFields {
  model?: string;
  max_tokens?: number;
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  seed?: number;
  stop?: string | readonly string[];
  n?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  logit_bias?: Record<string, number>;
  stream_options?: { include_usage?: boolean };
  /** A GBNF grammar. */
  grammar?: string;
  [field: string]: unknown;
}

export interface ChatRequest extends SamplingFields {
  messages: readonly ChatMessage[];
  tools?: readonly Tool[];
  tool_choice?: "none" | "auto" | "required" | { type: "function"; function: { name: string } };
  response_format?: ResponseFormat;
  max_completion_tokens?: number;
  logprobs?: boolean;
  top_logprobs?: number;
}

export interface CompletionRequest extends SamplingFields {
  prompt: string | readonly number[];
  logprobs?: number;
  echo?: boolean;
}

export type FinishReason = "stop" | "length" | "tool_calls" | "content_filter";

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  total_tokens: number;
  [field: string]: unknown;
}

export interface ChatCompletion {
  id: string;
  object: "chat.completion";
  created: number;
  model: string;
  choices: {
    index: number;
    message: { role: "assistant"; content: string | null; tool_calls?: ToolCall[]; reasoning_content?: string; refusal?: string | null };
    finish_reason: FinishReason;
    logprobs?: unknown;
  }[];
  usage?: Usage;
  [field: string]: unknown;
}

export interface ChatCompletionChunk {
  id: string;
  object: "chat.completion.chunk";
  created: number;
  model: string;
  choices: {
    index: number;
    delta: {
      role?: "assistant";
      content?: string | null;
      reasoning_content?: string;
      tool_calls?: { index: number; id?: string; type?: "function"; function?: { name?: string; arguments?: string } }[];
    };
    finish_reason: FinishReason | null;
    logprobs?: unknown;
  }[];
  usage?: Usage | null;
  [field: string]: unknown;
}

export interface Completion {
  id: string;
  object: "text_completion";
  created: number;
  model: string;
  choices: { index: number; text: string; finish_reason: FinishReason | null; logprobs?: unknown }[];
  usage?: Usage | null;
  [field: string]: unknown;
}

export interface EmbeddingRequest {
  input: string | readonly string[] | readonly number[] | readonly (readonly number[])[];
  model?: string;
  dimensions?: number;
  encoding_format?: "float" | "base64";
  [field: string]: unknown;
}

export interface EmbeddingResponse {
  object: "list";
  data: { object: "embedding"; index: number; embedding: number[] }[];
  model: string;
  usage: { prompt_tokens: number; total_tokens: number };
}

/** The chunks of a streamed response, which are read once. Leaving the loop, or `controller.abort()`, ends the request. */
export interface ChunkStream<T> extends AsyncIterable<T> {
  readonly controller: AbortController;
  /** The chunks as lines of JSON. */
  toReadableStream(): ReadableStream<Uint8Array>;
}

/** A function that streams if the body says so. */
export interface Create<Body, Whole, Chunk> {
  (body: Body & { stream: true }, options?: RequestOptions): Promise<ChunkStream<Chunk>>;
  (body: Body & { stream?: false | null }, options?: RequestOptions): Promise<Whole>;
}

export interface Stats {
  build: Build;
  /** Why it is not a better build. */
  reason: string;
  /** What lies on the GPU, with counters; null if nothing does. */
  gpu: {
    name: string;
    /** Of the model's `nLayers` layers. */
    layers: number;
    nLayers: number;
    /** Memory that the model takes there. */
    bytes: number;
    submits: number;
    dispatches: number;
    pipelines: number;
    waits: number;
  } | null;
  /** Why nothing does: there is none, or it was lost. */
  gpuReason: string | null;
  threads: number;
  /** The instruction set of the kernels: "relaxed" or "simd128". */
  isa: string;
  name: string;
  weights: string;
  /** Bytes of the module's memory, the most that it can have, and those that the engine has reserved by name. */
  memory: { bytes: number; maximum: number; reserved: number };
  /** Bytes of the files: here, of all, here before this visit, and fetched in it. */
  download: { loaded: number; total: number; cached: number; fetched: number };
  loadMs: number;
  /** The last answer that told its usage. */
  last: {
    promptTokens: number;
    completionTokens: number;
    /** Until the first text. */
    firstMs: number;
    totalMs: number;
    promptPerSecond?: number;
    tokensPerSecond?: number;
  } | null;
}

export interface Model extends AsyncDisposable {
  readonly chat: { readonly completions: { create: Create<ChatRequest, ChatCompletion, ChatCompletionChunk> } };
  readonly completions: { create: Create<CompletionRequest, Completion, Completion> };
  readonly embeddings: { create(body: EmbeddingRequest, options?: RequestOptions): Promise<EmbeddingResponse> };
  /** Numbers of the tokens of a text. `special` (true if absent) reads special tokens, `bos` puts the first one in front. */
  tokenize(text: string, options?: RequestOptions & { special?: boolean; bos?: boolean }): Promise<number[]>;
  detokenize(tokens: Iterable<number>, options?: RequestOptions): Promise<string>;
  /**
   * Sends a request to another path of `atta serve`, such as "/completion", "/reranking" or "/props": a GET without a
   * body. Gives the texts of the response. Anthropic's, Ollama's and OpenAI's newer interface (responses) are not here.
   */
  request(path: string, body?: object, options?: RequestOptions): AsyncIterable<string>;
  stats(): Promise<Stats>;
  readonly info: { readonly name: string; readonly isa: string; readonly nCtxTrain: number };
  /** Ends all requests and frees all memory. */
  dispose(): Promise<void>;
}

export function load(source: ModelSource, options?: LoadOptions): Promise<Model>;

/** What this place can run, and the build that `load` would take; null if none. */
export function support(): { simd: boolean; relaxed: boolean; shared: boolean; build: Build | null; reason: string };

/** The error of everything here. */
export class AttaError extends Error {
  readonly code: string;
}
/** Codes: no_simd, no_threads, no_relaxed, no_workers, no_module, no_gpu. */
export class UnsupportedError extends AttaError {}
/** Codes: network, http, not_found, changed, truncated, no_length, file. */
export class SourceError extends AttaError {}
/** Codes: quota, evicted, locked, no_storage. */
export class StorageError extends AttaError {}
/** Code: memory. */
export class MemoryError extends AttaError {}
/** Code: model. */
export class ModelError extends AttaError {}
/** Codes: request, context, busy. */
export class RequestError extends AttaError {}
/** Codes: failed; trap, after which the model is gone. */
export class EngineError extends AttaError {}
/** Code: disposed. */
export class DisposedError extends AttaError {}
/** Code: aborted. */
export class AbortError extends AttaError {}
