use std::fs;

use fulmar_data::clean::{
    CleanSettings, CleanSource, Cleaned, ContaminationSettings, Decisions, EvaluationTexts,
    FuzzySettings, Shingle, clean,
};
use fulmar_data::{
    DataError, DocumentReader, Judge, Reason, Source, SourceIdentity, Verdict, corpus, documents,
};

use crate::fixture::{Folder, Test, chain, line};

/// `len` made-up words, those from `from` on.
fn words(from: usize, len: usize) -> String {
    (from..from + len).map(|i| format!("w{} ", i * i % 9_973)).collect()
}

fn jsonl(texts: &[&str]) -> String {
    let line = |(i, text): (usize, &&str)| line(&format!("d{i}"), text, "d", 0);
    texts.iter().enumerate().map(line).collect()
}

fn run(
    settings: &CleanSettings,
    evaluation: Option<&EvaluationTexts>,
    sources: &[(&Source, &[Reason])],
) -> Cleaned {
    let source = |&(source, exempt): &(&Source, &[Reason])| {
        CleanSource::file(source, exempt.to_vec()).expect("the file is there")
    };
    clean(settings, evaluation, sources.iter().map(source).collect()).expect("good files")
}

/// Records that are left out, with their reasons.
fn left_out(cleaned: &Cleaned) -> Vec<(u64, Reason)> {
    cleaned.decisions.all().iter().map(|d| (d.record, d.reason)).collect()
}

fn evaluation(folder: &Folder, settings: ContaminationSettings, texts: &[&str]) -> EvaluationTexts {
    let source = folder.source("evaluation.jsonl", jsonl(texts));
    EvaluationTexts::new(settings, documents([source])).expect("good texts")
}

#[test]
fn the_first_of_equal_texts_is_kept_also_across_files() {
    let folder = Folder::new();
    let a = folder.source("a.jsonl", jsonl(&["one", "two", "one", "three"]));
    let b = folder.source("b.jsonl", jsonl(&["two", "four", "one "]));
    let settings = CleanSettings { fuzzy: None, ..CleanSettings::default() };
    let cleaned = run(&settings, None, &[(&a, &[]), (&b, &[])]);
    let duplicate = Reason::Duplicate;
    assert_eq!(left_out(&cleaned), [(3, duplicate), (1, duplicate)], "a space makes another text");
    let all = cleaned.decisions.all();
    assert_eq!((&*all[0].file, &*all[1].file), (a.name(), b.name()));
    assert_eq!(all[1].evidence, format!("repeats {}:2", a.name()));
    let total = cleaned.report.total();
    assert!(total.closes());
    assert_eq!((total.documents, total.duplicate, total.kept, total.kept_bytes), (7, 2, 5, 19));
    let cleaned = run(&settings, None, &[(&b, &[]), (&a, &[])]);
    assert_eq!(
        left_out(&cleaned),
        [(2, duplicate), (3, duplicate)],
        "the order of reading decides"
    );
}

#[test]
fn near_duplicates_form_groups_of_which_the_first_is_kept() {
    let folder = Folder::new();
    let (a, b) = (words(0, 400), words(5_000, 400));
    let shifted = words(20, 400);
    let punctuated = a.to_uppercase().replace(' ', ",\n");
    let source = folder.source("x.jsonl", jsonl(&[&b, &a, &shifted, &punctuated]));
    let cleaned = run(&CleanSettings::default(), None, &[(&source, &[])]);
    let near = Reason::NearDuplicate;
    assert_eq!(left_out(&cleaned), [(3, near), (4, near)]);
    let evidence: Vec<&str> = cleaned.decisions.all().iter().map(|d| &*d.evidence).collect();
    assert!(evidence[0].starts_with(&format!("like {}:2, similarity 0.", source.name())));
    assert_eq!(evidence[1], format!("like {}:2, similarity 1.00", source.name()));
    let report = &cleaned.report;
    assert_eq!((report.num_groups, report.groups[0].documents), (1, 3));
    assert_eq!(report.groups[0].first, format!("{}:2", source.name()));
    assert!(report.to_string().contains("groups of near duplicates: 1"), "{report}");
}

