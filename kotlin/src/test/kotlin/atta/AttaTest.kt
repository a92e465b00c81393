/*
 * What an app does with the package, against a small model: AttaTestKt MODEL FOLDER.
 *
 * Needs no framework: a test is a name and a function that throws.
 */
package atta

import java.io.File
import java.util.concurrent.Callable
import java.util.concurrent.Executors
import kotlin.concurrent.thread
import kotlin.system.exitProcess
import kotlinx.coroutines.cancelAndJoin
import kotlinx.coroutines.delay
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.launch
import kotlinx.coroutines.runBlocking

private const val PROMPT = "Once upon a time"
private val GREEDY = "temperature" to 0
private val HELLO = listOf(Message("user", "Tell me a \"story\".\n"))

private class Tests(private val path: String, private val folder: File) {
    private val model = Model(path, ctx = 256, threads = 2, parallel = 2, name = "stories")

    private fun text(n: Int = 24): String = model.session().use { session ->
        session.generate(PROMPT, "max_tokens" to n, GREEDY).texts().joinToString("")
    }

    private val expected = text()

    val all: Map<String, () -> Unit> = mapOf(
        "a text is that of a request" to {
            val body = toJson(mapOf("prompt" to PROMPT, "max_tokens" to 24, GREEDY))
            val response = fromJson(model.request("/v1/completions", body)) as Map<*, *>
            val choice = (response["choices"] as List<*>)[0] as Map<*, *>
            same(expected, choice["text"])
        },
        "events come in order, and the last says how it went" to {
            model.session().use { session ->
                val events = session.generate(PROMPT, "max_tokens" to 4, GREEDY).toList()
                same(Event.Kind.PROMPT, events.first().kind)
                same(Event.Kind.DONE, events.last().kind)
                same(listOf(1L, 2L, 3L, 4L), events.filter { it.kind == Event.Kind.TOKEN }.map { it.done })
                same("length", (fromJson(events.last().text) as Map<*, *>)["finish_reason"])
            }
        },
        "a text goes on, by text and by tokens" to {
            model.session().use { session ->
                val tokens = model.tokenize(PROMPT, bos = true)
                val start = session.generate(tokens, "max_tokens" to 10, GREEDY).texts().joinToString("")
                val rest = session.generate(null, "max_tokens" to 14, GREEDY).texts().joinToString("")
                same(expected, start + rest)
            }
        },
        "tokens become text again" to {
            same(PROMPT, model.detokenize(model.tokenize(PROMPT)))
            same(model.number("token_bos"), model.tokenize(PROMPT, bos = true)[0].toLong())
        },
        "a model has numbers and texts, or none" to {
            same("llama", model.text("general.architecture"))
            same(null, model.text("no.such.key"))
            same(null, model.number("token_pad"))
            same(Status.INVALID, failure { model.number("n_nothing") })
        },
        "a session is worked by hand" to {
            model.session().use { session ->
                val tokens = model.tokenize(PROMPT, bos = true)
                session.append(tokens)
                same(model.number("n_vocab"), session.logits.size.toLong())
                model.sampler(GREEDY).use { sampler ->
                    val token = sampler.sample(session)
                    same(token, session.logits.indices.maxBy { session.logits[it] })
                    session.append(intArrayOf(token))
                }
                val state = session.save()
                same(3, session.truncate(3))
                session.load(state)
                same(tokens.size + 1, session.tokens.size)
            }
        },
        "a conversation is streamed" to {
            model.chat(HELLO, "max_tokens" to 8, GREEDY).use { answer ->
                val texts = answer.texts().toList()
                require(texts.size > 1) { "$texts" }
            }
        },
        "a request that is refused says why" to {
            val error = runCatching { model.request("/v1/completions", "{") }.exceptionOrNull()
            require(error is AttaException && error.status == Status.REQUEST) { "$error" }
            require("JSON" in error.message!!) { "$error" }
        },
        "a missing file and a wrong option are failures" to {
            same(Status.MODEL, failure { Model("/nowhere.gguf") })
            same(Status.INVALID, failure { Model(path, kv = "f8") })
            same(Status.MEMORY, failure { Model(path, weights = "resident", ramBudget = 1000) })
        },
        "adapters are opened with the model and set by name" to {
            same(Status.MODEL, failure { Model(path, lora = listOf(Lora("/nowhere", "tale"))) })
            model.session().use { session ->
                session.setLora()
                same(Status.REQUEST, failure { session.setLora("tale" to 0.5) })
            }
        },
        "a closed handle is an illegal state, not a crash" to {
            val session = model.session()
            session.close()
            session.close()
            require(runCatching { session.tokens }.exceptionOrNull() is IllegalStateException)
        },
        "a session is busy until its generation ends or is closed" to {
            model.session().use { session ->
                val generation = session.generate(PROMPT, "max_tokens" to 100, GREEDY)
                generation.texts().first()
                same(Status.BUSY, failure { session.tokens })
                generation.close()
                require(session.tokens.isNotEmpty())
            }
        },
        "any thread may cancel, and an interruption ends the waiting" to {
            model.session().use { session ->
                session.generate(PROMPT, GREEDY).use { generation ->
                    generation.texts().first()
                    thread { generation.cancel() }.join()
                    val last = generation.toList().last()
                    same("interrupted", (fromJson(last.text) as Map<*, *>)["finish_reason"])
                }
                session.generate(PROMPT, GREEDY).use { generation ->
                    Thread.currentThread().interrupt()
                    require(runCatching { generation.next() }.exceptionOrNull() is InterruptedException)
                }
            }
        },
        "threads share a model" to {
            val pool = Executors.newFixedThreadPool(4)
            val texts = pool.invokeAll(List(8) { Callable { text() } }).map { it.get() }
            pool.shutdown()
            same(setOf(expected), texts.toSet())
        },
        "a flow has the text, and its cancellation frees the session" to {
            runBlocking {
                model.session().use { session ->
                    val flow = session.generate(PROMPT, "max_tokens" to 24, GREEDY).textFlow()
                    same(expected, flow.toList().joinToString(""))
                    same(0, session.truncate(0))
                    val endless = session.generate(PROMPT, "logit_bias" to mapOf("2" to -100), GREEDY)
                    var nTexts = 0
                    val job = launch { endless.textFlow().collect { nTexts++ } }
                    while (nTexts == 0) delay(1)
                    job.cancelAndJoin()
                    session.tokens
                }
            }
        },
        "a suspended session goes on with the same text" to {
            for (file in listOf(null, File(folder, "session.state"))) {
                model.session().use { session ->
                    val generation = session.generate(PROMPT, "max_tokens" to 24, GREEDY)
                    val start = generation.texts().take(5).joinToString("")
                    val used = model.number("ram_used")!!
                    generation.suspend(file)
                    require(model.number("ram_used")!! < used)
                    same(Status.SUSPENDED, failure { generation.next() })
                    generation.resume()
                    same(expected, start + generation.texts().joinToString(""))
                    session.suspend(file)
                    same(Status.SUSPENDED, failure { session.append(intArrayOf(1)) })
                    session.resume()
                    session.append(intArrayOf(1))
                }
            }
            model.suspend()
        },
        "heat pauses and changes no text" to {
            model.heat = Heat.CRITICAL
            same(expected, text())
            model.heat = Heat.EMERGENCY
            val cooler = thread {
                Thread.sleep(200)
                model.heat = Heat.NOMINAL
            }
            same(expected, text())
            cooler.join()
            same(Heat.NOMINAL, model.heat)
        },
        "JSON is written and read" to {
            val value = mapOf("a" to listOf(1.5, true, null, "\"\\\n\u0001é😀"), "b" to mapOf<String, Any?>())
            same(value, fromJson(toJson(value)))
            same("😀\n/", fromJson("\"\\ud83d\\ude00\\n\\/\""))
            for (bad in listOf("", "{", "[1,]", "\"a", "tru", "1 2", "\"\\u00\"", "nope")) {
                require(runCatching { fromJson(bad) }.exceptionOrNull() is IllegalArgumentException) { bad }
            }
        },
    )
}

private fun same(expected: Any?, found: Any?) =
    require(expected == found) { "expected $expected, got $found" }

/** The status of a call that fails. */
private fun failure(call: () -> Any?): Status? =
    (runCatching { (call() as? AutoCloseable)?.close() }.exceptionOrNull() as? AttaException)?.status

fun main(arguments: Array<String>) {
    val (path, folder) = arguments
    val tests = Tests(path, File(folder)).all
    var nFailed = 0
    for ((name, test) in tests) {
        runCatching(test).onFailure { error ->
            nFailed++
            println("FAILED: $name")
            error.printStackTrace(System.out)
        }
    }
    println("${tests.size - nFailed} passed, $nFailed failed")
    exitProcess(if (nFailed == 0) 0 else 1)
}
