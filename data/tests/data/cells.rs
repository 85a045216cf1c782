use std::fs;

use fulmar_data::cells::{
    Cells, ClusterModel, ClusterSettings, Features, QualityModel, QualitySettings, Scorer,
    ScorerSettings, TextFeatures,
};
use fulmar_data::{Assign, DataError, Document, Result, corpus, documents};

use crate::fixture::{Folder, Test, chain};

fn document(record: u64, text: &str) -> Document {
    Document {
        id: format!("d{record}"),
        text: text.to_owned(),
        domain: "own".to_owned(),
        quality: 9,
        origin: "made up".to_owned(),
        file: "made-up.jsonl".into(),
        record,
        score: None,
        embedding: None,
    }
}

fn scored(scores: &[f64]) -> Vec<Result<Document>> {
    let one = |(i, &score)| Document { score: Some(score), ..document(i as u64 + 1, "text") };
    scores.iter().enumerate().map(|it| Ok(one(it))).collect()
}

/// 60 texts about each of three things.
fn three_subjects() -> Vec<Document> {
    let subjects = [
        ["ship", "sail", "anchor", "harbour", "tide", "mast"],
        ["flour", "oven", "butter", "sugar", "dough", "yeast"],
        ["theorem", "proof", "lemma", "integer", "prime", "matrix"],
    ];
    let text = |i: usize| -> String {
        let word = |j: usize| match j % 3 {
            0 => "the",
            _ => subjects[i % 3][(i + j + j / 6) % 6],
        };
        (0..40).map(|j| format!("{} ", word(j))).collect()
    };
    (0..180).map(|i| document(i as u64 + 1, &text(i))).collect()
}

fn small(num_clusters: usize) -> ClusterSettings {
    let features = Features::Text(TextFeatures { max_words: 1, dim: 128 });
    ClusterSettings { num_clusters, features, ..ClusterSettings::default() }
}

#[test]
fn clusters_find_subjects_and_name_their_words() -> Test {
    let documents = three_subjects();
    let model = ClusterModel::train(documents.iter().cloned().map(Ok), &small(3))?;
    let domains: Vec<String> =
        documents.iter().map(|d| Ok(model.cell(d)?.domain)).collect::<Result<_>>()?;
    for (i, domain) in domains.iter().enumerate() {
        assert_eq!(domain, &domains[i % 3], "document {i}");
    }
    let names: Vec<&str> = model.clusters().iter().map(|cluster| &*cluster.name).collect();
    assert_eq!(names, ["c00", "c01", "c02"]);
    assert!(model.clusters().iter().all(|cluster| cluster.documents == 60));
    let of_ships = model.cluster(&documents[0])?;
    assert!(of_ships.words.contains(&"anchor".to_owned()), "{:?}", of_ships.words);
    assert!(!of_ships.words.contains(&"the".to_owned()), "{:?}", of_ships.words);
    assert!(of_ships.examples[0].starts_with("made-up.jsonl:"), "{:?}", of_ships.examples);
    assert_eq!(model.cell(&documents[0])?.quality, 9, "the quality stays");
    let unheard = document(1, "a new text about the tide in the harbour, and a sail");
    assert_eq!(model.cell(&unheard)?.domain, domains[0]);
    Ok(())
}

#[test]
fn neither_threads_nor_order_change_a_cluster_model_and_a_seed_does() -> Test {
    let settings = ClusterSettings { sample: 600, iterations: 5, ..ClusterSettings::default() };
    let train = |settings: &ClusterSettings, reversed: bool| -> Result<ClusterModel> {
        let mut all: Vec<Document> = documents([corpus::train()]).collect::<Result<_>>()?;
        if reversed {
            all.reverse();
        }
        ClusterModel::train(all.into_iter().map(Ok), settings)
    };
    let with = |threads| -> std::result::Result<ClusterModel, Box<dyn std::error::Error>> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        Ok(pool.install(|| train(&settings, false))?)
    };
    let model = with(1)?;
    assert_eq!(model.clusters().len(), 40);
    assert!(model == with(3)?);
    assert!(model == train(&settings, true)?);
    assert_ne!(model.digest(), train(&ClusterSettings { seed: 1, ..settings }, false)?.digest());
    Ok(())
}

