/* Models: loaded once, shared by sessions and requests. */
package atta

import com.sun.jna.Pointer
import com.sun.jna.ptr.LongByReference

/**
 * How hot the machine is: of Android's `PowerManager.getCurrentThermalStatus` 0 and 1, 2, 3, and
 * from 4 on. No text changes by it.
 */
public enum class Heat {
    /** All threads compute. */
    NOMINAL,

    /** Half of the threads. */
    ELEVATED,

    /** A quarter of the threads, which rest after each step for as long as it took. */
    CRITICAL,

    /** Nothing is generated until the level falls: who asks for an event waits. */
    EMERGENCY,
}

/** A message of a conversation. */
public data class Message(
    /** "system", "user", "assistant" or "tool". */
    val role: String,
    /** The text. */
    val content: String,
)

/** A LoRA adapter. With a [scale] of 0 it waits for texts that name it. */
public data class Lora(val path: String, val name: String = "", val scale: Double = 1.0)

/** A loaded model. Any number of threads may use it at the same time. */
public class Model
private constructor(handle: Pointer) : Handle("model", handle) {
    /**
     * Opens a GGUF or QSF file, or a split model by any of its files. Options that are null are the
     * library's: [ctx] tokens of context, [batch] tokens of a prompt per step, [keep] tokens at the
     * beginning when a full context is shifted, [kv] f32, f16, q8 or q4, [parallel] requests at the
     * same time, [ramBudget] bytes, [weights] mapped, resident or streamed, [lora] adapters.
     */
    @Suppress("LongParameterList")
    public constructor(
        path: String,
        ctx: Int? = null,
        batch: Int? = null,
        keep: Int? = null,
        kv: String? = null,
        threads: Int? = null,
        parallel: Int? = null,
        ramBudget: Long? = null,
        weights: String? = null,
        experts: Int? = null,
        quality: Double? = null,
        isa: String? = null,
        chatTemplate: String? = null,
        name: String? = null,
        lora: List<Lora> = emptyList(),
        verify: Boolean = false,
        prewarm: Boolean = false,
        shrink: Boolean = false,
    ) : this(
        open(
            path,
            mapOf(
                "ctx" to ctx,
                "batch" to batch,
                "keep" to keep,
                "kv" to kv,
                "threads" to threads,
                "parallel" to parallel,
                "ram_budget" to ramBudget,
                "weights" to weights,
                "experts" to experts,
                "quality" to quality,
                "isa" to isa,
                "chat_template" to chatTemplate,
                "name" to name,
                "lora" to lora.ifEmpty { null }?.let(::json),
                "verify" to verify,
                "prewarm" to prewarm,
                "shrink" to shrink,
            ),
        ),
    )

    /** A number of the model, such as "n_ctx_train" or "token_eos"; null if it has none. */
    public fun number(name: String): Long? = with {
        val out = LongByReference()
        val status = lib.atta_model_number(it, name, out)
        if (status == Status.ABSENT.ordinal) return@with null
        check(status)
        out.value
    }

    /** A text of the model, or a value of its file's metadata; null if it has none. */
    public fun text(name: String): String? = try {
        with { buffer({ out -> lib.atta_model_text(it, name, out) }, Bytes::text) }
    } catch (error: AttaException) {
        if (error.status == Status.ABSENT) null else throw error
    }

    /** How hot the machine is, as was said last. */
    public var heat: Heat
        get() = Heat.entries[(number("heat") ?: 0L).toInt()]
        set(heat) = with { check(lib.atta_model_set_heat(it, heat.ordinal)) }

    /** Frees the KV cache of requests, which the next request makes again; none may be running. */
    public fun suspend(): Unit = with { check(lib.atta_model_suspend(it)) }

    /**
     * The tokens of a text. [special] parses the texts of special tokens, [bos] puts
     * begin-of-sequence in front if the model wants it.
     */
    public fun tokenize(text: String, special: Boolean = false, bos: Boolean = false): IntArray {
        val bytes = text.toByteArray()
        val flags = flags(special, bos)
        return with { model ->
            buffer({ lib.atta_tokenize(model, bytes, bytes.nBytes, flags, it) }, Bytes::tokens)
        }
    }

    /** The text of tokens. [goesOn]: it continues another text, whose space stays. */
    public fun detokenize(tokens: IntArray, special: Boolean = false, goesOn: Boolean = false): String {
        val flags = flags(special, goesOn)
        return with { model ->
            buffer({ lib.atta_detokenize(model, tokens, tokens.nTokens, flags, it) }, Bytes::text)
        }
    }

    /** A session with a KV cache of its own; what is not set is as for the model. */
    public fun session(
        ctx: Int? = null,
        batch: Int? = null,
        keep: Int? = null,
        kv: String? = null,
    ): Session {
        val options = mapOf("ctx" to ctx, "batch" to batch, "keep" to keep, "kv" to kv)
        return Session(
            with { model ->
                withOptions(options) { made { out -> lib.atta_session_new(model, it, out) } }
            },
        )
    }

    /** A sampler, with llama.cpp's fields. */
    public fun sampler(vararg fields: Pair<String, Any?>): Sampler {
        val json = toJson(mapOf(*fields)).toByteArray()
        return Sampler(with { made { out -> lib.atta_sampler_new(it, json, json.nBytes, out) } })
    }

    /** Sends a body of JSON to a path of `atta serve`; without a body it is a GET. */
    public fun stream(path: String, body: String?): Generation {
        val bytes = body?.toByteArray()
        val size = bytes?.nBytes ?: Size()
        return Generation(with { made { out -> lib.atta_request(it, path, bytes, size, out) } })
    }

    /** The whole response to a request, as JSON. */
    public fun request(path: String, body: String?): String =
        stream(path, body).use { it.responses().first() }

    /**
     * The answer to a conversation, piece by piece. The fields are OpenAI's: `"max_tokens" to 64,
     * "temperature" to 0.7`.
     */
    public fun chat(messages: List<Message>, vararg fields: Pair<String, Any?>): Answer {
        val list = messages.map { mapOf("role" to it.role, "content" to it.content) }
        val body = mapOf("messages" to list) + fields + ("stream" to true)
        return Answer(stream("/v1/chat/completions", toJson(body)))
    }

    override fun free(handle: Pointer): Unit = lib.atta_model_free(handle)

    private companion object {
        fun json(adapters: List<Lora>): String = toJson(
            adapters.map { mapOf("path" to it.path, "name" to it.name, "scale" to it.scale) },
        )

        fun flags(first: Boolean, second: Boolean): Int =
            (if (first) 1 else 0) + (if (second) 2 else 0)

        fun open(path: String, options: Map<String, Any?>): Pointer =
            withOptions(options) { made { out -> lib.atta_model_open(path, it, out) } }
    }
}

/** An answer in a conversation, which ends early if it is closed. */
public class Answer internal constructor(private val generation: Generation) : AutoCloseable {
    /** The chunks as OpenAI's, each a map of its fields. */
    public fun chunks(): Sequence<Map<*, *>> =
        generation.responses().map { chunk ->
            val fields = fromJson(chunk) as Map<*, *>
            val error = fields["error"] as? Map<*, *>
            if (error != null) throw AttaException(Status.REQUEST, "${error["message"]}")
            fields
        }

    /** The pieces of the text. */
    public fun texts(): Sequence<String> = chunks().mapNotNull { chunk ->
        val choice = (chunk["choices"] as? List<*>)?.firstOrNull() as? Map<*, *>
        val delta = choice?.get("delta") as? Map<*, *>
        (delta?.get("content") as? String)?.ifEmpty { null }
    }

    override fun close(): Unit = generation.close()
}
