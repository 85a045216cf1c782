//! Kernels that fail on a device's own thread end the process.

use std::panic;

/// Threads of `CubeCL`'s devices and of their fused streams have names that begin so.
const DEVICE_THREADS: [&str; 2] = ["DSD", "DSU"];

/// From now on a panic on a device thread prints its message and aborts the process.
///
/// A kernel that does not compile panics there, and the caller that reads its output gets whatever
/// lay in the buffer, without an error: a run would train on noise. Every binary and every test
/// that opens a device calls this first; a second call does nothing.
pub fn abort_on_device_panic() {
    static INSTALLED: std::sync::Once = std::sync::Once::new();
    INSTALLED.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            report(info);
            let thread = std::thread::current();
            let on_device = |name: &str| DEVICE_THREADS.iter().any(|start| name.starts_with(start));
            if thread.name().is_some_and(on_device) {
                eprintln!(
                    "a kernel failed on its device; its results are lost, so the process ends"
                );
                std::process::abort();
            }
        }));
    });
}
