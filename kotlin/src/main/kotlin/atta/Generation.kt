/*
 * Texts and responses as they come.
 *
 * Knows no field of a request. The one idea: the program pulls; nothing of a text in a session is
 * computed before the next event is asked for, on the thread that asks.
 */
package atta

import com.sun.jna.Pointer
import java.io.File

/** An event of a generation. */
public data class Event(
    /** What happened. */
    val kind: Kind,
    /** More text; JSON of a response, of a token's log-probabilities, or of how it went. */
    val text: String,
    /** The token. */
    val token: Int,
    /** Tokens so far. */
    val done: Long,
    /** Tokens in all. */
    val total: Long,
) {
    /** The kind of an event, as `atta_event_kind`. */
    public enum class Kind {
        /** [done] of [total] tokens of the prompt are evaluated. */
        PROMPT,

        /** More text, in whole characters. */
        TEXT,

        /** A token of the text, which came before. */
        TOKEN,

        /** A warning for the user. */
        NOTE,

        /** A response to a request, or one event of a streamed one. */
        JSON,

        /** The last event; its text says how a text in a session went. */
        DONE,

        /** A kind of a later version. */
        UNKNOWN,
    }
}

/** What came of waiting for an event. */
internal sealed interface Polled {
    data object Nothing : Polled

    data object End : Polled

    class One(val event: Event) : Polled
}

/**
 * A text in a session, or the response to a request. One thread at a time may ask for its events;
 * any thread may [cancel] or [close] it. A session is busy until its generation has ended or is
 * closed.
 */
public class Generation internal constructor(handle: Pointer) :
    Handle("generation", handle), Iterable<Event> {
    private val raw = RawEvent()

    /**
     * The next event; null behind the last one.
     *
     * @throws InterruptedException if the thread is interrupted while it waits.
     */
    public fun next(): Event? {
        while (true) {
            if (Thread.interrupted()) throw InterruptedException("while waiting for an event")
            when (val polled = poll()) {
                is Polled.One -> return polled.event
                Polled.End -> return null
                Polled.Nothing -> {}
            }
        }
    }

    /** Waits for an event, a tenth of a second at most unless a step takes longer. */
    internal fun poll(): Polled = with { handle ->
        val size = Size(raw.size().toLong())
        when (val status = lib.atta_next_within(handle, PATIENCE, raw, size)) {
            Status.PENDING.ordinal -> Polled.Nothing
            Status.END.ordinal -> Polled.End
            else -> {
                check(status)
                Polled.One(event())
            }
        }
    }

    private fun event(): Event {
        val kind = Event.Kind.entries.getOrNull(raw.kind) ?: Event.Kind.UNKNOWN
        val text = Bytes(raw.text, raw.textSize.toInt()).text()
        return Event(kind, text, raw.token, raw.nDone, raw.nTotal)
    }

    override fun iterator(): Iterator<Event> = generateSequence { next() }.iterator()

    /** The pieces of the text. */
    public fun texts(): Sequence<String> = ofKind(Event.Kind.TEXT)

    /** The pieces of a response, as JSON. */
    public fun responses(): Sequence<String> = ofKind(Event.Kind.JSON)

    private fun ofKind(kind: Event.Kind): Sequence<String> =
        asSequence().filter { it.kind == kind }.map { it.text }

    /** Ends it early, from any thread: the events that follow are the last ones. */
    public fun cancel(): Unit = with { lib.atta_cancel(it) }

    /** As [Session.suspend], between two events. */
    @JvmOverloads
    public fun suspend(file: File? = null): Unit =
        with { check(lib.atta_generation_suspend(it, file?.path)) }

    /** As [Session.resume]: the next event is the one that would have come. */
    public fun resume(): Unit = with { check(lib.atta_generation_resume(it)) }

    override fun free(handle: Pointer): Unit = lib.atta_generation_free(handle)

    override fun close() {
        // A thread that waits for an event returns soon, and lets go.
        runCatching { cancel() }
        super.close()
    }
}

/** Milliseconds in which an interruption or a cancellation may go unseen. */
private const val PATIENCE = 100
