//! Replays of the exchange rules against the drops that a public implementation reported.

use fulmar::ep::replay::{
    Choices, Demand, FixedCells, PooledWave, Ragged, Replay, Ring, RowFormat, Rule, World,
};
use fulmar_tests::golden::{GoldenFile, cases};

fn rule(file: &GoldenFile) -> Box<dyn Rule> {
    let receiver = file.setting("receiver_capacity");
    match file.metadata["implementation"].as_str() {
        "fixed_pooled_wave_all_to_all" => Box::new(PooledWave {
            waves: file.setting("waves"),
            sender: file.setting("sender_capacity"),
            receiver,
        }),
        "ragged_all_to_all" => Box::new(Ragged { receiver }),
        "fixed_all_to_all" => Box::new(FixedCells { receiver }),
        "ring" => Box::new(Ring { receiver }),
        other => panic!("{}: implementation `{other}`", file.path.display()),
    }
}

#[test]
fn replays_drop_what_the_golden_exchanges_drop() {
    for path in cases("ep_") {
        let file = GoldenFile::read(&path);
        let world = World {
            shards: file.setting("shards"),
            num_experts: file.setting("num_experts"),
            experts_per_token: file.setting("top_k"),
        };
        let selected: Vec<u16> = file.integers("selected").iter().map(|&id| id as u16).collect();
        let valid: Vec<bool> = file.integers("valid").iter().map(|&valid| valid != 0).collect();
        let choices = Choices::new(world, &selected, Some(&valid)).expect("good choices");
        let payload = RowFormat { width: 8, element_bytes: 4 };
        let replay = Replay::of(&*rule(&file), &choices, &Demand::of(&choices), payload);
        let counts = replay.expect("a rule that fits").counts;
        let found = [counts.sender_dropped, counts.receiver_dropped, counts.padding];
        let golden: Vec<u64> = file.integers("drops").iter().map(|&n| n as u64).collect();
        assert_eq!(found[..], golden[..], "{}", path.display());
    }
}
