use std::fmt::{self, Debug};
use std::sync::Arc;

/// Host memory that is sent from where it lies, kept alive until every peer has read it.
pub trait Words: Send + Sync {
    /// The words.
    fn words(&self) -> &[u32];
}

impl Words for Vec<u32> {
    fn words(&self) -> &[u32] {
        self
    }
}

/// What a collective sends.
#[derive(Clone)]
pub enum Buffer {
    /// Memory of this process.
    Host(Arc<dyn Words>),
    /// Memory of a device, ready once the work queued on its stream is done.
    Device(DeviceRegion),
}

/// A stretch of a device's memory. Whoever starts a collective keeps it allocated until the wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceRegion {
    /// Address of the first word, as the device sees it.
    pub address: u64,
    /// Length in words.
    pub words: usize,
    /// The stream on which the memory is written and read, as the driver's handle.
    pub stream: u64,
}

impl Buffer {
    /// A buffer that owns `words`.
    pub fn host(words: Vec<u32>) -> Self {
        Self::Host(Arc::new(words))
    }

    /// Length in words.
    pub fn len(&self) -> usize {
        match self {
            Self::Host(words) => words.words().len(),
            Self::Device(region) => region.words,
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(words) => write!(f, "Host({} words)", words.words().len()),
            Self::Device(region) => write!(f, "Device({region:?})"),
        }
    }
}