#[test]
fn clusters_of_the_shipped_corpus_tell_its_parts_apart() -> Test {
    let settings =
        ClusterSettings { num_clusters: 8, iterations: 20, ..ClusterSettings::default() };
    let model = ClusterModel::train(documents([corpus::train()]), &settings)?;
    // Works that the model has not seen: chapters of scripture beside scenes of plays.
    let (mut scripture, mut plays) = (vec![0; 8], vec![0; 8]);
    for document in documents([corpus::heldout()]) {
        let document = document?;
        let cluster: usize = model.cluster(&document)?.name[1..].parse()?;
        let counts = if document.domain == "scripture" { &mut scripture } else { &mut plays };
        counts[cluster] += 1;
    }
    // Each cluster speaks for whatever it has more of.
    let purity: usize = scripture.iter().zip(&plays).map(|(a, b)| *a.max(b)).sum();
    assert!(purity >= 142, "{purity} of 146: {scripture:?} {plays:?}");
    assert!(scripture.iter().sum::<usize>() == 20);
    Ok(())
}

#[test]
fn given_embeddings_are_clustered_and_bad_ones_named() -> Test {
    let with =
        |record, embedding: Option<Vec<f32>>| Document { embedding, ..document(record, "t") };
    let settings =
        ClusterSettings { features: Features::Embedding(2), num_clusters: 2, ..small(2) };
    let good: Vec<Document> = (0..20_u64)
        .map(|i| with(i + 1, Some(vec![if i % 2 == 0 { 1.0 } else { -1.0 }, i as f32 / 100.0])))
        .collect();
    let model = ClusterModel::train(good.iter().cloned().map(Ok), &settings)?;
    let domain = |i: usize| model.cell(&good[i]).map(|cell| cell.domain);
    assert_ne!(domain(0)?, domain(1)?);
    assert_eq!(domain(0)?, domain(18)?);
    for (embedding, says) in [
        (None, "no embedding, need an embedding of 2"),
        (Some(vec![1.0; 3]), "3 numbers, need an embedding of 2"),
        (Some(vec![1.0, f32::NAN]), "not finite"),
    ] {
        let error = model.cell(&with(7, embedding)).expect_err(says).to_string();
        assert!(error.contains("`made-up.jsonl` record 7") && error.contains(says), "{error}");
    }
    Ok(())
}

#[test]
fn equal_documents_leave_clusters_empty_and_few_documents_are_refused() -> Test {
    let same = (1..=30).map(|i| Ok(document(i, "all the same")));
    let model = ClusterModel::train(same, &small(3))?;
    let sizes: Vec<u64> = model.clusters().iter().map(|cluster| cluster.documents).collect();
    assert_eq!(sizes, [30, 0, 0]);
    let error = ClusterModel::train((1..=2).map(|i| Ok(document(i, "few"))), &small(3));
    let error = error.expect_err("two documents").to_string();
    assert!(error.contains("`num_clusters` is 3") && error.contains("at most 2"), "{error}");
    // Without a word there is nothing to go by, yet there is a cell.
    assert_eq!(model.cell(&document(1, "..."))?.domain, "c00");
    Ok(())
}

#[test]
fn a_given_score_is_cut_into_buckets_of_equal_size() -> Test {
    // 0, 7, 14, ... modulo 1000: each number once, in no order.
    let scores: Vec<f64> = (0..1_000).map(|i| f64::from(i * 7 % 1_000) / 10.0).collect();
    let model = QualityModel::cut(scored(&scores), None, &QualitySettings::default())?;
    assert_eq!(model.buckets(), [200; 5]);
    let cuts: Vec<(f64, u64)> = model.cuts().iter().map(|cut| (cut.score, cut.ties)).collect();
    assert_eq!(cuts, [(20.0, 1), (40.0, 1), (60.0, 1), (80.0, 1)]);
    for (score, level) in
        [(-5.0, 0), (0.0, 0), (19.9, 0), (20.0, 1), (59.9, 2), (80.0, 4), (1e9, 4)]
    {
        let one = Document { score: Some(score), ..document(1, "t") };
        assert_eq!(model.level(&one)?, level, "{score}");
        assert_eq!(model.cell(&one)?.to_string(), format!("own/q{level}"));
    }
    Ok(())
}

