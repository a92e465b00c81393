#!/bin/sh
# Installs atta for one user, without root:
#
#     curl -fsSL https://github.com/atta-llm/atta/releases/latest/download/install.sh | sh
#
# It downloads the archive for this system and processor, compares its SHA-256 with the one beside it, and copies the
# program, its manual pages and its completions below ~/.local. `--help` lists the options; with a pipe they stand behind
# `sh -s --`.
set -eu

# `cargo xtask tidy` compares this with Cargo.toml.
repository=https://github.com/atta-llm/atta

# The files and directories of an installation, below the prefix.
list=share/doc/atta/installed

usage() {
    cat <<END
Installs atta, or removes it.

Usage: install.sh [OPTIONS]

      --board         The program for small boards: 2 to 3 MB, without server, chat and built-in model
      --gpu           The program that computes on GPUs, too: for Linux with glibc 2.35 or newer (macOS's always does)
      --prefix DIR    Where bin and share are [default: ~/.local]
      --version V     A version, such as 0.1.0 [default: the newest]
      --from URL      Where the archives are, instead of a release of $repository
      --uninstall     Remove what was installed below --prefix
  -h, --help          Print help
END
}

fail() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}

has() {
    command -v "$1" >/dev/null 2>&1
}

# Downloads $1 to the file $2.
fetch() {
    if has curl; then
        case $1 in
        https:*) curl --fail --silent --show-error --location --proto '=https' --output "$2" "$1" ;;
        *) curl --fail --silent --show-error --location --output "$2" "$1" ;;
        esac
    elif has wget; then
        wget -q -O "$2" "$1"
    else
        fail "needs curl or wget"
    fi || fail "cannot download $1"
}

# The SHA-256 of the file $1.
hash_of() {
    if has sha256sum; then
        sha256sum "$1"
    elif has shasum; then
        shasum -a 256 "$1"
    elif has openssl; then
        openssl dgst -sha256 -r "$1"
    else
        fail "needs sha256sum, shasum or openssl, to check what it downloaded"
    fi | cut -d ' ' -f 1
}

# The target of this machine, as rustc calls it. Programs for Linux are static: the kernel's processor counts, and any
# C library will do.
target() {
    system=$(uname -s) machine=$(uname -m)
    case $system in
    Linux) ;;
    Darwin)
        # A shell that Rosetta runs takes the machine for an Intel.
        [ "$(sysctl -n sysctl.proc_translated 2>/dev/null || true)" != 1 ] || machine=arm64
        ;;
    MINGW* | MSYS* | CYGWIN*) fail "on Windows, use install.ps1" ;;
    *) fail "no archive for $system; build it: $repository" ;;
    esac
    case $system-$machine$gpu in
    Linux-x86_64-gpu | Linux-amd64-gpu) echo x86_64-unknown-linux-gnu ;;
    Linux-aarch64-gpu | Linux-arm64-gpu) echo aarch64-unknown-linux-gnu ;;
    Linux-*-gpu) fail "no archive with GPUs for $machine; build it: $repository" ;;
    Linux-x86_64 | Linux-amd64) echo x86_64-unknown-linux-musl ;;
    Linux-aarch64 | Linux-arm64) echo aarch64-unknown-linux-musl ;;
    Linux-armv7* | Linux-armv8*) echo armv7-unknown-linux-musleabihf ;;
    Linux-riscv64) echo riscv64gc-unknown-linux-musl ;;
    Darwin-arm64*) echo aarch64-apple-darwin ;;
    Darwin-x86_64*) echo x86_64-apple-darwin ;;
    *) fail "no archive for $system on $machine; build it: $repository" ;;
    esac
}

# Copies $1 to $2 below the prefix, with permissions $3, and notes it.
put() {
    make_directory "$(dirname "$2")"
    # A program that runs cannot be written to; a new one takes its name.
    cp "$1" "$prefix/$2.new"
    chmod "$3" "$prefix/$2.new"
    mv -f "$prefix/$2.new" "$prefix/$2"
    printf '%s\n' "$2" >>"$noted"
}

