//! Rows that travel as bf16: rounded, and nothing else.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar::data::Batch;
use fulmar::ep::dispatch::{fixed_cells::FixedCells, pooled_wave::PooledWave};
use fulmar::ep::transport::{Group, run_world};
use fulmar::ep::{DispatchConfig, DispatchCounts, EpError, Payload, TokenDispatcher, WireBytes};
use fulmar::prelude::Routed;
use fulmar::train::TrainError;

use crate::toy::{self, DEADLINE, Rank, on_every_rank};

/// An exchange in f32 and in bf16.
type Pair = [DispatchConfig; 2];

/// Exchanges that may round what they carry, by name; the pooled wave and the cells are tight.
fn pairs() -> [(&'static str, Pair); 4] {
    let both = |of: fn(Payload) -> DispatchConfig| [of(Payload::F32), of(Payload::Bf16)];
    [
        (
            "pooled wave",
            both(|payload| DispatchConfig::PooledWave {
                num_expert_waves: 2,
                capacity_factor: 1.15,
                transport_capacity_factor: 1.15,
                payload,
            }),
        ),
        ("ragged", both(|payload| DispatchConfig::Ragged { capacity_factor: None, payload })),
        (
            "fixed cells",
            both(|payload| DispatchConfig::FixedCells { capacity_factor: 1.15, payload }),
        ),
        ("ring", both(|payload| DispatchConfig::Ring { capacity_factor: None, payload })),
    ]
}

/// The first layer's experts on what the embedding makes of this rank's rows.
fn layer(
    rank: &mut Rank<'_>,
    dispatch: &DispatchConfig,
    batch: &Batch,
) -> Result<(Vec<f32>, DispatchCounts, WireBytes), TrainError> {
    rank.exchange_by(dispatch)?;
    let rows = rank.micro_batches(batch).remove(0);
    let demand = rank.dispatcher.demand(&rows.token_valid)?;
    let routed = Routed {
        dispatcher: &rank.dispatcher,
        balancing: Some(&rank.balancing),
        demand: &demand,
        seq_len: rows.seq_len,
    };
    let model = &rank.state.model;
    let tokens = TensorData::new(rows.tokens, [rows.token_valid.len()]);
    let tokens = Tensor::<1, Int>::from_data(tokens, &rank.device);
    let u = model.embedding_norm.forward(model.embedding.weight.val().select(0, tokens));
    // The shared expert does not travel: without it the difference is that of what does.
    let mut moe = model.layers[0].moe.clone();
    moe.shared.clear();
    let (out, stats) = moe.forward(u, &routed)?;
    let out = out.inner().into_data().iter::<f32>().collect();
    Ok((out, stats.dispatch.counts, stats.dispatch.wire.bytes()))
}

#[test]
fn a_layer_whose_rows_travel_as_bf16_is_within_a_percent_and_half_the_bytes() {
    let config = toy::config([1, 4], &[]);
    let batch = toy::batch(&config, 1);
    for (name, [f32, bf16]) in pairs() {
        on_every_rank(&config, |mut rank| {
            let (needed, counts, bytes) = layer(&mut rank, &f32, &batch)?;
            let (found, counts_in_bf16, bytes_in_bf16) = layer(&mut rank, &bf16, &batch)?;
            assert_eq!(counts_in_bf16, counts, "{name}: rounding rows moves no row");
            let scale = needed.iter().fold(f32::MIN_POSITIVE, |max, value| max.max(value.abs()));
            let apart = found.iter().zip(&needed).map(|(a, b)| (a - b).abs() / scale);
            let apart = apart.fold(0.0, f32::max);
            println!("{name}, rank {}: {apart:.1e} of the largest entry", rank.world.rank());
            assert!(apart <= 1e-2, "{name}: {apart}");
            assert!(apart > 1e-5, "{name}: nothing was rounded, {apart}");
            match name {
                "pooled wave" => assert_eq!(bytes_in_bf16.header * 2, bytes.header, "{name}"),
                "ragged" => assert_eq!(bytes_in_bf16.header, bytes.header, "{name}"),
                _ => {}
            }
            let gathered_weights = if name == "ring" {
                // They stay f32: each rank sends three for each of its tokens to three peers.
                (needed.len() / config.model.hidden_dim * 3 * 3 * 4) as u64
            } else {
                0
            };
            let rows = bytes.payload - gathered_weights;
            assert_eq!((bytes_in_bf16.payload - gathered_weights) * 2, rows, "{name}");
            Ok(())
        });
    }
}

#[test]
fn five_steps_with_bf16_rows_stay_near_those_with_f32_rows() {
    let config = toy::config([2, 2], &[]);
    for (name, pair) in pairs() {
        let [needed, found] = pair.map(|dispatch| {
            let losses = on_every_rank(&config, |mut rank| {
                rank.exchange_by(&dispatch)?;
                let steps = (1..=5).map(|seed| {
                    let report = rank.step(&toy::batch(&config, seed))?;
                    assert!(report.updated && report.grad_norm.is_finite());
                    Ok(report.loss)
                });
                steps.collect::<Result<Vec<f64>, TrainError>>()
            });
            losses[0].clone()
        });
        let apart = found.iter().zip(&needed).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        println!("{name}: losses {needed:.4?}, at most {apart:.1e} apart");
        assert!(apart <= 2e-2 && apart > 0.0, "{name}: {found:?}, needed {needed:?}");
    }
}

/// Two shards of as many experts as bf16 has ids for; each has a token for every expert.
const EXPERTS: usize = 510;

/// The number of the token that goes to an expert: neighbours do not lie side by side.
fn token_of(expert: usize) -> usize {
    expert * 7 % EXPERTS
}

fn assert_ids_are_exact<D: TokenDispatcher>(dispatcher: &D) -> Result<(), EpError> {
    let mut ids = vec![0; EXPERTS];
    // Numbers up to 127 are themselves exact in bf16.
    let mut rows = vec![0.0; EXPERTS];
    for expert in 0..EXPERTS {
        ids[token_of(expert)] = expert as i32;
        rows[token_of(expert)] = (expert % 128) as f32;
    }
    let device = Device::flex();
    let ids = Tensor::<2, Int>::from_data(TensorData::new(ids, [EXPERTS, 1]), &device);
    let rows = Tensor::<2>::from_data(TensorData::new(rows.clone(), [EXPERTS, 1]), &device);
    let demand = dispatcher.demand(&[true; EXPERTS])?;
    let sent = dispatcher.dispatch(rows.clone(), ids, &demand)?;
    let mut seen = vec![Vec::new(); EXPERTS / 2];
    for wave in &sent.waves {
        let arrived: Vec<f32> = wave.rows.clone().into_data().iter::<f32>().collect();
        for (local, seen) in seen.iter_mut().enumerate() {
            seen.extend_from_slice(&arrived[wave.groups.range(local)]);
        }
    }
    for (expert, seen) in dispatcher.local_experts().zip(&seen) {
        assert_eq!(seen, &[(expert % 128) as f32; 2], "expert {expert}: one row of each shard");
    }
    let outputs = sent.waves.into_iter().map(|wave| wave.rows).collect();
    let weights = Tensor::ones([EXPERTS, 1], &device);
    let back = dispatcher.combine(outputs, weights, sent.handle)?;
    assert_eq!(back.report.counts.kept, EXPERTS as u64);
    let back: Vec<f32> = back.tokens.into_data().iter::<f32>().collect();
    assert_eq!(back, rows.into_data().iter::<f32>().collect::<Vec<_>>(), "every token's own row");
    Ok(())
}

#[test]
fn the_largest_ids_that_bf16_may_carry_arrive_exactly() {
    let done = run_world(2, DEADLINE, |transport| {
        let group = Group::new(transport);
        let roomy = (2.0, EXPERTS as f64);
        assert_ids_are_exact(&PooledWave::new(EXPERTS, &group, 3, roomy, Payload::Bf16))?;
        assert_ids_are_exact(&FixedCells::new(EXPERTS, &group, roomy.1, Payload::Bf16))
    });
    done.unwrap_or_else(|error| panic!("{error}"));
}
