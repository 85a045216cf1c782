//! Reading token by token against the forward pass over the whole row.
//!
//! The two add the same numbers in another order: attention sums over kept positions, products have one
//! row instead of many. `--nocapture` prints what each comparison saw.

use burn::tensor::{Device, Tensor, TensorData};
use fulmar_ep::Local;
use fulmar_model::config::ConvSite;
use fulmar_model::moe::quantile::QuantileBalancing;
use fulmar_model::role::Roles as _;
use fulmar_model::{Compute, ModelConfig, ModelInput, Preset, Prompt, Role, Transformer, weights};

/// Of logits up to 3: the worst seen is 9.8e-6.
const TOLERANCE: f32 = 2e-5;
/// Of products in bf16, logits up to 3.9: a sum in another order may round to its neighbour, 1/256 away,
/// and a weight of attention is rounded before or after it is divided. The worst seen is 0.045.
const BF16_TOLERANCE: f32 = 0.1;

fn small() -> ModelConfig {
    ModelConfig {
        vocab_size: 64,
        num_layers: 4,
        num_experts: 12,
        num_experts_per_token: 3,
        max_seq_len: 24,
        sliding_window: 8,
        ..Preset::MiniD96.config()
    }
}

/// As a run may have made it: matrices four times as large as at first, and values everywhere that a
/// run begins with 0 or 1, so that every tap of a convolution counts.
fn model(config: &ModelConfig) -> Transformer {
    let config = ModelConfig { initial_scale: 2.0, ..config.clone() };
    let model = Transformer::new(&config, 3, &Device::flex()).expect("valid");
    let (roles, first) = (model.roles(), weights::export(&model));
    let moved = |path: &str| {
        let values = first.get(path)?.clone();
        let by = match roles.get(path)? {
            Role::Convolution => 0.4,
            Role::HeadGate | Role::RouterBias | Role::Gain => 0.1,
            _ => return Some(values),
        };
        let shape = values.shape().to_vec();
        let drawn = |i: usize| ((i * 7919 + path.len() * 31) % 199) as f32 / 99.5 - 1.0;
        let values = values.iter::<f32>().enumerate().map(|(i, value)| value + by * drawn(i));
        Some(TensorData::new(values.collect::<Vec<f32>>(), shape))
    };
    weights::import(model, moved).expect("every weight")
}

fn tokens(len: usize, salt: usize) -> Vec<u32> {
    (0..len).map(|i| ((i * i + 7 * i + salt) % 61) as u32).collect()
}

fn floats(x: Tensor<2>) -> Vec<f32> {
    x.into_data().iter::<f32>().collect()
}

/// Logits behind every token of a row.
fn whole(model: &Transformer, config: &ModelConfig, row: &Prompt) -> Vec<Vec<f32>> {
    let len = row.tokens.len();
    let (tokens, segments) = (row.tokens.clone(), row.segment_ids.clone());
    let input = ModelInput::new(tokens, segments, vec![true; len], [1, len], &Device::flex());
    let balancing: Option<&QuantileBalancing> = None;
    let out = model.forward(&input, &Local::new(config.num_experts), balancing).expect("forward");
    floats(model.logits(out.hidden)).chunks(config.vocab_size).map(<[f32]>::to_vec).collect()
}

fn assert_near(what: &str, found: &[f32], needed: &[f32], tolerance: f32) {
    assert_eq!(found.len(), needed.len(), "{what}");
    let off = found.iter().zip(needed).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    let largest = needed.iter().map(|logit| logit.abs()).fold(0.0, f32::max);
    println!("{what}: off by {off:e} of {largest}");
    assert!(off <= tolerance, "{what}: off by {off}");
}

/// Reads the beginnings of `rows`, then their tokens one by one, and compares all logits.
fn agrees(config: &ModelConfig, rows: &[Prompt], read_at_once: &[usize]) {
    let (model, local) = (model(config), Local::new(config.num_experts));
    let expected: Vec<_> = rows.iter().map(|row| whole(&model, config, row)).collect();
    let prompts: Vec<Prompt> = rows
        .iter()
        .zip(read_at_once)
        .map(|(row, len)| Prompt {
            tokens: row.tokens[..*len].to_vec(),
            segment_ids: row.segment_ids[..*len].to_vec(),
        })
        .collect();
    // Rows that ended go on being read beside the others.
    let (hidden, mut cache) = model.read(&prompts, 2 * config.max_seq_len, &local).expect("read");
    let mut logits = floats(model.logits(hidden));
    let mut lengths = read_at_once.to_vec();
    loop {
        let live: Vec<bool> =
            rows.iter().zip(&lengths).map(|(row, len)| *len <= row.tokens.len()).collect();
        for (index, logits) in logits.chunks(config.vocab_size).enumerate() {
            if live[index] {
                let what = format!("row {index} behind {} tokens", lengths[index]);
                let needed = &expected[index][lengths[index] - 1];
                let tolerance = match config.compute {
                    Compute::F32 => TOLERANCE,
                    Compute::Bf16 => BF16_TOLERANCE,
                };
                assert_near(&what, logits, needed, tolerance);
            }
        }
        let next = |(row, len): (&Prompt, &usize)| row.tokens.get(*len).map(|token| *token as u32);
        let next: Vec<Option<u32>> = rows.iter().zip(&lengths).map(next).collect();
        if next.iter().all(Option::is_none) {
            break;
        }
        let live: Vec<bool> = next.iter().map(Option::is_some).collect();
        let next: Vec<u32> = next.into_iter().map(|token| token.unwrap_or(0)).collect();
        let hidden = model.read_on(&mut cache, &next, &live, &local).expect("read on");
        logits = floats(model.logits(hidden));
        lengths.iter_mut().for_each(|len| *len += 1);
    }
}

