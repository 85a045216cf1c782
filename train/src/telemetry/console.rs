//! Progress for a reader: a bar on a terminal, plain lines elsewhere.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressStyle};

/// Where progress goes.
#[derive(Debug)]
pub struct Console {
    bar: Option<ProgressBar>,
    every: u64,
    end: u64,
}

/// What is shown of a step.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Completed updates.
    pub step: u64,
    /// Loss of the step.
    pub loss: f64,
    /// Norm of its gradient.
    pub grad_norm: f64,
    /// Tokens a second.
    pub tokens_per_second: f64,
    /// Seconds until the end at this speed.
    pub seconds_left: f64,
}

impl Console {
    /// From `step` to `end`, with a plain line every `every` steps where there is no terminal.
    pub fn new(step: u64, end: u64, every: u64) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = "{bar:24} {pos}/{len}  {msg}  left {eta}";
            let style = ProgressStyle::with_template(style).expect("a valid template");
            let bar = ProgressBar::new(end).with_style(style).with_position(step);
            bar.reset_eta();
            bar
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
    pub fn step(&self, progress: Progress) {
        let Progress { step, loss, grad_norm, tokens_per_second, seconds_left } = progress;
        let shown = format!("loss {loss:.4}  grad {grad_norm:.3}  {tokens_per_second:.0} tokens/s");
        match &self.bar {
            Some(bar) => {
                bar.set_position(step);
                bar.set_message(shown);
            }
            None if step.is_multiple_of(self.every) || step == self.end => {
                println!("step {step}/{}  {shown}  left {}", self.end, time(seconds_left));
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

/// `1h02m`, `3m05s` or `42s`.
pub fn time(seconds: f64) -> String {
    let seconds = seconds.max(0.0).round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m{s:02}s"),
        (h, m, _) => format!("{h}h{m:02}m"),
    }
}
