//! What a shard of the experts holds.

use burn::tensor::Device;
use fulmar_ep::Local;
use fulmar_model::moe::quantile::QuantileBalancing;
use fulmar_model::role::Roles as _;
use fulmar_model::{ModelConfig, ModelInput, Preset, Role, Transformer, weights};

const SHARDS: usize = 4;

fn small() -> ModelConfig {
    ModelConfig {
        vocab_size: 64,
        num_layers: 2,
        num_experts: 12,
        num_experts_per_token: 3,
        max_seq_len: 8,
        ..Preset::MiniD96.config()
    }
}

fn shard(index: usize) -> Transformer {
    let here = small().num_experts / SHARDS;
    let experts = index * here..(index + 1) * here;
    Transformer::of_shard(&small(), 5, experts, &Device::flex()).expect("valid")
}

#[test]
fn shards_hold_slice_by_slice_the_weights_of_the_whole_model() {
    let whole = Transformer::new(&small(), 5, &Device::flex()).expect("valid");
    let roles = whole.roles();
    let shards: Vec<_> = (0..SHARDS).map(|index| weights::export(&shard(index))).collect();
    for (path, expected) in weights::export(&whole) {
        let expected: Vec<f32> = expected.iter::<f32>().collect();
        let of_shard = |index: usize| shards[index][&path].iter::<f32>().collect::<Vec<_>>();
        if roles.get(&path) == Some(Role::ExpertStack) {
            assert_eq!((0..SHARDS).flat_map(of_shard).collect::<Vec<_>>(), expected, "{path}");
        } else {
            (0..SHARDS).for_each(|index| assert_eq!(of_shard(index), expected, "{path}"));
        }
    }
}

#[test]
#[should_panic(expected = "a layer with 3 experts and a dispatcher for experts 0..12")]
fn a_dispatcher_of_another_shard_is_refused() {
    let input = ModelInput::new(vec![1; 8], vec![0; 8], vec![true; 8], [1, 8], &Device::flex());
    let no_balancing: Option<&QuantileBalancing> = None;
    let _ = shard(1).forward(&input, &Local::new(12), no_balancing);
}

#[test]
#[should_panic(expected = "a shard of experts 9..13, needed some of 0..12")]
fn experts_that_do_not_exist_are_refused() {
    let _ = Transformer::of_shard(&small(), 5, 9..13, &Device::flex());
}
