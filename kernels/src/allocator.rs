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

/// Vectors from this size on are asked into huge pages; below, a page of 2 MiB would be shared with
/// others.
#[cfg(target_os = "linux")]
const HUGE_BYTES: usize = 4 << 20;

/// Words of value 0, in huge pages where the system has them and the vector is large.
///
/// For what is filled once and stays, such as a state that is read: to map a GiB in pages of 4 KiB
/// takes as long as to read it (0.37 s on a Zen 5, 0.05 s in pages of 2 MiB).
pub fn zeroed_words(len: usize) -> Vec<u32> {
    let words = vec![0; len];
    #[cfg(target_os = "linux")]
    ask_for_huge_pages(&words);
    words
}

/// Advice alone: a system that has none to give leaves the memory as it is.
#[cfg(target_os = "linux")]
fn ask_for_huge_pages(words: &[u32]) {
    const PAGE: usize = 4096;
    let (bytes, start) = (size_of_val(words), words.as_ptr().cast::<u8>());
    if bytes < HUGE_BYTES {
        return;
    }
    let before = start.align_offset(PAGE);
    let whole = (bytes - before) / PAGE * PAGE;
    // SAFETY: the range lies within the vector, and this advice changes how memory is mapped, never
    // what is in it.
    unsafe {
        libc::madvise(start.add(before).cast_mut().cast(), whole, libc::MADV_HUGEPAGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_any_length_are_zero_and_can_be_written() {
        for len in [0, 1, 1 << 20, (3 << 20) + 5] {
            let mut words = zeroed_words(len);
            assert!(words.len() == len && words.iter().all(|word| *word == 0));
            words.fill(7);
            assert!(words.iter().all(|word| *word == 7));
        }
    }
}
