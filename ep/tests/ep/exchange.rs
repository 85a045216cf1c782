//! Exchanges of rows under autodiff, over thread ranks, against plain concatenation.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor, TensorData};
use fulmar_ep::exchange::{Label, Route, all_gather, exchange, reduce_scatter};
use fulmar_ep::transport::{Group, TransportError, run_world};
use fulmar_ep::{Payload, WireBytes, WireCounter};
use half::bf16;

use crate::ranks::{DEADLINE, floats};

const RANKS: [usize; 3] = [1, 2, 4];
const PAYLOADS: [Payload; 2] = [Payload::F32, Payload::Bf16];
/// Odd ones leave half a word over where rows are bf16.
const WIDTHS: [usize; 3] = [1, 3, 8];

type Op = fn(Tensor<2>, &Route) -> Tensor<2>;

/// Row `row` of those that `from` has for `to`; thirds, which no float holds exactly.
fn value(from: usize, to: usize, row: usize, column: usize, salt: usize) -> f32 {
    ((from * 131 + to * 31 + row * 7 + column * 3 + salt) as f32 - 60.0) / 3.0
}

/// The rows of one rank for another.
fn block(from: usize, to: usize, rows: usize, width: usize, salt: usize) -> Vec<f32> {
    let row = |row| (0..width).map(move |column| value(from, to, row, column, salt));
    (0..rows).flat_map(row).collect()
}

/// Rows that `from` sends to `to`: 0, 1 or 2, so that some ranks send or get nothing.
fn rows_between(from: usize, to: usize) -> usize {
    (from * 2 + to) % 3
}

/// Rows that a rank has of its own: none on the first.
fn rows_of(rank: usize) -> usize {
    rank * 2 % 5
}

fn route(group: &Group, payload: Payload, send_rows: Vec<usize>, recv_rows: Vec<usize>) -> Route {
    let wire = Arc::new(WireCounter::default());
    let (group, header_rows) = (group.clone(), 0);
    Route { group, label: Label::DISPATCH, payload, send_rows, recv_rows, header_rows, wire }
}

fn tensor(values: Vec<f32>, width: usize) -> Tensor<2> {
    let shape = [values.len() / width, width];
    Tensor::from_data(TensorData::new(values, shape), &Device::flex())
}

/// The result for `x`, and the gradient of `x` for the result's gradient `upstream`.
fn run(op: Op, route: &Route, x: Vec<f32>, upstream: Vec<f32>, width: usize) -> [Vec<f32>; 2] {
    let x = Tensor::from_inner(tensor(x, width)).require_grad();
    let out = op(x.clone(), route);
    let upstream = Tensor::from_inner(tensor(upstream, width));
    let grads = (out.clone() * upstream).sum().backward();
    [floats(out.inner()), floats(x.grad(&grads).expect("dx"))]
}

/// What arrives of values that travel.
fn travelled(values: Vec<f32>, payload: Payload) -> Vec<f32> {
    match payload {
        Payload::F32 => values,
        Payload::Bf16 => values.into_iter().map(|v| bf16::from_f32(v).to_f32()).collect(),
    }
}

/// Runs `body` on every number of ranks, payload and width.
fn everywhere(body: impl Fn(&Group, Payload, usize) + Sync) {
    for (ranks, payload) in RANKS.into_iter().flat_map(|ranks| PAYLOADS.map(|p| (ranks, p))) {
        for width in WIDTHS {
            let done = run_world(ranks, DEADLINE, |transport| {
                body(&Group::new(transport), payload, width);
                Ok::<_, TransportError>(())
            });
            done.unwrap_or_else(|error| panic!("{ranks} ranks, {payload:?}, {width}: {error}"));
        }
    }
}

