//! Threads that work beside training.

/// Lets the calling thread run only where training leaves a core free: what it does is not urgent,
/// and a step waits for its slowest thread. A system that refuses leaves it as it is.
pub fn give_way() {
    #[cfg(target_os = "linux")]
    {
        /// The least urgent there is; on Linux it is of the thread alone.
        const NICE: i32 = 19;
        rustix::process::setpriority_process(None, NICE).ok();
    }
}
