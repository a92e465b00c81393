/* Sessions: one text, whose tokens the program may see, choose or take back. */
package atta

import com.sun.jna.Pointer
import com.sun.jna.ptr.IntByReference
import com.sun.jna.ptr.LongByReference
import java.io.File

/** One text with its KV cache. One thread at a time may use it; to others it is busy. */
public class Session internal constructor(handle: Pointer) : Handle("session", handle) {
    /** The tokens of the text. */
    public val tokens: IntArray
        get() = with { buffer({ out -> lib.atta_session_tokens(it, out) }, Bytes::tokens) }

    /** The logits after the last token, one for each of the vocabulary. */
    public val logits: FloatArray
        get() = with { buffer({ out -> lib.atta_session_logits(it, out) }, Bytes::numbers) }

    /**
     * Generates text behind a prompt, or goes on with the text without one. The fields are
     * llama.cpp's: `"max_tokens" to 32, "temperature" to 0.7, "stop" to listOf("\n")`.
     */
    public fun generate(prompt: String? = null, vararg fields: Pair<String, Any?>): Generation =
        generation(mapOf(*fields) + promptField(prompt))

    /** Generates text behind a prompt of tokens. */
    public fun generate(prompt: IntArray, vararg fields: Pair<String, Any?>): Generation =
        generation(mapOf(*fields) + promptField(prompt))

    private fun promptField(prompt: Any?): Map<String, Any> =
        if (prompt == null) emptyMap() else mapOf("prompt" to prompt)

    private fun generation(fields: Map<String, Any?>): Generation {
        val json = toJson(fields).toByteArray()
        return Generation(with { made { out -> lib.atta_generate(it, json, json.nBytes, out) } })
    }

    /** Appends tokens to the text, and evaluates them. */
    public fun append(tokens: IntArray): Unit =
        with { check(lib.atta_session_append(it, tokens, tokens.nTokens)) }

    /** Removes all tokens from the [n]th on, and returns how many are left. */
    public fun truncate(n: Int): Int = with {
        val nLeft = LongByReference()
        check(lib.atta_session_truncate(it, Size(n.toLong()), nLeft))
        nLeft.value.toInt()
    }

    /** The text and its KV cache, for [load]. */
    public fun save(): ByteArray =
        with { buffer({ out -> lib.atta_session_save(it, out) }, Bytes::copy) }

    /** Replaces the text by one of [save], or of the file of [suspend]; it is checked. */
    public fun load(state: ByteArray): Unit =
        with { check(lib.atta_session_load(it, state, state.nBytes)) }

    /**
     * Sets the LoRA adapters among the model's, each with its scale, in order: `"tale" to 0.5`.
     * With others than before the session becomes empty.
     */
    public fun setLora(vararg adapters: Pair<String, Double>) {
        val list = adapters.map { (name, scale) -> mapOf("name" to name, "scale" to scale) }
        val json = toJson(list).toByteArray()
        with { check(lib.atta_session_set_lora(it, json, json.nBytes)) }
    }

    /**
     * Frees the memory of the state until [resume], such as when the app goes to the background.
     * The state is kept in the file; without one the text is evaluated again. Where the process is
     * ended meanwhile, a later one may give the bytes of the file to [load].
     */
    @JvmOverloads
    public fun suspend(file: File? = null): Unit =
        with { check(lib.atta_session_suspend(it, file?.path)) }

    /** Restores the state, and removes its file: the text goes on with the same bits. */
    public fun resume(): Unit = with { check(lib.atta_session_resume(it)) }

    override fun free(handle: Pointer): Unit = lib.atta_session_free(handle)
}

/** Chooses tokens from the logits of sessions. One thread at a time may use it. */
public class Sampler internal constructor(handle: Pointer) : Handle("sampler", handle) {
    /** The next token of a session's text; it is not appended. */
    public fun sample(session: Session): Int = with { sampler ->
        val token = IntByReference()
        session.with { check(lib.atta_sampler_sample(sampler, it, token)) }
        token.value
    }

    override fun free(handle: Pointer): Unit = lib.atta_sampler_free(handle)
}
