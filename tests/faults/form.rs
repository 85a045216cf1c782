//! Which form runs, and where chance takes its numbers from.

use std::sync::OnceLock;

/// What the command line says beside what every test runner knows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// The long form.
    pub(crate) full: bool,
    /// Every instant and place follows from it.
    pub(crate) seed: u64,
}

static FORM: OnceLock<Form> = OnceLock::new();

/// Takes `--full` and `--seed=N` out of the arguments, and leaves the rest to the runner.
pub(crate) fn take_own(args: impl Iterator<Item = String>) -> Vec<String> {
    let mut form = Form { full: false, seed: 1 };
    let mut rest = Vec::new();
    for arg in args {
        match arg.strip_prefix("--seed=") {
            Some(seed) => form.seed = seed.parse().expect("--seed=N with a whole number"),
            None if arg == "--full" => form.full = true,
            None => rest.push(arg),
        }
    }
    FORM.set(form).expect("set once");
    rest
}

/// The form that runs.
pub(crate) fn form() -> Form {
    *FORM.get().expect("set by main")
}

/// One of two numbers by the form.
pub(crate) fn either<T>(short: T, full: T) -> T {
    if form().full { full } else { short }
}

/// Numbers by chance, the same for the same seed and name.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn of(name: &str) -> Self {
        let mixed = name.bytes().fold(form().seed, |state, byte| mixed(state ^ u64::from(byte)));
        Self(mixed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// From 0 up to 1.
    pub(crate) fn part(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The end of `splitmix64`.
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `count` numbers spread evenly over `0..end`, the first and the last among them; all of them
/// where there are no more.
pub(crate) fn spread(count: u64, end: u64) -> Vec<u64> {
    match count.min(end) {
        0 => Vec::new(),
        1 => vec![0],
        count => (0..count).map(|n| n * (end - 1) / (count - 1)).collect(),
    }
}
