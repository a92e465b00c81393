// Models: loaded once, shared by sessions and requests.

import CAtta
import Foundation

/// How hot the machine is. No text changes by it.
public enum Heat: Int32, Sendable {
    /// All threads compute.
    case nominal
    /// Half of the threads.
    case elevated
    /// A quarter of the threads, which rest after each step for as long as it took.
    case critical
    /// Nothing is generated until the level falls: who asks for an event waits.
    case emergency
}

#if canImport(Darwin)
extension Heat {
    /// The level of `ProcessInfo.processInfo.thermalState`.
    public init(_ state: ProcessInfo.ThermalState) {
        switch state {
        case .nominal: self = .nominal
        case .fair: self = .elevated
        case .serious: self = .critical
        case .critical: self = .emergency
        @unknown default: self = .critical
        }
    }
}
#endif

/// A LoRA adapter. With a scale of 0 it waits for texts that name it.
public struct Lora: Sendable {
    public var path, name: String
    public var scale: Double

    public init(path: String, name: String = "", scale: Double = 1) {
        self.path = path
        self.name = name
        self.scale = scale
    }
}

/// Options of models, and those of sessions among them; nil is the library's default.
public struct Options: Sendable {
    /// Of models and sessions: context length, tokens of a prompt per step, tokens that stay at the
    /// beginning when a full context is shifted.
    public var ctx, batch, keep: Int?
    /// Of models and sessions: f32, f16, q8 or q4.
    public var kv: String?
    /// Of models: threads, requests at the same time, experts, bytes.
    public var threads, parallel, experts, ramBudget: Int?
    /// Of models: mapped, resident or streamed; the name in responses; chatml, plain, or Jinja.
    public var weights, name, chatTemplate: String?
    /// Of models: adapters.
    public var lora: [Lora] = []

    public init() {}

    /// The adapters as JSON; nil without any.
    private func loraJSON() throws -> String? {
        if lora.isEmpty { return nil }
        return try json(lora.map { ["path": $0.path, "name": $0.name, "scale": $0.scale] as [String: Any] })
    }

    /// Calls with the options of the library.
    func with<T>(_ call: (OpaquePointer) throws -> T) throws -> T {
        let options = try made { atta_options_new($0) }
        defer { atta_options_free(options) }
        let numbers = [
            "ctx": ctx, "batch": batch, "keep": keep, "threads": threads, "parallel": parallel,
            "experts": experts, "ram_budget": ramBudget,
        ]
        for case let (key, value?) in numbers {
            guard let number = UInt64(exactly: value) else {
                throw AttaError(status: .invalid, message: "option \(key) cannot be \(value)")
            }
            try check(atta_options_set_u64(options, key, number))
        }
        let texts = try [
            "kv": kv, "weights": weights, "name": name, "chat_template": chatTemplate,
            "lora": loraJSON(),
        ]
        for case let (key, value?) in texts {
            try withBytes(value) { try check(atta_options_set_text(options, key, $0, $1)) }
        }
        return try call(options)
    }
}

/// A loaded model. Any number of threads may use it at the same time.
public final class Model: @unchecked Sendable {
    let handle: OpaquePointer

    /// Opens a GGUF or QSF file, or a split model by any of its files.
    public init(path: String, options: Options = Options()) throws {
        handle = try options.with { options in try made { atta_model_open(path, options, $0) } }
    }

    deinit { atta_model_free(handle) }

    /// A number of the model, such as "n_ctx_train" or "token_eos"; nil if it has none.
    public func number(_ name: String) throws -> UInt64? {
        var number: UInt64 = 0
        let status = atta_model_number(handle, name, &number)
        if status == AttaError.Status.absent.rawValue { return nil }
        try check(status)
        return number
    }

    /// A text of the model, or a value of its file's metadata; nil if it has none.
    public func text(_ name: String) throws -> String? {
        do {
            let bytes = try values(of: UInt8.self) { atta_model_text(handle, name, $0) }
            return String(decoding: bytes, as: UTF8.self)
        } catch let error as AttaError where error.status == .absent {
            return nil
        }
    }

    /// Says how hot the machine is.
    public func setHeat(_ heat: Heat) throws { try check(atta_model_set_heat(handle, heat.rawValue)) }

    /// Frees the KV cache of requests, which the next request makes again; none may be running.
    public func suspend() throws { try check(atta_model_suspend(handle)) }

    /// The tokens of a text. `special` parses the texts of special tokens, `bos` puts
    /// begin-of-sequence in front if the model wants it.
    public func tokenize(_ text: String, special: Bool = false, bos: Bool = false) throws -> [UInt32] {
        let flags: UInt32 = (special ? 1 : 0) + (bos ? 2 : 0)
        return try withBytes(text) { start, n in
            try values(of: UInt32.self) { atta_tokenize(handle, start, n, flags, $0) }
        }
    }

    /// The text of tokens.
    public func detokenize(_ tokens: [UInt32], special: Bool = false) throws -> String {
        let bytes = try values(of: UInt8.self) {
            atta_detokenize(handle, tokens, tokens.count, special ? 1 : 0, $0)
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// A session with a KV cache of its own; what is not set is as for the model.
    public func session(options: Options = Options()) throws -> Session {
        try options.with { options in
            Session(handle: try made { atta_session_new(handle, options, $0) })
        }
    }

    /// Sends a body of JSON to a path of `atta serve`; without a body it is a GET.
    public func stream(_ path: String, body: String?) throws -> Generation {
        guard let body else {
            return Generation(handle: try made { atta_request(handle, path, nil, 0, $0) })
        }
        return try withBytes(body) { start, n in
            Generation(handle: try made { atta_request(handle, path, start, n, $0) })
        }
    }

    /// The whole response to a request, as JSON.
    public func request(_ path: String, body: String?) async throws -> String {
        for try await event in try stream(path, body: body).events where event.kind == .json {
            return event.text
        }
        throw AttaError(status: .request, message: "no response")
    }

    /// The pieces of the answer to a conversation of `["role": …, "content": …]`; the fields are
    /// OpenAI's.
    public func chat(
        _ messages: [[String: Any]], _ fields: [String: Any] = [:]
    ) throws -> AsyncThrowingStream<String, Error> {
        var body = fields
        body["messages"] = messages
        body["stream"] = true
        let events = try stream("/v1/chat/completions", body: json(body)).events
        return AsyncThrowingStream(pulling: events) { event in
            guard event.kind == .json else { return nil }
            return try content(ofChunk: event.text)
        }
    }
}

/// JSON of an object or a list.
func json(_ object: Any) throws -> String {
    guard JSONSerialization.isValidJSONObject(object) else {
        throw AttaError(status: .invalid, message: "this cannot be JSON: \(object)")
    }
    let data = try JSONSerialization.data(withJSONObject: object)
    return String(decoding: data, as: UTF8.self)
}

/// The text in a chunk of a chat completion; nil without any.
private func content(ofChunk text: String) throws -> String? {
    let chunk = try JSONSerialization.jsonObject(with: Data(text.utf8)) as? [String: Any]
    if let error = chunk?["error"] as? [String: Any] {
        throw AttaError(status: .request, message: error["message"] as? String ?? text)
    }
    let choices = chunk?["choices"] as? [[String: Any]]
    let delta = choices?.first?["delta"] as? [String: Any]
    return delta?["content"] as? String
}