#[test]
fn a_chain_of_likeness_is_one_group() {
    let folder = Folder::new();
    // Neighbours share 380 of 420 words in a row, a similarity near 0.9; the ends share half.
    let texts: Vec<String> = (0..6).map(|i| words(i * 20, 400)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let source = folder.source("x.jsonl", jsonl(&texts));
    let cleaned = run(&CleanSettings::default(), None, &[(&source, &[])]);
    assert_eq!(cleaned.report.total().near_duplicate, 5);
    let ends = folder.source("ends.jsonl", jsonl(&[texts[0], texts[5]]));
    let cleaned = run(&CleanSettings::default(), None, &[(&ends, &[])]);
    assert_eq!(left_out(&cleaned), [], "the ends alone are not alike");
}

#[test]
fn characters_find_what_words_do_not() {
    let folder = Folder::new();
    let text: String =
        (0..600).map(|i| char::from_u32(0x4e00 + i * i % 5_003).expect("CJK")).collect();
    let changed: String = text.chars().chain("末尾".chars()).collect();
    let source = folder.source("x.jsonl", jsonl(&[&text, &changed, "?!", "...", "yes", "no"]));
    let settings = |shingle| CleanSettings {
        fuzzy: Some(FuzzySettings { shingle, ..FuzzySettings::default() }),
        ..CleanSettings::default()
    };
    let by_words = run(&settings(Shingle::Words(5)), None, &[(&source, &[])]);
    assert_eq!(left_out(&by_words), [], "a script without spaces is one word");
    let by_characters = run(&settings(Shingle::Characters(5)), None, &[(&source, &[])]);
    assert_eq!(left_out(&by_characters), [(2, Reason::NearDuplicate)]);
}

#[test]
fn a_document_that_holds_thirteen_words_of_an_evaluation_text_is_contaminated() {
    let folder = Folder::new();
    let question = words(0, 30);
    let texts = evaluation(&folder, ContaminationSettings::default(), &["too short", &question]);
    assert_eq!((texts.num_texts(), texts.num_too_short(), texts.num_runs(1)), (2, 1, 18));
    let thirteen = format!("before {} after", words(7, 13).to_uppercase());
    let twelve = format!("before {} after", words(7, 12));
    let source = folder.source("x.jsonl", jsonl(&[&twelve, &thirteen, &question]));
    let cleaned = run(&CleanSettings::default(), Some(&texts), &[(&source, &[])]);
    let contaminated = Reason::Contaminated;
    assert_eq!(left_out(&cleaned), [(2, contaminated), (3, contaminated)]);
    let evidence = &cleaned.decisions.all()[0].evidence;
    for part in ["shares 1 of 18 runs with", "evaluation.jsonl:2 (d1)", "W49 W64"] {
        assert!(evidence.contains(part), "{evidence}");
    }
    assert_eq!(cleaned.report.found[0].documents, 2);
    assert_eq!(cleaned.decisions.settings().contamination, Some(texts.settings()));
}

#[test]
fn counts_and_shares_of_runs_decide_where_they_are_asked_for() {
    let folder = Folder::new();
    let question = words(0, 32);
    let half = words(0, 22);
    let source = folder.source("x.jsonl", jsonl(&[&half, &question]));
    let all = [(1, Reason::Contaminated), (2, Reason::Contaminated)];
    // 20 runs of 13 in 32 words; the half holds 10 of them.
    for (min_count, min_share, expected) in
        [(10, 0.5, &all[..]), (11, 0.0, &all[1..]), (1, 0.51, &all[1..]), (21, 0.0, &[])]
    {
        let settings = ContaminationSettings { ngram: 13, min_count, min_share };
        let texts = evaluation(&folder, settings, &[&question]);
        let cleaned = run(&CleanSettings::default(), Some(&texts), &[(&source, &[])]);
        let found = left_out(&cleaned);
        let found: Vec<_> = found.into_iter().filter(|d| d.1 == Reason::Contaminated).collect();
        assert_eq!(found, expected, "{min_count} {min_share}");
    }
}

#[test]
fn exempt_documents_are_counted_kept_and_still_originals() {
    let folder = Folder::new();
    let text = words(0, 300);
    let near = format!("{text} one word more");
    let question = words(0, 30);
    let texts = evaluation(&folder, ContaminationSettings::default(), &[&question]);
    let a = folder.source("a.jsonl", jsonl(&[&text, &text, &near]));
    let b = folder.source("b.jsonl", jsonl(&[&text]));
    let c = folder.source("c.jsonl", jsonl(&[&near]));
    let every = [Reason::Duplicate, Reason::NearDuplicate, Reason::Contaminated];
    let sources: [(&Source, &[Reason]); 3] =
        [(&a, &every), (&b, &[Reason::Contaminated]), (&c, &[])];
    let cleaned = run(&CleanSettings::default(), Some(&texts), &sources);
    let found: Vec<(&str, Reason)> =
        cleaned.decisions.all().iter().map(|d| (&*d.file, d.reason)).collect();
    assert_eq!(found, [(b.name(), Reason::Duplicate), (c.name(), Reason::Contaminated)]);
    // Three contaminated, one duplicate and one near duplicate.
    assert_eq!((cleaned.report.sources[0].exempted, cleaned.report.sources[0].kept), (5, 3));
}

#[test]
fn a_text_does_not_go_with_a_contaminated_original() {
    let folder = Folder::new();
    let text = words(0, 60);
    let texts = evaluation(&folder, ContaminationSettings::default(), &[&text]);
    let a = folder.source("a.jsonl", jsonl(&[&text]));
    let b = folder.source("b.jsonl", jsonl(&[&text]));
    let sources: [(&Source, &[Reason]); 2] = [(&a, &[]), (&b, &[Reason::Contaminated])];
    let cleaned = run(&CleanSettings::default(), Some(&texts), &sources);
    assert_eq!(cleaned.decisions.all().len(), 1);
    assert_eq!(cleaned.decisions.all()[0].file, a.name());
}

#[test]
fn a_decisions_file_judges_the_documents_of_the_very_files() -> Test {
    let folder = Folder::new();
    let source = folder.source("x.jsonl", jsonl(&["one", "two", "one"]));
    let cleaned = run(&CleanSettings::default(), None, &[(&source, &[])]);
    let path = folder.path("clean.jsonl");
    cleaned.decisions.write(&path)?;
    let read = Decisions::read(&path)?;
    assert_eq!(read, cleaned.decisions);
    let bound = read.bind(read.files())?;
    let verdicts: Vec<Verdict> = DocumentReader::open(&source)?
        .map(|d| d.map(|d| bound.judge(&d)))
        .collect::<Result<_, _>>()?;
    let evidence = format!("repeats {}:1", source.name());
    let left_out = Verdict::LeaveOut { reason: Reason::Duplicate, evidence };
    assert_eq!(verdicts, [Verdict::Keep, Verdict::Keep, left_out]);
    assert_eq!(bound.digest(), blake3::hash(&fs::read(&path)?).to_hex().to_string());
    // The same bytes by another name are the same file.
    let moved = SourceIdentity { name: "elsewhere".to_owned(), ..read.files()[0].clone() };
    let mut document = DocumentReader::open(&source)?.nth(2).expect("three documents")?;
    document.file = "elsewhere".into();
    assert_ne!(read.bind(&[moved])?.judge(&document), Verdict::Keep);
    Ok(())
}

#[test]
fn decisions_about_other_files_are_refused() -> Test {
    let folder = Folder::new();
    let a = folder.source("a.jsonl", jsonl(&["one"]));
    let b = folder.source("b.jsonl", jsonl(&["two"]));
    let decisions = run(&CleanSettings::default(), None, &[(&a, &[]), (&b, &[])]).decisions;
    let files = decisions.files().to_vec();
    assert!(decisions.bind(&files).is_ok());
    let altered = SourceIdentity { blake3: "00".repeat(32), ..files[0].clone() };
    let message = chain(&decisions.bind(&[altered, files[1].clone()]).expect_err("altered"));
    for part in ["a.jsonl", "found digest 0000", &files[0].blake3, "clean the sources again"] {
        assert!(message.contains(part), "{message}");
    }
    let message = chain(&decisions.bind(&files[..1]).expect_err("one is missing"));
    assert!(message.contains("b.jsonl") && message.contains("not in the build"), "{message}");
    let more =
        SourceIdentity { name: "c.jsonl".to_owned(), blake3: "11".repeat(32), ..files[0].clone() };
    let all = [&files[..], &[more]].concat();
    let message = chain(&decisions.bind(&all).expect_err("one too many"));
    assert!(message.contains("c.jsonl") && message.contains("that were cleaned"), "{message}");
    Ok(())
}

#[test]
fn a_damaged_decisions_file_is_refused() -> Test {
    let folder = Folder::new();
    let source = folder.source("x.jsonl", jsonl(&["one", "two", "one", "two"]));
    let decisions = run(&CleanSettings::default(), None, &[(&source, &[])]).decisions;
    let (path, whole) = (folder.path("clean.jsonl"), decisions.to_bytes());
    let text = String::from_utf8(whole.clone())?;
    let last = text.trim_end().rfind('\n').expect("lines") + 1;
    for (bytes, says) in [
        (&whole[..last], "checksum"),
        (&whole[..whole.len() - 1], "checksum"),
        (text.replace("\"record\":3", "\"record\":2").as_bytes(), "checksum"),
        (text.replace("decisions_version\":1", "decisions_version\":2").as_bytes(), "version 2"),
        (b"{}\n", "decisions_version"),
        (b"", "EOF"),
    ] {
        fs::write(&path, bytes)?;
        let message = chain(&Decisions::read(&path).expect_err(says));
        assert!(message.contains(says) && message.contains("clean.jsonl"), "{message}");
    }
    Ok(())
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let folder = Folder::new();
    let source = folder.source("x.jsonl", jsonl(&["one"]));
    let fuzzy = FuzzySettings::default();
    for (fuzzy, field) in [
        (FuzzySettings { num_bands: 0, ..fuzzy }, "num_bands"),
        (FuzzySettings { threshold: 1.5, ..fuzzy }, "threshold"),
        (FuzzySettings { threshold: f64::NAN, ..fuzzy }, "threshold"),
    ] {
        let settings = CleanSettings { fuzzy: Some(fuzzy), ..CleanSettings::default() };
        let source = CleanSource::file(&source, Vec::new()).expect("the file is there");
        let error = clean(&settings, None, vec![source]).expect_err(field);
        assert!(error.to_string().contains(field), "{error}");
    }
    let exempt = CleanSource::file(&source, vec![Reason::Empty]).expect("the file is there");
    let error = clean(&CleanSettings::default(), None, vec![exempt]).expect_err("no such finding");
    assert!(error.to_string().contains("`exempt` is empty"), "{error}");
    for bad in ["words", "words:0", "letters:5", "words:5:6"] {
        let error = bad.parse::<Shingle>().expect_err(bad);
        assert!(error.to_string().contains(bad), "{error}");
    }
    let twice = || CleanSource::file(&source, Vec::new()).expect("the file is there");
    let error = clean(&CleanSettings::default(), None, vec![twice(), twice()]);
    assert!(matches!(error, Err(DataError::UnknownFile { .. })));
}

#[test]
fn the_outcome_does_not_depend_on_the_number_of_threads() -> Test {
    let texts = || {
        let heldout = documents([corpus::heldout()]);
        EvaluationTexts::new(ContaminationSettings::default(), heldout)
    };
    let one = || -> Result<Vec<u8>, DataError> {
        let source = CleanSource::file(&corpus::train(), Vec::new())?;
        let cleaned = clean(&CleanSettings::default(), Some(&texts()?), vec![source])?;
        Ok([cleaned.decisions.to_bytes(), cleaned.report.to_json().into_bytes()].concat())
    };
    let with = |threads| -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        Ok(pool.install(one)?)
    };
    assert!(with(1)? == with(3)?);
    Ok(())
}

