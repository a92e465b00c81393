/* Objects of the library, which a program closes. */
package atta

import com.sun.jna.Pointer
import java.util.concurrent.locks.ReentrantReadWriteLock
import kotlin.concurrent.read
import kotlin.concurrent.write

/**
 * An object of the library, which is freed by [close]: once, and not while another thread is in a
 * call with it. Later calls throw [IllegalStateException].
 */
public abstract class Handle internal constructor(private val kind: String, handle: Pointer) :
    AutoCloseable {
    private val lock = ReentrantReadWriteLock()
    private var handle: Pointer? = handle

    /** Calls with the pointer. */
    internal fun <T> with(call: (Pointer) -> T): T =
        lock.read { call(handle ?: throw IllegalStateException("the $kind is closed")) }

    internal abstract fun free(handle: Pointer)

    override fun close() {
        lock.write {
            handle?.let(::free)
            handle = null
        }
    }
}
