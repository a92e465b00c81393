// Sessions: one text, whose tokens the program may see or take back.

import CAtta

/// One text with its KV cache. One thread at a time may use it; to others it is busy.
public final class Session: @unchecked Sendable {
    let handle: OpaquePointer

    init(handle: OpaquePointer) { self.handle = handle }

    deinit { atta_session_free(handle) }

    /// The tokens of the text.
    public func tokens() throws -> [UInt32] {
        try values(of: UInt32.self) { atta_session_tokens(handle, $0) }
    }

    /// The logits after the last token, one for each of the vocabulary.
    public func logits() throws -> [Float] {
        try values(of: Float.self) { atta_session_logits(handle, $0) }
    }

    /// Generates text behind a prompt, or goes on with the text without one. The fields are
    /// llama.cpp's: `["max_tokens": 32, "temperature": 0.7]`. The session is busy until the
    /// generation has ended or is gone.
    public func generate(_ prompt: String? = nil, _ fields: [String: Any] = [:]) throws -> Generation {
        var request = fields
        if let prompt { request["prompt"] = prompt }
        return try withBytes(json(request)) { start, n in
            Generation(handle: try made { atta_generate(handle, start, n, $0) })
        }
    }

    /// Appends tokens to the text, and evaluates them.
    public func append(_ tokens: [UInt32]) throws {
        try check(atta_session_append(handle, tokens, tokens.count))
    }

    /// Removes all tokens from the `n`th on, and returns how many are left.
    @discardableResult
    public func truncate(_ n: Int) throws -> Int {
        var nLeft = 0
        try check(atta_session_truncate(handle, n, &nLeft))
        return nLeft
    }

    /// The text and its KV cache, for `load`.
    public func save() throws -> [UInt8] {
        try values(of: UInt8.self) { atta_session_save(handle, $0) }
    }

    /// Replaces the text by one of `save`, or of the file of `suspend`; it is checked.
    public func load(_ state: [UInt8]) throws {
        try check(atta_session_load(handle, state, state.count))
    }

    /// Sets the LoRA adapters among the model's, each with its scale, in order. With others than
    /// before the session becomes empty.
    public func setLora(_ adapters: [(name: String, scale: Double)]) throws {
        let list = adapters.map { ["name": $0.name, "scale": $0.scale] as [String: Any] }
        try withBytes(json(list)) { try check(atta_session_set_lora(handle, $0, $1)) }
    }

    /// Frees the memory of the state until `resume`, such as when the app goes to the background.
    /// The state is kept in the file; without one the text is evaluated again. Where the process is
    /// ended meanwhile, a later one may give the bytes of the file to `load`.
    public func suspend(to path: String? = nil) throws {
        try check(atta_session_suspend(handle, path))
    }

    /// Restores the state, and removes its file: the text goes on with the same bits.
    public func resume() throws { try check(atta_session_resume(handle)) }
}