/// Two texts of `len` words that share a run of words and no other, and the similarity of their sets
/// of 5-word shingles.
fn pair(from: usize, len: usize, similarity: f64) -> ([String; 2], f64) {
    let shingles = (len - 4) as f64;
    let shared = (2.0 * shingles * similarity / (1.0 + similarity)).round();
    let (common, rest) = (shared as usize + 4, len - 4 - shared as usize);
    let words = |from: usize, len: usize| -> String {
        (from..from + len).map(|i| format!("{:x} ", (i as u64).wrapping_mul(0x9e37_79b9))).collect()
    };
    let run = words(from, common);
    let [before, behind] = [from + common, from + len].map(|from| words(from, rest));
    ([format!("{run}{behind}"), format!("{before}{run}")], shared / (2.0 * shingles - shared))
}

#[test]
fn planted_near_duplicates_are_found_and_half_alike_ones_are_not() {
    let folder = Folder::new();
    // 400 pairs: a share of 0.95 is 380, and by the settings' own formula 0.97 are expected.
    for (similarity, least, most) in [(0.95, 400, 400), (0.8, 380, 400), (0.5, 0, 0)] {
        let mut texts = Vec::new();
        for i in 0..400 {
            let (two, jaccard) = pair(i * 2_000, 150 + i, similarity);
            assert!((jaccard - similarity).abs() < 0.007, "{jaccard}");
            texts.extend(two);
        }
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let source = folder.source("pairs.jsonl", jsonl(&texts));
        let cleaned = run(&CleanSettings::default(), None, &[(&source, &[])]);
        let found = cleaned.decisions.all();
        assert!((least..=most).contains(&found.len()), "{} at {similarity}", found.len());
        for decision in found {
            let partner = format!("{}:{},", source.name(), decision.record - 1);
            assert!(decision.evidence.contains(&partner), "{}", decision.evidence);
        }
    }
}

