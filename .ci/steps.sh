# What .ci/run and .ci/full have in common, to be sourced from the root of the project.
# Everything is built once: what would make the next build shorter only fills the disk.
export CARGO_INCREMENTAL=0
# A panic says its line without them, and hundreds of programs are linked.
export CARGO_PROFILE_DEV_DEBUG=0

# Systems for which we only check that the code compiles: the first one in every run.
targets=(x86_64-pc-windows-gnu aarch64-apple-darwin)

# Processors on which we run tests and the program, by emulation: target, and Debian's name for it.
emulated=(aarch64-unknown-linux-gnu:aarch64-linux-gnu armv7-unknown-linux-gnueabihf:arm-linux-gnueabihf
    riscv64gc-unknown-linux-gnu:riscv64-linux-gnu)

# Processors for which .ci/boards makes the program of at most 2.3 MB.
boards=(x86_64-unknown-linux-musl aarch64-unknown-linux-musl armv7-unknown-linux-musleabihf riscv64gc-unknown-linux-musl)

# What those tests are about: everything below the engine. One list, so that all steps share one build.
portable=(-p atta-formats -p atta-tokenizer -p atta-kernels -p atta-model)

# Crates whose tests run for Windows, under wine: all that the program consists of. Left out are `gpu` (no driver is there;
# .ci/full runs its tests on this system), `capi` (its tests compile C and link it), `web` and `afxdp` (never on Windows),
# `benches` and `xtask` (for developers).
windows=(-p atta-formats -p atta-tokenizer -p atta-kernels -p atta-store -p atta-model -p atta-constrain -p atta-chat
    -p atta-engine -p atta-eval -p atta-convert -p atta-hub -p atta-server -p atta-cluster -p atta)

# Tests of these crates that are left out there. Those that the code leaves out itself, by `cfg(unix)` and the like, want
# signals, a pseudo-terminal, symbolic links, modes of files or what /proc says.
not_windows=(
    # Compare times, which wine makes long.
    linear_time would_take_long gives_its_result_at_once
    # Take many minutes under wine, and are about nothing that differs there.
    changing_any_field every_value_of_every_key
    # Compare with functions of mingw's C library that are wrong: its roundf makes 1 of 0.49999997, and its sin loses digits
    # of large numbers.
    ties_go_to_even_numbers sin_and_cos_agree_with_libm
)

# Says what runs and how long the run has taken so far, then runs it.
step() {
    printf '\n== %4d s: %s\n' "$SECONDS" "$*"
    "$@"
}

# Runs `$1` beside the rest, which leaves a processor idle most of the time. What `$1` says comes behind.
beside() {
    local said failed=0
    said=$(mktemp)
    (renice -n 10 -p "$BASHPID" >/dev/null && "$1") >"$said" 2>&1 &
    "${@:2}"
    wait $! || failed=$?
    cat "$said"
    rm "$said"
    return "$failed"
}

# Adds what the steps need and a minimal system lacks; does nothing, offline too, where it is all there. With the compilers
# and the targets of these processors.
install() {
    install_packages "$@"
    install_toolchain "$@"
}

# Emulators, their compilers and a browser. Debian's names of the architectures in its package names differ again for the C library.
install_packages() {
    local missing=() pair
    local -A libc=([aarch64-linux-gnu]=arm64 [arm-linux-gnueabihf]=armhf [riscv64-linux-gnu]=riscv64)
    [[ $# -eq 0 ]] || command -v qemu-aarch64-static >/dev/null || missing+=(qemu-user-static)
    for pair in "$@"; do
        [[ -n ${pair#*:} ]] || continue
        command -v "${pair#*:}-gcc" >/dev/null || missing+=("gcc-${pair#*:}" "libc6-dev-${libc[${pair#*:}]}-cross")
    done
    command -v node >/dev/null || missing+=(nodejs)
    command -v chromium >/dev/null || missing+=(chromium fonts-dejavu-core)
    python3 -c "import ensurepip, venv" 2>/dev/null || missing+=(python3-venv)
    install_debian "${missing[@]}"
}

# Debian's packages of these names.
install_debian() {
    [[ $# -gt 0 ]] || return 0
    local root=()
    [[ $EUID -eq 0 ]] || root=(sudo)
    "${root[@]}" apt-get update -q
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "$@"
}

install_toolchain() {
    if ! command -v rustup >/dev/null; then
        echo "no rustup: taking the components and targets to be installed"
        return
    fi
    cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
    cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
    local target installed
    installed=$(rustup target list --installed)
    for target in "${targets[@]}" "${@%:*}"; do
        grep -qx "$target" <<<"$installed" || rustup target add "$target"
    done
}

# Checks that the code compiles for these systems. A check links nothing, so that the C in *ring* need not be compiled:
# `true` stands for their compilers.
check_targets() {
    local target compilers=()
    for target in "$@"; do
        compilers+=("CC_${target//-/_}=true" "AR_${target//-/_}=true")
    done
    step env "${compilers[@]}" cargo check --workspace "${@/#/--target=}"
}

# The clients that people have, against the program `$1`: libraries, requests made up from its own document, and a browser;
# and with a library `$2`, the Python package over it.
clients() (
    local venv
    venv=$(mktemp -d)
    trap "rm -r '$venv'" EXIT
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q -r tests/clients/schema.txt -r tests/clients/page.txt
    step "$venv/bin/python" tests/clients/run.py --atta "$1"
    step "$venv/bin/python" tests/clients/schema.py --atta "$1" --examples 5
    step "$venv/bin/python" tests/clients/page.py --atta "$1"
    [[ -z ${2-} ]] || python_package "$venv" "$2"
)

# The Python package with the library `$2`, from its wheel in the environment `$1`, where pytest is. The tests of `Llama` compare
# it with what llama-cpp-python does, which is in python/tests/golden.json.
python_package() {
    local dist
    dist=$(mktemp -d)
    strip -o "$dist/libatta.so" "$2"
    ATTA_LIBRARY=$dist/libatta.so "$1/bin/python" python/backend/atta_build.py "$dist"
    "$1/bin/pip" install -q --no-index "$dist"/atta-*.whl
    rm -r "$dist"
    step "$1/bin/python" -m pytest -q -p no:cacheprovider python/tests
}

# What Miri can run of the unsafe code outside of kernels: the thread pool, the parts of output buffers, slots, watched maps.
test_miri() {
    if command -v rustup >/dev/null && ! cargo +nightly miri --version >/dev/null 2>&1; then
        rustup toolchain install nightly --profile minimal --component miri,rust-src
    fi
    export MIRIFLAGS=-Zmiri-disable-isolation
    step cargo +nightly miri test -p atta-kernels --lib -- pool:: tiles::
    step cargo +nightly miri test -p atta-store --lib -- os:: source:: readers::
}