#[test]
fn an_exchange_is_the_concatenation_of_what_ranks_sent() {
    everywhere(|group, payload, width| {
        let (me, ranks) = (group.rank(), group.size());
        let send: Vec<usize> = (0..ranks).map(|to| rows_between(me, to)).collect();
        let recv: Vec<usize> = (0..ranks).map(|from| rows_between(from, me)).collect();
        let from_me = |rows: &[usize], salt| -> Vec<f32> {
            rows.iter().enumerate().flat_map(|(to, n)| block(me, to, *n, width, salt)).collect()
        };
        let to_me = |rows: &[usize], salt| -> Vec<f32> {
            rows.iter().enumerate().flat_map(|(from, n)| block(from, me, *n, width, salt)).collect()
        };
        let (x, upstream) = (from_me(&send, 0), from_me(&recv, 1));
        let route = route(group, payload, send.clone(), recv.clone());
        let [out, dx] = run(exchange, &route, x, upstream, width);
        assert_eq!(out, travelled(to_me(&recv, 0), payload), "rank {me}: out");
        assert_eq!(dx, travelled(to_me(&send, 1), payload), "rank {me}: dx");
    });
}

#[test]
fn a_gather_has_the_rows_of_all_and_its_gradient_is_their_sum() {
    everywhere(|group, payload, width| {
        let (me, ranks) = (group.rank(), group.size());
        let recv: Vec<usize> = (0..ranks).map(rows_of).collect();
        let route = route(group, payload, vec![rows_of(me); ranks], recv.clone());
        let all: Vec<f32> =
            (0..ranks).flat_map(|from| block(from, 0, rows_of(from), width, 0)).collect();
        let upstream = (0..ranks).flat_map(|to| block(me, to, rows_of(to), width, 1)).collect();
        let [out, dx] =
            run(all_gather, &route, block(me, 0, rows_of(me), width, 0), upstream, width);
        assert_eq!(out, travelled(all, payload), "rank {me}: out");
        assert_eq!(dx, sum_over_ranks(me, ranks, payload, width, 1), "rank {me}: dx");
    });
}

#[test]
fn a_scatter_has_the_sum_of_what_ranks_sent_and_its_gradient_is_gathered() {
    everywhere(|group, payload, width| {
        let (me, ranks) = (group.rank(), group.size());
        let send: Vec<usize> = (0..ranks).map(rows_of).collect();
        let route = route(group, payload, send, vec![rows_of(me); ranks]);
        let x = (0..ranks).flat_map(|to| block(me, to, rows_of(to), width, 0)).collect();
        let all: Vec<f32> =
            (0..ranks).flat_map(|from| block(from, 0, rows_of(from), width, 1)).collect();
        let [out, dx] = run(reduce_scatter, &route, x, block(me, 0, rows_of(me), width, 1), width);
        assert_eq!(out, sum_over_ranks(me, ranks, payload, width, 0), "rank {me}: out");
        assert_eq!(dx, travelled(all, payload), "rank {me}: dx");
    });
}

/// The sum of what every rank sends to `me`, in the order of ranks.
fn sum_over_ranks(
    me: usize,
    ranks: usize,
    payload: Payload,
    width: usize,
    salt: usize,
) -> Vec<f32> {
    let part = |from| travelled(block(from, me, rows_of(me), width, salt), payload);
    let mut sum = part(0);
    for from in 1..ranks {
        sum.iter_mut().zip(part(from)).for_each(|(sum, value)| *sum += value);
    }
    sum
}

#[test]
fn ids_up_to_256_are_exact_in_bf16() {
    let done = run_world(2, DEADLINE, |transport| {
        let group = Group::new(transport);
        let ids: Vec<f32> = (0..=256).map(|id| id as f32).collect();
        let other = 1 - group.rank();
        let mut rows = vec![0; 2];
        rows[other] = 1;
        let route = route(&group, Payload::Bf16, rows.clone(), rows);
        assert_eq!(floats(exchange(tensor(ids.clone(), 257), &route)), ids);
        Ok::<_, TransportError>(())
    });
    done.expect("no failure");
}

