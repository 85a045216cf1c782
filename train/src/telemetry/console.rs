//! Progress for a reader: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

/// Where progress goes. Clones share the bar.
#[derive(Debug, Clone)]
pub struct Console {
    bar: Option<ProgressBar>,
    every: u64,
    end: u64,
}

/// What is shown of a step.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Completed updates.
    pub step: u64,
    /// Loss of the step.
    pub loss: f64,
    /// Norm of its gradient.
    pub grad_norm: f64,
    /// Tokens a second.
    pub tokens_per_second: f64,
    /// Percent of the peak that is used, where that is known.
    pub mfu: Option<f64>,
    /// Share of assignments that were dropped.
    pub drop_fraction: f64,
    /// Seconds until the end at the speed of this attempt.
    pub seconds_left: f64,
    /// Names of the alarms that are up.
    pub alarms: &'a [&'static str],
}

impl Console {
    /// From `step` to `end`, with a plain line every `every` steps where there is no terminal.
    pub fn new(step: u64, end: u64, every: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = "{wide_bar:.cyan/dim} {pos}/{len}\n{msg}";
            let style = ProgressStyle::with_template(style).expect("a valid template");
            ProgressBar::new(end).with_style(style).with_position(step)
        });
        Self { bar, every, end }
    }

    /// A line above the progress.
    pub fn line(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| println!("{text}")),
            None => println!("{text}"),
        }
    }

    /// One step further.
    pub fn step(&self, progress: Progress<'_>) {
        match &self.bar {
            Some(bar) => {
                bar.set_position(progress.step);
                // A line of their own: a narrow terminal must not cut them off.
                let alarms =
                    progress.alarm_text().map_or(String::new(), |text| format!("\n{text}"));
                bar.set_message(progress.text() + &alarms);
            }
            None if progress.step.is_multiple_of(self.every) || progress.step == self.end => {
                let alarms =
                    progress.alarm_text().map_or(String::new(), |text| format!("  {text}"));
                println!("step {}/{}  {}{alarms}", progress.step, self.end, progress.text());
            }
            None => {}
        }
    }

    /// Ends the bar and leaves it on the screen.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.abandon();
        }
    }
}

impl Progress<'_> {
    fn text(&self) -> String {
        let Self { loss, grad_norm, tokens_per_second, .. } = self;
        let mut text =
            format!("loss {loss:.4}  grad {grad_norm:.3}  {tokens_per_second:.0} tokens/s");
        if let Some(mfu) = self.mfu {
            text += &format!("  mfu {mfu:.1}%");
        }
        if self.drop_fraction > 0.0 {
            text += &format!("  drops {:.2}%", 100.0 * self.drop_fraction);
        }
        text + &format!("  left {}", time(self.seconds_left))
    }

    /// The alarms that are up, if any.
    fn alarm_text(&self) -> Option<String> {
        (!self.alarms.is_empty()).then(|| format!("ALARM {}", self.alarms.join(", ")))
    }
}

/// `1h02m`, `3m05s` or `42s`.
pub fn time(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_shows_what_there_is_and_nothing_else() {
        let mut progress = Progress {
            step: 7,
            loss: 3.2,
            grad_norm: 0.51,
            tokens_per_second: 4200.0,
            mfu: None,
            drop_fraction: 0.0,
            seconds_left: 65.0,
            alarms: &[],
        };
        assert_eq!(progress.text(), "loss 3.2000  grad 0.510  4200 tokens/s  left 1m05s");
        assert_eq!(progress.alarm_text(), None);
        progress.mfu = Some(41.26);
        progress.drop_fraction = 0.031;
        progress.alarms = &["loss", "drops"];
        let said = "loss 3.2000  grad 0.510  4200 tokens/s  mfu 41.3%  drops 3.10%  left 1m05s";
        assert_eq!(progress.text(), said);
        assert_eq!(progress.alarm_text().as_deref(), Some("ALARM loss, drops"));
    }
}
