# SPDX-License-Identifier: Apache-2.0
# Sourced by tools/demo and tools/test: installs what is missing, and builds into ./build.
# Does nothing that is done already.

say() { echo "ipcshim: $*" >&2; }

# A command or a file that must be there, and the Debian package that brings it.
needs=(
    meson:meson ninja:ninja-build gcc:gcc g++:g++ python3:python3
    /usr/include/stdlib.h:libc6-dev
    /usr/include/boost/context/detail/fcontext.hpp:libboost-context-dev
    spin:spin
)

missing_packages() {
    local need what
    for need in "${needs[@]}"; do
        what=${need%%:*}
        if [[ $what == /* ]]; then
            [[ -e $what ]] || echo "${need##*:}"
        else
            command -v "$what" >/dev/null || echo "${need##*:}"
        fi
    done
}

install_missing() {
    local packages
    mapfile -t packages < <(missing_packages)
    ((${#packages[@]})) || return 0
    if ! command -v apt-get >/dev/null || (($(id -u) != 0)); then
        say "missing: ${packages[*]}; install them (as root on Debian this is automatic)"
        return 0
    fi
    say "installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends "${packages[@]}" </dev/null >&2 ||
        { apt-get update -q </dev/null >&2 &&
            apt-get install -y -q --no-install-recommends "${packages[@]}" </dev/null >&2; } ||
        say "could not install ${packages[*]}; going on with what is here"
}

build() {
    install_missing
    [[ -e build/build.ninja ]] || meson setup build >&2
    ninja -C build >&2
}
