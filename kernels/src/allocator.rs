//! Memory that a step frees is memory that the next step wants.

/// Buffers from this size on go back to the system when they are freed, 32 MiB, the most that the
/// allocator accepts: gradients of large parameters are, activations are not.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const RETURNED_BYTES: libc::c_int = 1 << 25;

/// From now on the process keeps what it frees, for what it allocates next.
///
/// By default glibc returns large buffers to the system at once, and a training step allocates the
/// same ones again: the pages are zeroed and mapped anew in each step. Of the proxy step of
/// `cargo bench --bench step` that was a ninth of the time. Binaries that train call this first;
/// with another C library, or another allocator, it does nothing.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: the two calls change thresholds of the allocator and nothing else; they are allowed
    // at any time and from any thread.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, RETURNED_BYTES);
        libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
    }
}
