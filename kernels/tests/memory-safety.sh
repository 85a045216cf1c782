#!/usr/bin/env bash
# Looks for reads and writes out of bounds, of freed and of unset memory in the CPU kernels.
#
# From the root: kernels/tests/memory-safety.sh        (about half an hour; no part of .ci/run)
#
# Miri interprets the unit tests of the crate: the loops in their portable form, since it has no
# vector extensions, and every operation once by its kernel and once by its reference.
# AddressSanitizer watches the tests of every kernel with the vector loops and the products of the
# `gemm` crate, whose assembly Miri cannot run. Both need a nightly toolchain with Miri.
set -euo pipefail
cd "$(dirname "$0")/../.."

toolchain=${TOOLCHAIN:-nightly}
cargo "+$toolchain" miri --version

# The exponential is tried at a million points, which takes an interpreter an hour.
MIRIFLAGS="-Zmiri-ignore-leaks -Zmiri-tree-borrows -Zmiri-disable-isolation" \
    cargo "+$toolchain" miri test --target-dir target/miri -p fulmar-kernels --lib -- \
    --skip exp_is_within

RUSTFLAGS="-Zsanitizer=address" ASAN_OPTIONS="detect_leaks=0" \
    cargo "+$toolchain" test --target-dir target/asan --target "$(rustc -vV | sed -n 's/^host: //p')" \
    -p fulmar-kernels --lib --test kernels
