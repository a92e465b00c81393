// How calls of libatta fail.

import CAtta

/// A call of libatta failed.
public struct AttaError: Error, CustomStringConvertible, Sendable {
    /// How a call went, as `atta_status`.
    public enum Status: Int32, Sendable {
        /// Text that is not UTF-8, an unknown name, a value out of range.
        case invalid = 1
        /// There is no such value, as of a token that the model does not have.
        case absent
        /// The session or generation is in use: by another thread, or by a generation.
        case busy
        /// The generation has ended.
        case end
        /// There is no event yet.
        case pending
        /// The model cannot be opened: no such file, a damaged one, an unsupported one.
        case model
        /// There is too little memory, or the budget is too small.
        case memory
        /// The tokens do not fit the context.
        case context
        /// A request was refused.
        case request
        /// Something else failed, such as a step of the model.
        case failed
        /// A bug in atta.
        case panic
        /// The session is suspended, and must be resumed first.
        case suspended
        /// A status of a later version.
        case unknown = -1
    }

    /// The kind of the failure.
    public let status: Status
    /// The words of the library.
    public let message: String

    public var description: String { message }
}

/// Throws the error of a status, unless it is 0.
func check(_ status: Int32) throws {
    guard status != 0 else { return }
    throw AttaError(
        status: AttaError.Status(rawValue: status) ?? .unknown,
        message: String(cString: atta_last_error())
    )
}

/// The handle that a function gives.
func made(_ call: (UnsafeMutablePointer<OpaquePointer?>) -> Int32) throws -> OpaquePointer {
    var out: OpaquePointer?
    try check(call(&out))
    guard let handle = out else {
        throw AttaError(status: .unknown, message: "the library gave nothing")
    }
    return handle
}

/// The values of the buffer that a function gives.
func values<T>(
    of type: T.Type, _ call: (UnsafeMutablePointer<OpaquePointer?>) -> Int32
) throws -> [T] {
    let buffer = try made(call)
    defer { atta_buffer_free(buffer) }
    guard let start = atta_buffer_data(buffer) else { return [] }
    let n = atta_buffer_size(buffer) / MemoryLayout<T>.stride
    return Array(UnsafeBufferPointer(start: start.assumingMemoryBound(to: T.self), count: n))
}

/// Calls with a text as pointer and size.
func withBytes<T>(_ text: String, _ call: (UnsafePointer<CChar>?, Int) throws -> T) rethrows -> T {
    let bytes = text.utf8.map { CChar(bitPattern: $0) }
    return try bytes.withUnsafeBufferPointer { try call($0.baseAddress, $0.count) }
}
