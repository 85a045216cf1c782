//! Sums over the experts of a token have one order, whatever exchange carried their rows.

use burn::tensor::{Device, Int, Tensor, TensorData};
use fulmar_ep::transport::{Group, run_world};
use fulmar_ep::{EpError, TokenDispatcher};

use crate::random::Shape;
use crate::ranks::{DEADLINE, dispatcher, floats};
use crate::reference::{Problem, Rule};
use crate::rules::roomy_rules;

const WIDTH: usize = 5;

/// Bits of the sums, of the gradients of the tokens and of those of the weights.
type Bits = [Vec<u32>; 3];

/// Values that no float adds exactly, the same for a token whichever shard it is on.
fn values(first: usize, rows: usize, columns: usize, salt: u32) -> Tensor<2> {
    let value = |i: usize| {
        let mixed = (i as u32 + 1).wrapping_mul(2_654_435_761) ^ salt.wrapping_mul(0x9E37_79B9);
        (mixed >> 8) as f32 / 3e6 - 2.5
    };
    let values = (first * columns..(first + rows) * columns).map(value).collect();
    Tensor::from_data(TensorData::new::<f32, _>(values, [rows, columns]), &Device::flex())
}

/// The tokens of one shard to experts that return what they get, and back.
fn run(problem: &Problem, rule: Rule, group: &Group) -> Result<Bits, EpError> {
    let (shard, k) = (group.rank(), problem.k);
    let (valid, first) = (&problem.valid[shard], problem.valid[..shard].iter().map(Vec::len).sum());
    let tokens = valid.len();
    let ids: Vec<i32> = problem.selected[shard].iter().map(|id| *id as i32).collect();
    let ids = TensorData::new(ids, [tokens, k]);
    let selected = Tensor::<2, Int>::from_data(ids, &Device::flex());
    let x = Tensor::from_inner(values(first, tokens, WIDTH, 1)).require_grad();
    let weights = Tensor::from_inner(values(first, tokens, k, 2)).require_grad();

    let dispatcher = dispatcher(rule, problem.num_experts, group);
    let demand = dispatcher.demand(valid)?;
    let sent = dispatcher.dispatch(x.clone(), selected, &demand)?;
    let outputs = sent.waves.into_iter().map(|wave| wave.rows).collect();
    let combined = dispatcher.combine(outputs, weights.clone(), sent.handle)?;
    assert_eq!(combined.report.counts.drop_fraction(), 0.0, "{rule:?}");
    let dout = Tensor::from_inner(values(first, tokens, WIDTH, 3));
    let grads = (combined.tokens.clone() * dout).sum().backward();
    let bits = |tensor| floats::<2>(tensor).into_iter().map(f32::to_bits).collect();
    Ok([
        bits(combined.tokens.inner()),
        bits(x.grad(&grads).expect("dx")),
        bits(weights.grad(&grads).expect("dweights")),
    ])
}

/// The same tokens on one shard.
fn of_one_shard(problem: &Problem) -> Problem {
    Problem {
        selected: vec![problem.selected.concat()],
        valid: vec![problem.valid.concat()],
        ..problem.clone()
    }
}

#[test]
fn an_exchange_that_drops_nothing_gives_the_bits_of_one_shard() {
    let shape = Shape { shards: 4, num_experts: 12, k: 3, max_tokens: 40 };
    for seed in 0..10 {
        let problem = shape.problem(seed);
        let expected = run(&of_one_shard(&problem), Rule::Local, &Group::solo()).expect("local");
        for rule in roomy_rules(&problem) {
            let runs = run_world(problem.shards(), DEADLINE, |transport| {
                run(&problem, rule, &Group::new(transport))
            });
            let runs = runs.unwrap_or_else(|error| panic!("{rule:?}, seed {seed}: {error}"));
            let found = |which: usize| runs.iter().flat_map(move |bits| bits[which].clone());
            let equal = |which: usize| found(which).eq(expected[which].iter().copied());
            // A ring adds what shards have summed. The gradient of a token is the sum of the waves'.
            let [out, dx] = match rule {
                Rule::Ring { .. } => [false, false],
                Rule::PooledWave { waves, .. } => [true, waves == 1],
                _ => [true, true],
            };
            assert!(equal(0) || !out, "{rule:?}, seed {seed}: sums");
            assert!(equal(1) || !dx, "{rule:?}, seed {seed}: gradients of tokens");
            assert!(equal(2), "{rule:?}, seed {seed}: gradients of weights");
        }
    }
}
