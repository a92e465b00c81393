# Kotlin's compiler and the jars that the package is compiled with, to be sourced in this folder by scripts that have a
# folder `$work` of their own. The compiler is that of KOTLIN_HOME or of npm; JNA's jar is that of JNA_JAR or of Debian.
compiler=${KOTLIN_HOME:-}
if [[ -z $compiler ]]; then
    npm install --silent --no-audit --no-fund --prefix "$work/npm" kotlin-compiler@2.4.20
    compiler=$work/npm/node_modules/kotlin-compiler
fi
jna=${JNA_JAR:-/usr/share/java/jna.jar}
[[ -e $jna ]] || { echo "there is no $jna: install libjna-java, or name a jar by JNA_JAR" >&2; exit 1; }
coroutines=$compiler/lib/kotlinx-coroutines-core-jvm.jar
stdlib=$compiler/lib/kotlin-stdlib.jar

# Compiles for Java 11 and later, every warning an error.
kotlinc() {
    java -cp "$compiler/lib/kotlin-compiler.jar" org.jetbrains.kotlin.cli.jvm.K2JVMCompiler \
        -kotlin-home "$compiler" -Werror -jvm-target 11 "$@"
}
