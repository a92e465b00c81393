import atta.Model

fun main(arguments: Array<String>) {
    Model(arguments[0]).use { model ->
        model.session().use { session ->
            session.generate("Once upon a time", "max_tokens" to 32).texts().forEach(::print)
        }
    }
}
