//! What a step pays for being watched.

use fulmar_ep::World;
use fulmar_train::alarms::{Alarms, Health};
use fulmar_train::optim::Norms;
use fulmar_train::telemetry::{Console, Peak, PeakSource, Record, StepLine};
use fulmar_train::watchdog::{Phase, Pulse};

use super::seconds;
use super::timing::least;
use super::whole::WholeStep;

/// Seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Telemetry {
    /// Of the line of a step: metrics, alarms, both files.
    pub(crate) line: f64,
    /// Of the norms of all parameters, where they are due.
    pub(crate) norms: f64,
    /// Steps between norms.
    pub(crate) norms_every: u64,
}

impl Telemetry {
    /// On average over steps.
    pub(crate) fn per_step(&self) -> f64 {
        self.line + self.norms / self.norms_every as f64
    }

    /// Measured with the report of the last step.
    pub(crate) fn measure(step: &WholeStep<'_>, repeats: usize) -> Self {
        let (config, state) = (step.config(), step.state());
        let (table, world) = (state.optimizer.table(), World::solo());
        let norms_of = || Norms::of_parameters(&state.model, table, &world).expect("one rank");
        let parameters = norms_of();
        let norms = least((0..repeats).map(|_| seconds(&mut || drop(norms_of()))));

        let folder = tempfile::tempdir().expect("a temporary folder");
        let console = Console::new(0, u64::MAX, u64::MAX);
        let mut record = Record::open(folder.path(), console, true).expect("a folder to write in");
        let mut alarms = Alarms::new(&config.alarms);
        let (report, pulse) = (step.report(), Pulse::default());
        let peak = Peak { flops_per_second: 1e12, source: PeakSource::Given, accelerator: true };
        let mut once = || {
            pulse.begin_step(1);
            Phase::ALL.iter().for_each(|phase| pulse.enter(*phase));
            let line = StepLine {
                config,
                report,
                rates: state.optimizer.rates(&config.schedule, state.step),
                digest: step.batch().digest(),
                batches: 1,
                seq_len: step.batch().seq_len,
                stage: 0,
                exchange: "local",
                // In every line, which is more than a run does.
                norms: Some([&report.grad_norms, &parameters]),
                secs: 1.0,
                phases: pulse.take_seconds(),
                peak: Some(peak),
            };
            alarms.after_step(&Health::of(report, 1, config, line.mfu()));
            let mut metrics = line.metrics();
            metrics.extend(alarms.metrics());
            record.write(1, &metrics);
        };
        let line = least((0..20 * repeats).map(|_| seconds(&mut once)));
        Self { line, norms, norms_every: config.log.norms_every }
    }
}
