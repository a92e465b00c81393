/* Generations as flows, for apps with coroutines (org.jetbrains.kotlinx:kotlinx-coroutines-core). */
package atta

import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.currentCoroutineContext
import kotlinx.coroutines.ensureActive
import kotlinx.coroutines.flow.Flow
import kotlinx.coroutines.flow.filter
import kotlinx.coroutines.flow.flow
import kotlinx.coroutines.flow.flowOn
import kotlinx.coroutines.flow.map

/**
 * The events of a generation, to be collected once. They are computed on a thread for blocking
 * work; the end of the flow, or of the coroutine that collects it, closes the generation.
 */
public fun Generation.events(): Flow<Event> = flow {
    use { generation ->
        while (true) {
            currentCoroutineContext().ensureActive()
            when (val polled = generation.poll()) {
                is Polled.One -> emit(polled.event)
                Polled.End -> return@flow
                Polled.Nothing -> {}
            }
        }
    }
}.flowOn(Dispatchers.IO)

/** The pieces of the text, as [events]. */
public fun Generation.textFlow(): Flow<String> =
    events().filter { it.kind == Event.Kind.TEXT }.map { it.text }
