/* How calls of libatta fail. */
package atta

/** How a call went, as `atta_status`. */
public enum class Status {
    /** It went well; no exception has it. */
    OK,

    /** Text that is not UTF-8, an unknown name, a value out of range. */
    INVALID,

    /** There is no such value, as of a token that the model does not have. */
    ABSENT,

    /** The session or generation is in use: by another thread, or by a generation. */
    BUSY,

    /** The generation has ended. */
    END,

    /** There is no event yet. */
    PENDING,

    /** The model cannot be opened: no such file, a damaged one, an unsupported one. */
    MODEL,

    /** There is too little memory, or the budget is too small. */
    MEMORY,

    /** The tokens do not fit the context. */
    CONTEXT,

    /** A request was refused. */
    REQUEST,

    /** Something else failed, such as a step of the model. */
    FAILED,

    /** A bug in atta. */
    PANIC,

    /** The session is suspended, and must be resumed first. */
    SUSPENDED,

    /** A status of a later version. */
    UNKNOWN;

    internal companion object {
        fun of(number: Int): Status = entries.getOrNull(number) ?: UNKNOWN
    }
}

/** A call of libatta failed. */
public class AttaException(
    /** The kind of the failure. */
    public val status: Status,
    message: String,
) : RuntimeException(message)