#[test]
fn a_row_read_token_by_token_has_the_logits_of_the_whole() {
    let row = Prompt::of_document(&tokens(24, 1));
    for at_once in [1, 2, 3, 7, 8, 9, 17, 24] {
        agrees(&small(), std::slice::from_ref(&row), &[at_once]);
    }
}

#[test]
fn rows_of_several_lengths_in_one_batch_have_the_logits_they_have_alone() {
    let rows = [24, 13, 20, 6].map(|len| Prompt::of_document(&tokens(len, len)));
    agrees(&small(), &rows, &[12, 1, 20, 3]);
}

#[test]
fn every_kind_of_layer_is_read_on() {
    let kinds = [
        // Own heads that do not share the query heads evenly.
        ModelConfig { local_kv_heads: 3, global_kv_heads: 2, ..small() },
        ModelConfig { local_kv_heads: 1, global_kv_heads: 3, ..small() },
        ModelConfig {
            short_conv_sites: vec![ConvSite::K, ConvSite::V, ConvSite::Attention, ConvSite::Mlp],
            ..small()
        },
        ModelConfig { short_conv_taps: 1, ..small() },
        ModelConfig { short_conv_taps: 9, ..small() },
        ModelConfig { short_conv_sites: vec![], sliding_window: 1, ..small() },
    ];
    for config in kinds {
        let rows = [20, 15].map(|len| Prompt::of_document(&tokens(len, len)));
        agrees(&config, &rows, &[4, 2]);
    }
}

#[test]
fn products_in_bf16_are_read_on() {
    let config = ModelConfig { compute: Compute::Bf16, ..small() };
    let rows = [20, 15].map(|len| Prompt::of_document(&tokens(len, len)));
    agrees(&config, &rows, &[4, 2]);
}

#[test]
fn what_follows_reads_the_last_document_alone() {
    let mut row = Prompt::of_document(&tokens(24, 5));
    row.segment_ids[..9].fill(3);
    agrees(&small(), std::slice::from_ref(&row), &[11]);
    // A document that comes back after another.
    let mut back = Prompt::of_document(&tokens(24, 6));
    back.segment_ids[3..7].fill(1);
    agrees(&small(), &[row, back], &[11, 8]);
}

#[test]
fn greedy_texts_of_two_hundred_tokens_are_equal_across_the_border_of_the_window() {
    let config = ModelConfig { max_seq_len: 256, sliding_window: 64, ..small() };
    let (model, local) = (model(&config), Local::new(config.num_experts));
    let best = |logits: &[f32]| {
        (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).expect("a token") as u32
    };
    let prompt = tokens(40, 2);
    let mut with_cache = prompt.clone();
    let first = [Prompt::of_document(&prompt)];
    let (mut hidden, mut cache) = model.read(&first, 256, &local).expect("read");
    loop {
        let token = best(&floats(model.logits(hidden)));
        with_cache.push(token);
        if cache.is_full() {
            break;
        }
        hidden = model.read_on(&mut cache, &[token], &[true], &local).expect("read on");
    }
    assert_eq!(with_cache.len(), 257);
    let mut without = prompt;
    while without.len() < with_cache.len() {
        let logits = whole(&model, &config, &Prompt::of_document(&without));
        without.push(best(logits.last().expect("a token")));
    }
    assert_eq!(with_cache, without);
    let mut kinds = without[40..].to_vec();
    kinds.sort_unstable();
    kinds.dedup();
    assert!(kinds.len() > 10, "a text that shows little: {without:?}");
}

#[test]
#[should_panic(expected = "read_on: 3 tokens were read, needed less than 3")]
fn a_full_cache_is_refused() {
    let (model, local) = (model(&small()), Local::new(12));
    let prompt = [Prompt::of_document(&tokens(3, 0))];
    let (_, mut cache) = model.read(&prompt, 3, &local).expect("read");
    let _ = model.read_on(&mut cache, &[1], &[true], &local);
}

#[test]
#[should_panic(expected = "read: 1 prompts of up to 4 tokens, needed some of up to 3")]
fn a_prompt_beyond_the_capacity_is_refused() {
    let prompt = [Prompt::of_document(&tokens(4, 0))];
    let _ = model(&small()).read(&prompt, 3, &Local::new(12));
}