#[test]
fn ties_are_counted_and_buckets_that_they_empty_refused() -> Test {
    let settings = QualitySettings::default();
    // 30 of 100 have the score at the first cut.
    let scores: Vec<f64> = (0..100).map(|i| f64::from(if i < 30 { 15 } else { i })).collect();
    let error = QualityModel::cut(scored(&scores), None, &settings).expect_err("bucket 0 is empty");
    for part in ["`buckets` is 5", "30.0% of the documents have the score 15", "bucket 0"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let scores: Vec<f64> =
        (0..100).map(|i| f64::from(if (35..45).contains(&i) { 40 } else { i })).collect();
    let model = QualityModel::cut(scored(&scores), None, &settings)?;
    assert_eq!((model.cuts()[1].ties, model.buckets()), (10, &[20, 15, 25, 20, 20][..]));
    assert!(model.to_string().contains("15.00%"), "{model}");
    let error = QualityModel::cut(scored(&[1.0, 2.0, 2.0, 2.0, 2.0, 3.0]), None, &settings);
    assert!(error.expect_err("one score").to_string().contains("bucket 1 would be empty"));
    let error = QualityModel::cut(scored(&[1.0, 2.0]), None, &settings);
    assert!(error.expect_err("two documents").to_string().contains("at most 2"));
    Ok(())
}

#[test]
fn a_score_that_is_missing_or_not_finite_is_named() -> Test {
    let settings = QualitySettings { buckets: 2, ..QualitySettings::default() };
    let model = QualityModel::cut(scored(&[0.0, 1.0]), None, &settings)?;
    for (score, says) in [(None, "no score"), (Some(f64::NAN), "score is NaN")] {
        let bad = Document { score, ..document(3, "t") };
        let error = model.cell(&bad).expect_err(says).to_string();
        assert!(error.contains("`made-up.jsonl` record 3") && error.contains(says), "{error}");
        let cut = QualityModel::cut(vec![Ok(bad)], None, &settings);
        assert!(matches!(cut, Err(DataError::Unassigned { record: 3, .. })));
    }
    Ok(())
}

/// The shipped plays, the modern spelling as good, that of the Folio as bad.
fn spellings() -> impl Iterator<Item = Result<(Document, bool)>> {
    let plays = documents([corpus::train()]).filter(|d| {
        d.as_ref().map_or(true, |document| document.quality == 1 || document.quality == 3)
    });
    plays
        .map(|document| document.map(|document| (document.quality == 3, document)))
        .map(|labelled| labelled.map(|(is_good, document)| (document, is_good)))
}

#[test]
fn a_scorer_learns_from_examples_and_measures_itself_on_others() -> Test {
    let settings = ScorerSettings {
        features: Features::Text(TextFeatures { max_words: 1, dim: 512 }),
        ..ScorerSettings::default()
    };
    let scorer = Scorer::train(spellings(), &settings)?;
    let held_out = scorer.held_out();
    assert_eq!((held_out.good, held_out.bad), (93, 62), "a fifth of 464 and of 312");
    assert!(held_out.auc > 0.99 && held_out.accuracy > 0.95, "{held_out:?}");
    // Works that it has not seen.
    let mut right = 0;
    let heldout: Vec<Document> = documents([corpus::heldout()]).collect::<Result<_>>()?;
    let plays: Vec<&Document> = heldout.iter().filter(|d| d.quality < 4).collect();
    for document in &plays {
        right += usize::from((scorer.score(document)? > 0.0) == (document.quality == 3));
    }
    assert!(right as f64 >= 0.95 * plays.len() as f64, "{right} of {}", plays.len());
    let model = QualityModel::cut(
        documents([corpus::train()]),
        Some(scorer.clone()),
        &QualitySettings::default(),
    )?;
    assert_eq!(model.buckets().iter().sum::<u64>(), 1_945);
    assert!(model.buckets().iter().all(|&bucket| bucket == 389), "{model}");
    assert!(model.to_string().contains("held out 93 good and 62 bad: accuracy"), "{model}");
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build()?;
    assert!(scorer == pool.install(|| Scorer::train(spellings(), &settings))?);
    Ok(())
}

#[test]
fn too_few_examples_of_a_kind_are_refused() {
    let examples = |bad| (1..=20).map(move |i| Ok((document(i, "t"), i > bad)));
    let error = Scorer::train(examples(4), &ScorerSettings::default()).expect_err("four bad ones");
    assert_eq!(error.to_string(), "`bad` is 4 examples; need at least 5");
    let error = Scorer::train(examples(20), &ScorerSettings::default()).expect_err("no good one");
    assert_eq!(error.to_string(), "`good` is 0 examples; need at least 5");
    // Examples that nothing tells apart: neither way, and no panic.
    let scorer = Scorer::train(examples(10), &ScorerSettings::default()).expect("a fit");
    assert_eq!(scorer.held_out().auc, 0.5);
}

#[test]
fn model_files_come_back_as_they_were_and_altered_ones_are_refused() -> Test {
    let folder = Folder::new();
    let (clusters, quality) = (folder.path("clusters.json"), folder.path("quality.json"));
    let made = ClusterModel::train(three_subjects().into_iter().map(Ok), &small(3))?;
    made.write(&clusters)?;
    let read = ClusterModel::read(&clusters)?;
    assert!(read == made);
    assert_eq!(read.digest(), made.digest());
    let thirds: Vec<f64> = (0..50).map(|i| f64::from(i) / 3.0).collect();
    let cut = QualityModel::cut(scored(&thirds), None, &QualitySettings::default())?;
    cut.write(&quality)?;
    assert!(QualityModel::read(&quality)? == cut);
    let message = chain(&ClusterModel::read(&quality).expect_err("another kind"));
    assert!(message.contains("it holds `quality`, need `clusters`"), "{message}");
    let text = fs::read_to_string(&clusters)?;
    let at = text.find("\"centroid\": \"").expect("a centroid") + 20;
    let digit = if &text[at..at + 1] == "7" { "8" } else { "7" };
    for (altered, says) in [
        (format!("{}{digit}{}", &text[..at], &text[at + 1..]), "have digest"),
        (text.replace("model_version\": 1", "model_version\": 2"), "version 2"),
        (text.replace("\"seed\"", "\"sead\""), "sead"),
        (text[..text.len() / 2].to_owned(), "EOF"),
    ] {
        fs::write(&clusters, altered)?;
        let message = chain(&ClusterModel::read(&clusters).expect_err(says));
        assert!(message.contains(says) && message.contains("clusters.json"), "{message}");
    }
    Ok(())
}

#[test]
fn both_models_together_choose_the_cell() -> Test {
    let documents = three_subjects();
    let clusters = ClusterModel::train(documents.iter().cloned().map(Ok), &small(3))?;
    let scores: Vec<f64> = (0..50).map(f64::from).collect();
    let quality = QualityModel::cut(scored(&scores), None, &QualitySettings::default())?;
    let document = Document { score: Some(35.0), ..documents[4].clone() };
    let domain = clusters.cell(&document)?.domain;
    let (some, none) = (Some(clusters), Some(quality));
    let both = Cells { clusters: some.clone(), quality: none.clone() };
    assert_eq!(both.cell(&document)?.to_string(), format!("{domain}q3"));
    let only_clusters = Cells { clusters: some, quality: None };
    assert_eq!(only_clusters.cell(&document)?.to_string(), format!("{domain}q9"));
    let only_quality = Cells { clusters: None, quality: none };
    assert_eq!(only_quality.cell(&document)?.to_string(), "own/q3");
    assert_eq!(Cells::default().cell(&document)?, document.cell());
    let digests = [&both, &only_clusters, &only_quality, &Cells::default()].map(Assign::digest);
    assert!((1..4).all(|i| !digests[..i].contains(&digests[i])), "{digests:?}");
    Ok(())
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let text = |max_words, dim| Features::Text(TextFeatures { max_words, dim });
    for (settings, field) in [
        (ClusterSettings { num_clusters: 0, ..small(1) }, "num_clusters"),
        (ClusterSettings { sample: 2, ..small(3) }, "sample"),
        (ClusterSettings { iterations: 0, ..small(3) }, "iterations"),
        (ClusterSettings { features: text(0, 8), ..small(3) }, "max_words"),
        (ClusterSettings { features: text(1, 0), ..small(3) }, "dim"),
    ] {
        let error = ClusterModel::train(Vec::new(), &settings).expect_err(field).to_string();
        assert!(error.contains(&format!("`{field}`")), "{error}");
    }
    for (settings, field) in [
        (ScorerSettings { held_out: 1.0, ..ScorerSettings::default() }, "held_out"),
        (ScorerSettings { penalty: 0.0, ..ScorerSettings::default() }, "penalty"),
    ] {
        let error = Scorer::train(Vec::new(), &settings).expect_err(field).to_string();
        assert!(error.contains(&format!("`{field}`")), "{error}");
    }
}