# Makes directory $1 below the prefix, and notes it and those around it that were missing, with a slash behind them.
make_directory() {
    [ ! -d "$prefix/$1" ] || return 0
    case $1 in
    */*) make_directory "${1%/*}" ;;
    esac
    mkdir "$prefix/$1"
    printf '%s/\n' "$1" >>"$noted"
}

install_files() {
    unpacked=$1
    put "$unpacked/atta" bin/atta 755
    for page in "$unpacked"/man/*.1; do
        [ ! -e "$page" ] || put "$page" "share/man/man1/${page##*/}" 644
    done
    if [ -d "$unpacked/completions" ]; then
        put "$unpacked/completions/atta" share/bash-completion/completions/atta 644
        put "$unpacked/completions/_atta" share/zsh/site-functions/_atta 644
        put "$unpacked/completions/atta.fish" share/fish/vendor_completions.d/atta.fish 644
    fi
    for page in LICENSE-APACHE LICENSE-MIT THIRD-PARTY.txt; do
        put "$unpacked/$page" "share/doc/atta/$page" 644
    done
}

# Removes the files of the list, then the directories that were made for them, where they are empty.
uninstall() {
    [ -e "$prefix/$list" ] || fail "nothing of atta is installed below $prefix"
    files=$(grep -v '/$' "$prefix/$list") directories=$(grep '/$' "$prefix/$list" || true)
    printf '%s\n' "$files" "$list" | while read -r path; do
        rm -f "$prefix/$path"
    done
    # The inner before the outer ones.
    printf '%s\n' "$directories" | sort -r | while read -r path; do
        [ "$path" != ./ ] || path=
        rmdir "$prefix/$path" 2>/dev/null || true
    done
    echo "atta was removed. Models and saved prompts stay in ~/.cache/huggingface and ~/.cache/atta."
}

# Downloads, checks and unpacks archive $1 into the directory $2.
download() {
    fetch "$from/$1.tar.gz.sha256" "$2/hash"
    fetch "$from/$1.tar.gz" "$2/archive"
    expected=$(cut -d ' ' -f 1 "$2/hash")
    found=$(hash_of "$2/archive")
    [ "$expected" = "$found" ] || fail "$1.tar.gz has the SHA-256 $found, expected $expected"
    tar -xzf "$2/archive" -C "$2"
}

install_atta() {
    name=$program-$(target)
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    trap 'exit 130' INT TERM
    download "$name" "$scratch"
    noted=$scratch/noted
    # The files of an older version are still to be removed.
    if [ -e "$prefix/$list" ]; then cp "$prefix/$list" "$noted"; else : >"$noted"; fi
    if [ ! -d "$prefix" ]; then
        mkdir -p "$prefix"
        echo ./ >>"$noted"
    fi
    install_files "$scratch/$name"
    sort -u "$noted" >"$prefix/$list"
    "$prefix/bin/atta" --version
    say_path
}

# Says how to call the program.
say_path() {
    case :$PATH: in
    *:"$prefix/bin":*) echo "Try: atta run -p \"Once upon a time\"" ;;
    *) echo "$prefix/bin is not in your PATH. Try: $prefix/bin/atta run -p \"Once upon a time\"" ;;
    esac
}

# The word behind option $1, if there are $2 words left.
need() {
    [ "$2" -ge 2 ] || fail "$1 needs a value"
}

main() {
    program=atta gpu='' prefix='' version='' from='' action=install_atta
    while [ $# -gt 0 ]; do
        case $1 in
        --board) program=atta-board ;;
        --gpu) gpu=-gpu ;;
        --prefix) need "$1" $# && prefix=$2 && shift ;;
        --version) need "$1" $# && version=$2 && shift ;;
        --from) need "$1" $# && from=$2 && shift ;;
        --uninstall) action=uninstall ;;
        -h | --help) usage && exit 0 ;;
        *) fail "unknown option $1" ;;
        esac
        shift
    done
    prefix=${prefix:-${HOME:?give a --prefix}/.local}
    [ -z "$version" ] || [ -z "$from" ] || fail "--version and --from exclude each other"
    [ -z "$gpu" ] || [ "$program" = atta ] || fail "--board and --gpu exclude each other"
    if [ -z "$from" ]; then
        from=$repository/releases/latest/download
        [ -z "$version" ] || from=$repository/releases/download/v${version#v}
    fi
    from=${from%/}
    $action
}

# The last line: a script that was cut by the network does nothing.
main "$@"
