//! The way of a pass, taken again: the same values and gradients, and nothing decided anew.

use std::sync::Arc;

use burn::tensor::Tensor;
use fulmar_ep::transport::{Group, Transport, run_world};
use fulmar_ep::{Combined, DispatchReport, EpError, Keep, Payload, TokenDispatcher, WireBytes};
use fulmar_tests::compare::assert_same_bits;

use crate::case::{EpCase, ep_cases};
use crate::ranks::{DEADLINE, ShardRun, run_shard, run_shard_by, with_payload};

/// A shard's run whose graph is that of a way taken a second time, and the bytes that left it in
/// the first pass and in the second.
fn run_again<D: TokenDispatcher>(
    case: &EpCase,
    shard: usize,
    dispatcher: &D,
    keep: Keep,
) -> Result<(ShardRun, [WireBytes; 2]), EpError> {
    let mut sent = [WireBytes::default(); 2];
    let run = run_shard_by(case, &case.shards[shard], dispatcher, |pass| {
        let plain = |outputs: Vec<Tensor<2>>| outputs.into_iter().map(Tensor::inner).collect();
        let first = dispatcher.dispatch_keeping(
            pass.x.clone().inner(),
            pass.selected,
            pass.demand,
            keep,
        )?;
        let outputs = plain((pass.experts)(first.waves));
        let weights = pass.weights.clone().inner();
        let (combined, way) = dispatcher.combine_keeping(outputs, weights, first.handle)?;
        let bytes = |report: &DispatchReport| report.wire.bytes();
        sent[0] = bytes(&combined.report);
        let waves = way.dispatch(pass.x);
        let tokens = way.combine((pass.experts)(waves), pass.weights);
        sent[1] = bytes(&combined.report);
        assert_same_bits("values", &values(&tokens), &values(&combined.tokens));
        Ok(Combined { tokens, report: combined.report })
    })?;
    Ok((run, sent))
}

fn values(tensor: &Tensor<2>) -> Vec<f32> {
    tensor.clone().inner().into_data().iter::<f32>().collect()
}

#[test]
fn a_way_taken_again_has_the_bits_of_the_first_time() {
    for case in ep_cases() {
        for (keep, payload) in [
            (Keep::Decisions, Payload::F32),
            (Keep::Rows, Payload::F32),
            (Keep::Decisions, Payload::Bf16),
            (Keep::Rows, Payload::Bf16),
        ] {
            let runs = run_world(case.shards.len(), DEADLINE, |transport: Arc<dyn Transport>| {
                let group = Group::new(transport);
                let dispatcher = with_payload(case.rule, case.num_experts, &group, payload);
                let needed = run_shard(&case, &case.shards[group.rank()], &dispatcher)?;
                let (found, sent) = run_again(&case, group.rank(), &dispatcher, keep)?;
                Ok::<_, EpError>((needed, found, sent))
            });
            let runs = runs.unwrap_or_else(|error| panic!("{}: {error}", case.name));
            for (needed, found, [first, both]) in runs {
                let name = |part: &str| format!("{}, {keep:?}, {payload:?}: {part}", case.name);
                assert_same_bits(&name("out"), &found.out, &needed.out);
                assert_same_bits(&name("dx"), &found.dx, &needed.dx);
                assert_same_bits(&name("dcombine"), &found.dcombine, &needed.dcombine);
                assert_same_bits(&name("dw13"), &found.dw13, &needed.dw13);
                assert_same_bits(&name("dw2"), &found.dw2, &needed.dw2);
                assert_eq!(found.report.counts, needed.report.counts, "{}", name("counts"));
                let travelled_again = both.payload - first.payload;
                let rows = if keep == Keep::Rows { 0 } else { first.payload };
                assert_eq!(travelled_again, rows, "{}", name("payload bytes of the second pass"));
            }
        }
    }
}
