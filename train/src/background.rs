//! Threads that work beside training.

/// Lets the calling thread, and those that it starts, run only where training leaves a core free: what
/// it does is not urgent, and a step waits for its slowest thread. A system that refuses leaves it as
/// it is.
///
/// On Linux the policy is the idle one, and not a low priority of the usual policy: since Linux 6.6 a
/// thread of the usual policy is left to the end of its slice, 3 ms, whoever wakes up meanwhile, and
/// an idle one gives way at once.
pub fn give_way() {
    #[cfg(target_os = "linux")]
    {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the call reads `parameters`, which lives, and changes how this thread is scheduled
        // and nothing else; 0 is the calling thread.
        unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) };
    }
}
