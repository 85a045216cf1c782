//! What is printed.

use super::machine::Machine;
use super::secs::Secs;

/// What an operation cannot do without, in FLOP and in bytes read or written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Work {
    pub(crate) flop: f64,
    pub(crate) bytes: f64,
}

impl Work {
    pub(crate) fn flop(flop: f64) -> Self {
        Self { flop, bytes: 0.0 }
    }

    /// So many f32, or integers of that size, read or written.
    pub(crate) fn values(values: usize) -> Self {
        Self { flop: 0.0, bytes: (values * size_of::<f32>()) as f64 }
    }
}

/// One line.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) op: &'static str,
    pub(crate) shape: String,
    pub(crate) secs: Secs,
    pub(crate) work: Work,
    /// The share of the roofline that is wanted.
    pub(crate) target: Option<f64>,
    /// What the reference takes for each second of the kernel, at the shape named.
    pub(crate) reference: Option<(f64, &'static str)>,
    /// What else there is to say.
    pub(crate) note: String,
}

impl Row {
    pub(crate) fn new(op: &'static str, shape: String, secs: Secs, work: Work) -> Self {
        Self { op, shape, secs, work, target: None, reference: None, note: String::new() }
    }

    pub(crate) fn target(self, share: f64) -> Self {
        Self { target: Some(share), ..self }
    }

    /// What the reference and the kernel take at the shape `at`; nothing if it is the row's.
    pub(crate) fn reference(self, reference: Secs, own: Secs, at: &'static str) -> Self {
        Self { reference: Some((reference.wall / own.wall, at)), ..self }
    }

    pub(crate) fn note(self, note: String) -> Self {
        Self { note, ..self }
    }

    pub(crate) fn print(&self, machine: &Machine) {
        let (least, Secs { wall, threads }) = (machine.least_secs(self.work), self.secs);
        let target = self.target.map_or(String::new(), |t| format!("{:.0}%", 100.0 * t));
        let reference = match self.reference {
            Some((ratio, "")) => format!("{ratio:.1}x"),
            Some((ratio, at)) => format!("{ratio:.1}x at {at}"),
            None => String::new(),
        };
        let note = [reference, self.note.clone()].join("  ");
        println!(
            "{:<17}{:<37}{:>9.2}{:>9.1}{:>7.1}{:>7.1}%{:>8.1}%{:>7}  {}",
            self.op,
            self.shape,
            wall * 1e3,
            self.work.flop / wall / 1e9,
            self.work.bytes / wall / 1e9,
            100.0 * least.wall / wall,
            100.0 * least.threads / threads,
            target,
            note.trim(),
        );
    }
}

pub(crate) fn print_header() {
    println!(
        "{:<17}{:<37}{:>9}{:>9}{:>7}{:>8}{:>9}{:>7}  against the reference; notes",
        "", "shape", "ms", "GFLOP/s", "GB/s", "share", "threads", "target"
    );
}

pub(crate) fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
