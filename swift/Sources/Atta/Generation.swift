// Texts and responses as they come.
//
// The one idea: the program pulls; nothing of a text in a session is computed before the next event
// is asked for. A stream asks on a queue of its own, so that no thread of Swift's pool waits.

import CAtta
import Dispatch

/// An event of a generation.
public struct Event: Sendable {
    /// The kind of an event, as `atta_event_kind`.
    public enum Kind: Int32, Sendable {
        /// `done` of `total` tokens of the prompt are evaluated.
        case prompt
        /// More text, in whole characters.
        case text
        /// A token of the text, which came before.
        case token
        /// A warning for the user.
        case note
        /// A response to a request, or one event of a streamed one.
        case json
        /// The last event; its text says how a text in a session went.
        case done
        /// A kind of a later version.
        case unknown = -1
    }

    public let kind: Kind
    /// More text; JSON of a response, of a token's log-probabilities, or of how it went.
    public let text: String
    public let token: UInt32
    /// Tokens so far.
    public let done: UInt64
    /// Tokens in all.
    public let total: UInt64
}

/// A text in a session, or the response to a request. One thread at a time may ask for its events;
/// any may cancel it.
public final class Generation: @unchecked Sendable {
    let handle: OpaquePointer
    private let queue = DispatchQueue(label: "atta.generation")

    init(handle: OpaquePointer) { self.handle = handle }

    deinit { atta_generation_free(handle) }

    /// The next event, which this thread computes or waits for; nil behind the last one.
    public func next() throws -> Event? {
        var event = atta_event()
        let status = atta_next(handle, &event, MemoryLayout<atta_event>.size)
        if status == AttaError.Status.end.rawValue { return nil }
        try check(status)
        return Event(
            kind: Event.Kind(rawValue: event.kind) ?? .unknown,
            text: event.text.map { String(cString: $0) } ?? "",
            token: event.token,
            done: event.n_done,
            total: event.n_total
        )
    }

    /// Ends it early, from any thread: the events that follow are the last ones.
    public func cancel() { atta_cancel(handle) }

    /// As `Session.suspend`, between two events.
    public func suspend(to path: String? = nil) throws {
        try check(atta_generation_suspend(handle, path))
    }

    /// As `Session.resume`: the next event is the one that would have come.
    public func resume() throws { try check(atta_generation_resume(handle)) }

    /// The events; a task that is cancelled cancels the generation.
    public var events: AsyncThrowingStream<Event, Error> {
        AsyncThrowingStream(unfolding: { [self] in
            try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation { continuation in
                    queue.async { continuation.resume(with: Result { try self.next() }) }
                }
            } onCancel: {
                cancel()
            }
        })
    }

    /// The pieces of the text.
    public var texts: AsyncThrowingStream<String, Error> {
        AsyncThrowingStream(pulling: events) { $0.kind == .text ? $0.text : nil }
    }
}

extension AsyncThrowingStream where Failure == Error {
    /// What `pick` makes of the events of another stream, without those of which it makes nothing.
    init(
        pulling events: AsyncThrowingStream<Event, Error>,
        pick: @escaping (Event) throws -> Element?
    ) {
        var iterator = events.makeAsyncIterator()
        self.init(unfolding: {
            while let event = try await iterator.next() {
                if let element = try pick(event) { return element }
            }
            return nil
        })
    }
}
