/*
 * The functions of libatta, as JNA sees them.
 *
 * Knows no model and no text. The one idea: a failed call throws the exception of its status, with
 * the words that the library has for the thread.
 */
package atta

import com.sun.jna.IntegerType
import com.sun.jna.Library
import com.sun.jna.Native
import com.sun.jna.Pointer
import com.sun.jna.Structure
import com.sun.jna.ptr.IntByReference
import com.sun.jna.ptr.LongByReference
import com.sun.jna.ptr.PointerByReference

/** The version of the binary interface that this package was written for. */
private const val ABI = 1

/** `size_t`. */
internal class Size @JvmOverloads constructor(value: Long = 0) :
    IntegerType(Native.SIZE_T_SIZE, value, true) {
    override fun toByte(): Byte = toInt().toByte()

    override fun toShort(): Short = toInt().toShort()
}

/** `atta_event`. */
@Structure.FieldOrder("kind", "token", "text", "textSize", "nDone", "nTotal")
internal class RawEvent : Structure() {
    @JvmField var kind = 0
    @JvmField var token = 0
    @JvmField var text: Pointer? = null
    @JvmField var textSize = Size()
    @JvmField var nDone = 0L
    @JvmField var nTotal = 0L
}

/** `atta.h`. */
@Suppress("FunctionName")
internal interface LibAtta : Library {
    fun atta_abi_version(): Int
    fun atta_version(): Pointer
    fun atta_last_error(): Pointer

    fun atta_buffer_data(buffer: Pointer): Pointer?
    fun atta_buffer_size(buffer: Pointer): Size
    fun atta_buffer_free(buffer: Pointer)

    fun atta_options_new(out: PointerByReference): Int
    fun atta_options_set_u64(options: Pointer, name: String, value: Long): Int
    fun atta_options_set_f64(options: Pointer, name: String, value: Double): Int
    fun atta_options_set_text(options: Pointer, name: String, value: ByteArray, size: Size): Int
    fun atta_options_free(options: Pointer)

    fun atta_model_open(path: String, options: Pointer?, out: PointerByReference): Int
    fun atta_model_number(model: Pointer, name: String, out: LongByReference): Int
    fun atta_model_text(model: Pointer, name: String, out: PointerByReference): Int
    fun atta_model_set_heat(model: Pointer, heat: Int): Int
    fun atta_model_suspend(model: Pointer): Int
    fun atta_model_free(model: Pointer)
    fun atta_tokenize(model: Pointer, text: ByteArray, size: Size, flags: Int, out: PointerByReference): Int
    fun atta_detokenize(model: Pointer, tokens: IntArray, n: Size, flags: Int, out: PointerByReference): Int

    fun atta_session_new(model: Pointer, options: Pointer?, out: PointerByReference): Int
    fun atta_session_append(session: Pointer, tokens: IntArray, n: Size): Int
    fun atta_session_logits(session: Pointer, out: PointerByReference): Int
    fun atta_session_tokens(session: Pointer, out: PointerByReference): Int
    fun atta_session_truncate(session: Pointer, n: Size, nLeft: LongByReference): Int
    fun atta_session_save(session: Pointer, out: PointerByReference): Int
    fun atta_session_load(session: Pointer, bytes: ByteArray, n: Size): Int
    fun atta_session_set_lora(session: Pointer, json: ByteArray, size: Size): Int
    fun atta_session_suspend(session: Pointer, path: String?): Int
    fun atta_session_resume(session: Pointer): Int
    fun atta_session_free(session: Pointer)

    fun atta_sampler_new(model: Pointer, json: ByteArray, size: Size, out: PointerByReference): Int
    fun atta_sampler_sample(sampler: Pointer, session: Pointer, out: IntByReference): Int
    fun atta_sampler_free(sampler: Pointer)

    fun atta_generate(session: Pointer, json: ByteArray, size: Size, out: PointerByReference): Int
    fun atta_request(model: Pointer, path: String, body: ByteArray?, size: Size, out: PointerByReference): Int
    fun atta_next_within(generation: Pointer, milliseconds: Int, event: RawEvent, size: Size): Int
    fun atta_cancel(generation: Pointer)
    fun atta_generation_suspend(generation: Pointer, path: String?): Int
    fun atta_generation_resume(generation: Pointer): Int
    fun atta_generation_free(generation: Pointer)
}

/** libatta: where JNA looks for libraries, or in the folder that `jna.library.path` names. */
internal val lib: LibAtta by lazy {
    val options = mapOf(Library.OPTION_STRING_ENCODING to "UTF-8")
    val lib = Native.load("atta", LibAtta::class.java, options)
    val found = lib.atta_abi_version()
    check(found == ABI) { "libatta has ABI $found, expected $ABI" }
    lib
}

/** Throws the exception of a status, unless it is OK. */
internal fun check(status: Int) {
    if (status != 0) {
        val message = lib.atta_last_error().getString(0, "UTF-8")
        throw AttaException(Status.of(status), message)
    }
}

/** The handle that a function gives. */
internal inline fun made(call: (PointerByReference) -> Int): Pointer {
    val out = PointerByReference()
    check(call(out))
    return out.value
}

/** What is read from the bytes of the buffer that a function gives. */
internal inline fun <T> buffer(call: (PointerByReference) -> Int, read: (Bytes) -> T): T {
    val handle = made(call)
    try {
        return read(Bytes(lib.atta_buffer_data(handle), lib.atta_buffer_size(handle).toInt()))
    } finally {
        lib.atta_buffer_free(handle)
    }
}

/** Memory of the library. */
internal class Bytes(private val start: Pointer?, private val size: Int) {
    fun copy(): ByteArray = start?.getByteArray(0, size) ?: ByteArray(0)

    fun text(): String = String(copy(), Charsets.UTF_8)

    fun tokens(): IntArray = start?.getIntArray(0, size / 4) ?: IntArray(0)

    fun numbers(): FloatArray = start?.getFloatArray(0, size / 4) ?: FloatArray(0)
}

/** Calls with options, which are freed behind the call; those that are null are not set. */
internal fun <T> withOptions(values: Map<String, Any?>, call: (Pointer) -> T): T {
    val options = made { lib.atta_options_new(it) }
    try {
        values.forEach { (name, value) -> setOption(options, name, value) }
        return call(options)
    } finally {
        lib.atta_options_free(options)
    }
}

private fun setOption(options: Pointer, name: String, value: Any?) {
    when (value) {
        null, false -> {}
        true -> check(lib.atta_options_set_u64(options, name, 1))
        is Double -> check(lib.atta_options_set_f64(options, name, value))
        is Number -> {
            require(value.toLong() >= 0) { "option $name cannot be $value" }
            check(lib.atta_options_set_u64(options, name, value.toLong()))
        }
        else -> {
            val text = value.toString().toByteArray()
            check(lib.atta_options_set_text(options, name, text, text.nBytes))
        }
    }
}

internal val ByteArray.nBytes: Size get() = Size(size.toLong())

internal val IntArray.nTokens: Size get() = Size(size.toLong())
