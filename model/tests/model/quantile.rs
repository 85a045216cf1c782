use fulmar_model::moe::grid::MarginGrid;
use fulmar_model::moe::quantile::one_pass;
use fulmar_tests::compare::{assert_close, assert_within};
use fulmar_tests::golden::{GoldenFile, cases};

/// Golden margins lie as [t, e]; ours as [e, t].
fn transposed(values: &[f32], tokens: usize, experts: usize) -> Vec<f32> {
    (0..experts * tokens).map(|i| values[i % tokens * experts + i / tokens]).collect()
}

#[test]
fn golden_betas_agree_in_one_pass_and_on_the_grid_within_a_bin() {
    for path in cases("quantile") {
        let file = GoldenFile::read(&path);
        let [tokens, experts] = file.shape("margin").try_into().expect("[t, e]");
        let k = file.setting("top_k");
        let margins = transposed(file.floats("margin"), tokens, experts);
        let range = |of: fn(f32, f32) -> f32| margins.iter().copied().reduce(of).expect("margins");
        let span = range(f32::max) - range(f32::min);
        let names: Vec<&str> = file.names().filter(|name| name.starts_with("beta_")).collect();
        assert!(!names.is_empty(), "{}: no betas", path.display());
        for name in names {
            let bins: usize = name["beta_".len()..].parse().expect("beta_<bins>");
            let expected = file.floats(name);
            assert_close("beta", &one_pass(&margins, experts, k, bins), expected, 2e-5);
            let grid = MarginGrid::count(&margins, experts, bins);
            // The grid's bins may be almost twice as wide as those of the live range.
            assert_within("grid", &grid.quantiles(k), expected, 2.0 * span / bins as f32);
        }
    }
}
