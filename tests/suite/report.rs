//! The page of runs: what is on it, and that a browser opens it.

use std::path::{Path, PathBuf};
use std::process::Command;

use fulmar::train::history::{ENDED, History};
use fulmar::train::report_page::{self, ReportOptions};
use fulmar::train::telemetry::jsonl::LOG_FILE;
use fulmar::train::telemetry::loads::{LOADS_FILE, Loads};
use fulmar::train::{RunOptions, run};

use crate::tiny::Tiny;

/// What links of the page call its sections.
const SECTIONS: [&str; 13] = [
    "runs",
    "loss",
    "gradient",
    "drops",
    "loads",
    "speed",
    "schedule",
    "evaluations",
    "events",
    "flops",
    "lineage",
    "experiments",
    "origin",
];

/// Two ranks with little room, evaluations, a name that a page must escape.
const SETTINGS: [&str; 5] = [
    "name=\"<script>alert(1)\"",
    "evaluation.points=5",
    "parallel.shards=2",
    "parallel.dispatch={kind=\"pooled_wave\",num_expert_waves=1,capacity_factor=1.0,\
     transport_capacity_factor=1.0}",
    "checkpoint.every=4",
];

/// A run that was stopped after six updates, resumed from them, and came to its end.
fn made() -> Tiny {
    let tiny = Tiny::new();
    let config = tiny.config(&SETTINGS);
    let first = RunOptions { stop_after: Some(6), ..tiny.options("run") };
    run(&config, &first).expect("six updates");
    run(&config, &RunOptions { resume: true, ..tiny.options("run") }).expect("four more");
    tiny
}

fn options(tiny: &Tiny) -> ReportOptions {
    ReportOptions {
        runs: vec![tiny.path("run")],
        out: tiny.path("report.html"),
        forecast: None,
        experiments: None,
    }
}

fn page(options: &ReportOptions) -> String {
    report_page::write(options).unwrap_or_else(|error| panic!("{}", error.chain()));
    std::fs::read_to_string(&options.out).expect("the page")
}

#[test]
fn a_page_has_every_section_and_plots_of_what_was_logged() {
    let tiny = made();
    let options = options(&tiny);
    let text = page(&options);
    for section in SECTIONS {
        assert!(text.contains(&format!("<section id=\"{section}\">")), "{section}");
        assert!(text.contains(&format!("href=\"#{section}\"")), "{section}");
    }
    let name = "&lt;script&gt;alert(1)";
    assert!(text.contains(name) && !text.contains("<script"), "a name is text, whatever it is");
    for plot in [
        "Training loss",
        "Held-out loss",
        "Gradient norm",
        "Speed",
        "Use of the hardware (MFU)",
        "Learning rate, Adam",
        "Attempts and branches",
    ] {
        assert!(text.contains(&format!("<h3>{plot}</h3>")), "{plot}");
    }
    for plot in ["Drops by place", "Drops by layer", "Load by layer and expert", "Busiest expert"] {
        let heading = text.split("<h3>").find(|rest| rest.starts_with(plot));
        assert!(heading.expect(plot).contains("<svg"), "{plot}");
    }
    // Both starts, and that the second one is an event; nothing that was not given is left empty.
    assert!(text.contains("1.1") && text.contains("1.2") && text.contains("resumed from step 6"));
    assert!(text.contains("no preregistered forecast was given"));
    assert!(text.contains("no folder of experiment records was given"));
    let absent = std::fs::remove_file(tiny.path("run").join(LOADS_FILE));
    absent.expect("there was one");
    assert!(page(&options).contains("the run has no loads.jsonl"));
}

#[test]
fn loads_are_those_of_all_updates_since_the_evaluation_before() {
    let tiny = made();
    let config = tiny.config(&SETTINGS);
    let loads = Loads::read(&tiny.path("run")).expect("loads");
    let of_attempts: Vec<_> = loads.iter().map(|l| (l.attempt, l.step, l.updates)).collect();
    // Points of ten updates at 2, 4, .. 10; the first start ends at 6, which is evaluated anyhow.
    assert_eq!(of_attempts, [(1, 2, 2), (1, 4, 2), (1, 6, 2), (2, 8, 2), (2, 10, 2)]);
    let each = config.tokens_per_step() * config.model.num_experts_per_token as u64;
    for loads in &loads {
        assert_eq!(loads.counts.len(), config.model.num_layers);
        for counts in &loads.counts {
            assert_eq!(counts.len(), config.model.num_experts);
            let sum: u64 = counts.iter().sum();
            // Rows may end with padding, which chooses nothing.
            assert!(sum > 0 && sum <= loads.updates * each, "{sum} of {each} an update");
        }
        assert!(
            loads
                .counts
                .iter()
                .all(|counts| counts.iter().sum::<u64>() == loads.counts[0].iter().sum::<u64>())
        );
    }
    let events = History::read(&tiny.path("run")).expect("a history");
    let ends: Vec<_> = events.iter().filter(|event| event.what == ENDED).collect();
    assert_eq!(
        ends.iter().map(|end| (end.attempt, end.step)).collect::<Vec<_>>(),
        [(1, 6), (2, 10)]
    );
}

