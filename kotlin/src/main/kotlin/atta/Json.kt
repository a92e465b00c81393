/*
 * JSON as requests and responses need it.
 *
 * Knows no field. The one idea: objects are maps, lists are lists, and nothing is converted; an app
 * that wants classes gives the texts of requests and responses to its own library.
 */
package atta

/** JSON of maps, iterables, arrays of tokens, texts, numbers, booleans and null. */
internal fun toJson(value: Any?): String = buildString { put(value) }

private fun StringBuilder.put(value: Any?) {
    when (value) {
        null, is Boolean, is Number -> append(value)
        is CharSequence -> putText(value)
        is Map<*, *> -> putAll(value.entries, '{', '}') { (key, inner) ->
            putText(key.toString())
            append(':')
            put(inner)
        }
        is Iterable<*> -> putAll(value, '[', ']') { put(it) }
        is IntArray -> put(value.asList())
        else -> throw IllegalArgumentException("${value::class.java.name} cannot be JSON")
    }
}

private fun <T> StringBuilder.putAll(items: Iterable<T>, open: Char, close: Char, each: (T) -> Unit) {
    append(open)
    items.forEachIndexed { i, item ->
        if (i > 0) append(',')
        each(item)
    }
    append(close)
}

private fun StringBuilder.putText(text: CharSequence) {
    append('"')
    for (char in text) {
        when {
            char == '"' || char == '\\' -> append('\\').append(char)
            char < ' ' -> append("\\u%04x".format(char.code))
            else -> append(char)
        }
    }
    append('"')
}

/** The value of a text of JSON: `Map<String, Any?>`, `List<Any?>`, `String`, `Double`, `Boolean`, null. */
internal fun fromJson(text: String): Any? = JsonReader(text).run {
    val value = value()
    space()
    if (at < text.length) fail("the end")
    value
}

private class JsonReader(private val text: String) {
    var at = 0

    fun fail(expected: String): Nothing =
        throw IllegalArgumentException("no JSON: expected $expected at character $at")

    fun space() {
        while (at < text.length && text[at].isWhitespace()) at++
    }

    private fun skip(char: Char): Boolean {
        space()
        val isHere = at < text.length && text[at] == char
        if (isHere) at++
        return isHere
    }

    private fun want(char: Char) {
        if (!skip(char)) fail("'$char'")
    }

    fun value(): Any? {
        space()
        return when (text.getOrNull(at)) {
            '{' -> map()
            '[' -> list()
            '"' -> string()
            't' -> word("true", true)
            'f' -> word("false", false)
            'n' -> word("null", null)
            else -> number()
        }
    }

    private fun <T> word(word: String, value: T): T {
        if (!text.startsWith(word, at)) fail(word)
        at += word.length
        return value
    }

    private fun number(): Double {
        val start = at
        while (at < text.length && text[at] in "+-.0123456789eE") at++
        return text.substring(start, at).toDoubleOrNull() ?: fail("a value")
    }

    private fun map(): Map<String, Any?> {
        val map = LinkedHashMap<String, Any?>()
        want('{')
        if (skip('}')) return map
        do {
            space()
            val key = string()
            want(':')
            map[key] = value()
        } while (skip(','))
        want('}')
        return map
    }

    private fun list(): List<Any?> {
        val list = ArrayList<Any?>()
        want('[')
        if (skip(']')) return list
        do list.add(value()) while (skip(','))
        want(']')
        return list
    }

    private fun string(): String {
        want('"')
        return buildString {
            while (true) {
                when (val char = text.getOrNull(at++) ?: fail("'\"'")) {
                    '"' -> return@buildString
                    '\\' -> append(escaped())
                    else -> append(char)
                }
            }
        }
    }

    private fun escaped(): Char = when (val char = text.getOrNull(at++) ?: fail("an escape")) {
        'n' -> '\n'
        't' -> '\t'
        'r' -> '\r'
        'b' -> '\b'
        'f' -> '\u000c'
        'u' -> {
            at += 4
            val code = text.substring(minOf(at - 4, text.length), minOf(at, text.length))
            code.toIntOrNull(16)?.toChar() ?: fail("four digits")
        }
        else -> char
    }
}
