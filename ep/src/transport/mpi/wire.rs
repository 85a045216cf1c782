//! The calls of MPI that are used, and who owns the memory that MPI reads and writes meanwhile.

use std::ffi::c_int;
use std::mem::{self, ManuallyDrop};
use std::ops::Range;
use std::sync::Arc;

use mpi::Threading;
use mpi::environment::Universe;
use mpi::ffi::{self, MPI_Request};
use mpi::traits::Communicator as _;

use crate::transport::{TransportError, Words};

/// The largest tag that every MPI has.
pub(super) const MAX_TAG: c_int = 32_767;

/// Words of one message at most (16 MiB); longer parts go as several under the same tag, and MPI
/// keeps their order. MPI counts in 31 bits, so some limit is needed; from this size on a larger
/// one is no faster.
const MESSAGE_WORDS: usize = 1 << 22;

/// MPI, initialised. Whoever has it may call MPI; a process has one, behind a lock.
///
/// An error inside MPI ends all ranks with MPI's own message, which is MPI's default: a call that
/// returns has succeeded.
///
/// MPI is ended by [`end`](Self::end) only: its end waits for all ranks, so a rank that fails must
/// leave without it.
pub(super) struct Wire {
    universe: ManuallyDrop<Universe>,
}

/// A message that MPI reads where it lies.
pub(super) struct Sending {
    request: MPI_Request,
    words: Arc<dyn Words>,
}

/// Memory that MPI writes to while messages are due.
pub(super) struct Receiving {
    words: Vec<u32>,
    due: Vec<Due>,
}

struct Due {
    from: Option<usize>,
    request: MPI_Request,
}

// SAFETY: a request is only used through `Wire`, so by one thread at a time, and MPI was
// initialised for calls from any thread.
unsafe impl Send for Sending {}
// SAFETY: as for `Sending`.
unsafe impl Send for Due {}

impl Wire {
    /// Starts MPI. Calls come from whichever thread waits for a collective, one at a time: a
    /// backward pass waits on the thread that called it, but nothing forbids others. That is
    /// MPI's level `Serialized`.
    pub(super) fn initialise() -> Result<Self, TransportError> {
        let refuse = |rank, problem| Err(TransportError::Library { rank, library: "MPI", problem });
        let Some((universe, level)) = mpi::initialize_with_threading(Threading::Serialized) else {
            return refuse(0, "it runs already; a process starts it once".to_owned());
        };
        let wire = Self { universe: ManuallyDrop::new(universe) };
        if level < Threading::Serialized {
            let problem = format!("its threading level is {level:?}, needed Serialized");
            return refuse(wire.rank(), problem);
        }
        Ok(wire)
    }

    pub(super) fn rank(&self) -> usize {
        self.universe.world().rank() as usize
    }

    pub(super) fn ranks(&self) -> usize {
        self.universe.world().size() as usize
    }

    /// Ends MPI, on the thread that started it, as all other ranks do.
    pub(super) fn end(self) {
        drop(ManuallyDrop::into_inner(self.universe));
    }

    /// Ends all processes.
    pub(super) fn abort(&mut self, status: c_int) -> ! {
        self.universe.world().abort(status)
    }

    /// Begins to send a part.
    pub(super) fn send<'a>(
        &'a mut self,
        words: &'a Arc<dyn Words>,
        part: Range<usize>,
        to: usize,
        tag: c_int,
    ) -> impl Iterator<Item = Sending> + 'a {
        messages(part).map(move |part| {
            let message = &words.words()[part];
            // SAFETY: an initialised static of the library.
            let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
            // SAFETY: MPI is initialised and reads `message.len()` words from `message`. They are
            // borrowed from what the `Arc` holds, which `Sending` keeps until MPI is done, and
            // nobody can borrow mutably what an `Arc` shares.
            unsafe {
                ffi::MPI_Isend(
                    message.as_ptr().cast(),
                    message.len() as c_int,
                    ffi::RSMPI_UINT32_T,
                    to as c_int,
                    tag,
                    ffi::RSMPI_COMM_WORLD,
                    &raw mut request,
                );
            }
            Sending { request, words: words.clone() }
        })
    }

    /// Whether the memory is free again.
    pub(super) fn is_sent(&mut self, sending: &mut Sending) -> bool {
        self.is_done(&mut sending.request)
    }

    /// Begins to receive a part from a rank, or from any.
    pub(super) fn receive(
        &mut self,
        receiving: &mut Receiving,
        part: Range<usize>,
        from: Option<usize>,
        tag: c_int,
    ) {
        assert!(part.end <= receiving.words.len(), "a part of the memory");
        for part in messages(part) {
            // SAFETY: initialised statics of the library.
            let (mut request, anyone) = unsafe { (ffi::RSMPI_REQUEST_NULL, ffi::RSMPI_ANY_SOURCE) };
            // SAFETY: MPI is initialised and writes at most `part.len()` words at `part`, which
            // lies within `words`, checked above. `Receiving` touches and frees `words` only
            // while nothing is due; parts that overlap hold plain words all the same.
            unsafe {
                ffi::MPI_Irecv(
                    receiving.words.as_mut_ptr().add(part.start).cast(),
                    part.len() as c_int,
                    ffi::RSMPI_UINT32_T,
                    from.map_or(anyone, |rank| rank as c_int),
                    tag,
                    ffi::RSMPI_COMM_WORLD,
                    &raw mut request,
                );
            }
            receiving.due.push(Due { from, request });
        }
    }

    /// Whether all that was due has come.
    pub(super) fn is_received(&mut self, receiving: &mut Receiving) -> bool {
        receiving.due.retain_mut(|due| !self.is_done(&mut due.request));
        receiving.due.is_empty()
    }

    /// Gives up what is due, if none of it is on its way.
    pub(super) fn cancel(&mut self, receiving: &mut Receiving) {
        for due in &mut receiving.due {
            // SAFETY: MPI is initialised, and the request is of a receive that is not done.
            unsafe { ffi::MPI_Cancel(&raw mut due.request) };
        }
        // MPI promises that this ends without any peer.
        while !self.is_received(receiving) {}
    }

    fn is_done(&mut self, request: &mut MPI_Request) -> bool {
        let mut done = 0;
        // SAFETY: MPI is initialised, and `request` is what it gave for a message; once that is
        // done it is the null request, for which the answer is yes again.
        unsafe { ffi::MPI_Test(request, &raw mut done, ffi::RSMPI_STATUS_IGNORE) };
        done != 0
    }
}

impl Receiving {
    pub(super) fn new(words: usize) -> Self {
        Self { words: vec![0; words], due: Vec::new() }
    }

    /// The memory, while nothing is due.
    pub(super) fn words(&mut self) -> &mut Vec<u32> {
        assert!(self.due.is_empty(), "MPI may write here");
        &mut self.words
    }

    /// Who still has to send.
    pub(super) fn due(&self) -> impl Iterator<Item = usize> {
        self.due.iter().filter_map(|due| due.from)
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if !self.due.is_empty() {
            // A wait that failed. MPI may write here until the process ends, which is soon.
            mem::forget(mem::take(&mut self.words));
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        // SAFETY: an initialised static of the library.
        if self.request != unsafe { ffi::RSMPI_REQUEST_NULL } {
            // MPI may read it until the process ends.
            mem::forget(self.words.clone());
        }
    }
}

fn messages(part: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = part.end;
    part.step_by(MESSAGE_WORDS).map(move |start| start..end.min(start + MESSAGE_WORDS))
}