#[test]
fn following_writes_the_page_at_each_evaluation_until_the_end() {
    let tiny = made();
    let (whole, live) = (tiny.path("run"), tiny.path("live"));
    std::fs::create_dir(&live).expect("made");
    std::fs::copy(whole.join("recipe.toml"), live.join("recipe.toml")).expect("copied");
    let log = std::fs::read_to_string(whole.join(LOG_FILE)).expect("a log");
    let history = std::fs::read_to_string(whole.join("history.jsonl")).expect("a history");
    let started = history.lines().next().expect("the first start");
    std::fs::write(live.join("history.jsonl"), format!("{started}\n")).expect("written");
    let lines: Vec<&str> = log.lines().take(5).collect();
    std::fs::write(live.join(LOG_FILE), lines.join("\n") + "\n").expect("written");
    let options = ReportOptions { runs: vec![live.clone()], ..options(&tiny) };
    let mut pages = Vec::new();
    report_page::follow(&options, &mut || {
        pages.push(std::fs::read_to_string(&options.out).expect("a page"));
        // The rest of the run, while its page is being written.
        std::fs::write(live.join(LOG_FILE), &log).expect("written");
        std::fs::write(live.join("history.jsonl"), &history).expect("written");
    })
    .expect("followed");
    assert_eq!(pages.len(), 2);
    assert!(pages[0].contains("going on or cut off") && pages[1].contains("finished"));
}

/// Chromium, where it is installed.
fn chromium() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    let candidates: Vec<PathBuf> = std::env::split_paths(&folders)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .collect();
    candidates.into_iter().find(|path| path.is_file())
}

/// The document of `page` after it was opened, and every message of the console.
fn open(chromium: &Path, page: &Path, folder: &Path) -> (String, Vec<String>) {
    let output = Command::new(chromium)
        .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
        .args(["--no-first-run", "--hide-scrollbars", "--allow-file-access-from-files"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=10000", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.join("profile").display()))
        .arg(format!("file://{}", page.display()))
        .output()
        .expect("chromium starts");
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    let document = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && !document.is_empty(), "{log}");
    let messages = log.lines().filter(|line| line.contains(":CONSOLE"));
    (document, messages.map(str::to_owned).collect())
}

#[test]
fn a_browser_opens_the_page_without_a_word_and_without_a_request() {
    let Some(chromium) = chromium() else {
        println!("skipped: there is no chromium");
        return;
    };
    let tiny = made();
    let text = page(&options(&tiny));
    let folder = tiny.path("");
    let (document, messages) = open(&chromium, &tiny.path("report.html"), &folder);
    assert_eq!(messages, [""; 0]);
    for section in SECTIONS {
        assert!(document.contains(&format!("<section id=\"{section}\">")), "{section}");
    }
    let (svgs, figures) = (document.matches("<svg").count(), document.matches("<figure>").count());
    assert!(svgs == figures && svgs >= 12, "{svgs} plots in {figures} figures");

    // The page forbids requests and scripts; one that was in it would be a word of the console.
    let requested = text.replace(
        "<header>",
        "<img src=\"https://example.com/a.png\"><script>document.title = 'ran'</script><header>",
    );
    std::fs::write(tiny.path("bad.html"), requested).expect("written");
    let (document, messages) = open(&chromium, &tiny.path("bad.html"), &folder);
    assert!(messages.len() >= 2 && !document.contains("<title>ran"), "{messages:?}");

    // On a phone nothing is wider than the screen but what scrolls within itself.
    let host = "<iframe id=page src=report.html style='width:390px;height:800px;border:0'></iframe>\
        <script>page.onload = () => document.body.dataset.width = \
        page.contentDocument.documentElement.scrollWidth</script>";
    std::fs::write(tiny.path("phone.html"), host).expect("written");
    let (document, _) = open(&chromium, &tiny.path("phone.html"), &folder);
    assert!(document.contains("data-width=\"390\""), "{}", &document[..document.len().min(300)]);
}