#[test]
fn the_shipped_corpus_repeats_one_chapter_in_part_and_nothing_else() -> Test {
    let files = [corpus::train(), corpus::heldout()];
    let clean_at = |threshold: f64| -> Result<Cleaned, DataError> {
        let fuzzy = Some(FuzzySettings { threshold, ..FuzzySettings::default() });
        let settings = CleanSettings { fuzzy, ..CleanSettings::default() };
        let sources = files.iter().map(|file| CleanSource::file(file, Vec::new()));
        clean(&settings, None, sources.collect::<Result<_, _>>()?)
    };
    assert_eq!(clean_at(0.75)?.decisions.all().len(), 0);
    // Isaiah 37 is 2 Kings 19 nearly word for word.
    let found = clean_at(0.6)?.decisions;
    let ids: Vec<String> = documents([corpus::train()])
        .map(|document| document.map(|document| document.id))
        .collect::<Result<_, _>>()?;
    assert_eq!(found.all().len(), 1);
    let decision = &found.all()[0];
    assert_eq!(ids[decision.record as usize - 1], "kjv/Isaiah/37");
    let first = ids.iter().position(|id| id == "kjv/2 Kings/19").expect("it is there") + 1;
    assert_eq!(decision.evidence, format!("like train.jsonl.zst:{first}, similarity 0.63"));
    Ok(())
}