#[test]
fn bytes_that_leave_a_rank_are_counted_in_both_directions() {
    for (payload, bytes) in [(Payload::F32, 4), (Payload::Bf16, 2)] {
        let counted = run_world(4, DEADLINE, |transport| {
            let group = Group::new(transport);
            let me = group.rank();
            // Three columns; two rows to each rank above, one to each other, one of them header.
            let rows = |from: usize, to: usize| if to > from { 2 } else { 1 };
            let send: Vec<usize> = (0..4).map(|to| rows(me, to)).collect();
            let recv: Vec<usize> = (0..4).map(|from| rows(from, me)).collect();
            let zeros = |rows: &[usize]| vec![0.0; 3 * rows.iter().sum::<usize>()];
            let (x, upstream) = (zeros(&send), zeros(&recv));
            let route = Route { header_rows: 1, ..route(&group, payload, send, recv) };
            let x = Tensor::from_inner(tensor(x, 3)).require_grad();
            let out = exchange(x, &route);
            let forward = route.wire.bytes();
            (out * Tensor::from_inner(tensor(upstream, 3))).sum().backward();
            Ok::<_, TransportError>((forward, route.wire.bytes()))
        });
        let row = 3 * bytes;
        for (rank, (forward, both)) in counted.expect("no failure").into_iter().enumerate() {
            // Forward a row beside the header goes to each of the 3 - rank above, backward to each
            // of the `rank` below.
            let needed = WireBytes { payload: (3 - rank as u64) * row, header: 3 * row };
            assert_eq!(forward, needed, "rank {rank} forward");
            assert_eq!(both, WireBytes { payload: 3 * row, header: 6 * row }, "rank {rank}");
        }
    }
}

/// What became of each rank whose forward exchange `backward` follows.
fn outcomes(
    ranks: usize,
    deadline: Duration,
    backward: impl Fn(&Group, Tensor<2>) -> Result<(), TransportError> + Sync,
) -> Vec<Option<TransportError>> {
    let outcomes = Mutex::new(vec![None; ranks]);
    let ended = run_world(ranks, deadline, |transport| {
        let group = Group::new(transport);
        let route = route(&group, Payload::F32, vec![1; ranks], vec![1; ranks]);
        // A slow rank may hear of the failure while it is still in its forward.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let x = Tensor::from_inner(tensor(vec![1.0; ranks], 1)).require_grad();
            backward(&group, exchange(x, &route))
        }));
        let outcome = outcome.unwrap_or_else(|panic| Err(lost(panic)));
        outcomes.lock().expect("no panic")[group.rank()] = outcome.clone().err();
        outcome
    });
    assert!(ended.is_err(), "some rank failed");
    outcomes.into_inner().expect("no panic")
}

#[test]
fn a_rank_that_skips_its_backward_fails_every_rank_before_the_deadline() {
    let started = Instant::now();
    // Rank 1 goes on to the next collective, or ends.
    for goes_on in [true, false] {
        let found = outcomes(4, DEADLINE, |group, out| match group.rank() {
            1 if goes_on => group.barrier("the end of the step"),
            1 => Ok(()),
            _ => {
                out.sum().backward();
                Ok(())
            }
        });
        let failed = found.iter().map(Option::is_some).collect::<Vec<_>>();
        assert_eq!(failed, [true, goes_on, true, true], "{found:?}");
    }
    assert!(started.elapsed() < DEADLINE / 2, "{:?}", started.elapsed());
}

#[test]
fn a_rank_that_never_comes_to_its_backward_is_missed_at_the_deadline() {
    let deadline = Duration::from_millis(300);
    let found = outcomes(2, deadline, |group, out| {
        if group.rank() == 1 {
            std::thread::sleep(3 * deadline);
            return Ok(());
        }
        out.sum().backward();
        Ok(())
    });
    match &found[0] {
        Some(TransportError::Deadline { rank: 0, call, missing, .. }) => {
            assert_eq!(call, "all_to_all_v `dispatch, backward`");
            assert_eq!(missing, &[1]);
        }
        other => panic!("{other:?}"),
    }
}

/// The error that an exchange unwinds with.
fn lost(panic: Box<dyn Any + Send>) -> TransportError {
    *panic.downcast().expect("a transport's error")
}

#[test]
#[should_panic(expected = "exchange `dispatch`: `x` has 3 rows, needed 2")]
fn rows_that_no_member_gets_are_named() {
    let route = route(&Group::solo(), Payload::F32, vec![2], vec![2]);
    exchange(tensor(vec![0.0; 3], 1), &route);
}