#[test]
fn two_spellings_of_one_play_are_not_near_duplicates() -> Test {
    let all: Vec<_> = documents([corpus::train()]).collect::<Result<_, _>>()?;
    let whole = |work: &str| -> String {
        all.iter().filter(|d| d.id.starts_with(work)).map(|d| format!("{}\n", d.text)).collect()
    };
    let folder = Folder::new();
    let [folio, modern] = ["hamlet_gut_f/", "hamlet_gut/"].map(whole);
    assert!(folio.len() > 100_000 && modern.len() > 100_000);
    let source = folder.source("hamlet.jsonl", jsonl(&[&folio, &modern]));
    // Bands of one row make every pair with any likeness a candidate.
    let at = |threshold| {
        let all =
            FuzzySettings { num_bands: 1_024, band_rows: 1, threshold, ..FuzzySettings::default() };
        let settings = CleanSettings { fuzzy: Some(all), ..CleanSettings::default() };
        run(&settings, None, &[(&source, &[])]).decisions.all().to_vec()
    };
    assert_eq!(at(0.25), []);
    let found = at(0.1);
    // Exactly 0.17 of their runs of five words are the same.
    assert!(found[0].evidence.contains("similarity 0.1"), "{}", found[0].evidence);
    Ok(())
}

#[test]
fn held_out_works_are_found_where_the_training_text_quotes_them() -> Test {
    let texts =
        EvaluationTexts::new(ContaminationSettings::default(), documents([corpus::heldout()]))?;
    let source = CleanSource::file(&corpus::train(), Vec::new())?;
    let report = clean(&CleanSettings::default(), Some(&texts), vec![source])?.report;
    let total = report.total();
    assert!(total.closes());
    // Parallels of the Gospel of Mark, but for two documents.
    assert_eq!((total.contaminated, report.found.len()), (35, 15));
    let of_mark = report.found.iter().filter(|found| found.name.contains("kjv/Mark/"));
    assert_eq!(of_mark.map(|found| found.documents).sum::<u64>(), 33);
    assert_eq!((report.evaluation_texts, report.evaluation_texts_too_short), (146, 0));
    Ok(())
}
