//! Folders that become runs.

use burn::tensor::Device;
use fulmar::train::history::History;
use fulmar::train::interchange::{ExportDtype, Saved, export, import, load};
use fulmar::train::{exit, recipe, run};

use super::made::{Made, assert_same_weights};

#[test]
fn an_imported_run_begins_with_the_weights_and_trains_on() {
    for dtype in [ExportDtype::F32, ExportDtype::Bf16] {
        let made = Made::new(&["model.num_heads=4", "model.local_kv_heads=2"]);
        made.export("hf", dtype, 100_000);
        let imported = import(&made.import_options("hf", "tuned")).expect("imported");
        assert_eq!(imported.config.model, made.config.model);
        let history = History::read(&made.tiny.path("tuned")).expect("a history");
        assert_eq!((history[0].what.as_str(), history[0].step), ("imported", 0));
        let mut saved = Saved::find(&made.tiny.path("tuned"), Some(0)).expect("step 0");
        assert_eq!((saved.step(), saved.config()), (0, &imported.config));
        if dtype == ExportDtype::F32 {
            let model = load(&saved, 0..8, &Device::flex()).expect("a model");
            assert_same_weights("step 0", &model, &made.values);
        }
        // Out again, bit for bit: biases too, though nothing is pending.
        let options = made.options("again", dtype, 100_000);
        export(&saved, &options).expect("exported again");
        for entry in std::fs::read_dir(made.tiny.path("hf")).expect("listed") {
            let name = entry.expect("listed").file_name();
            let read = |folder: &str| std::fs::read(made.tiny.path(folder).join(&name));
            assert_eq!(read("hf").expect("read"), read("again").expect("read"), "{name:?}");
        }
        let mut options = made.tiny.options("tuned");
        options.resume = true;
        options.stop_after = Some(2);
        let summary = run(&imported.config, &options).expect("two steps");
        assert_eq!((summary.steps_taken, summary.state.step), (2, 2));
        saved = Saved::find(&made.tiny.path("tuned"), None).expect("step 2");
        assert_eq!(saved.step(), 2);
        // A run that began with other weights would have another first loss.
        let mut other = made.tiny.options("other");
        other.stop_after = Some(1);
        let fresh = run(&imported.config, &other).expect("a step");
        assert_ne!(fresh.losses[0].1, summary.losses[0].1);
    }
}

#[test]
fn an_import_by_a_recipe_of_another_model_names_the_field() {
    let made = Made::new(&[]);
    made.export("hf", ExportDtype::F32, u64::MAX);
    let recipe = |name: &str, overrides: &[&str]| {
        let path = made.tiny.path(name);
        let text = recipe::to_toml(&made.tiny.config(overrides));
        std::fs::write(&path, text).expect("written");
        path
    };
    let mut options = made.import_options("hf", "tuned");
    options.set.clear();
    for (field, needed) in [
        ("model.qk_mult=1.0", "field `model.qk_mult` is 1.0 in"),
        ("model.latent_dim=8", "field `model.latent_dim` is 8 in"),
        ("model.short_conv_sites=[\"k\"]", "field `model.short_conv_sites` is"),
        ("model.max_seq_len=64", "field `model.max_seq_len` is 64 in"),
    ] {
        options.recipe = Some(recipe("other.toml", &[field]));
        let error = import(&options).expect_err(field);
        assert!(error.to_string().contains(needed), "{error}");
        assert_eq!(exit::status_of(&error), exit::CHECKPOINT);
        assert!(!made.tiny.path("tuned").exists(), "{field}: a run's folder appeared");
    }
    // What only training reads is the recipe's own.
    let free = [
        "model.z_loss=0.001",
        "model.quantile_bins=500",
        "model.short_conv_sites=[\"mlp\",\"k\",\"attn\"]",
    ];
    options.recipe = Some(recipe("own.toml", &free));
    let imported = import(&options).expect("the same model");
    assert_eq!(imported.config.model.quantile_bins, 500);
    let error = import(&options).expect_err("a second time").to_string();
    assert!(error.contains("the folder holds a run"), "{error}");
}

#[test]
fn a_folder_that_holds_something_takes_no_export() {
    let made = Made::new(&[]);
    std::fs::create_dir_all(made.tiny.path("hf")).expect("a folder");
    std::fs::write(made.tiny.path("hf/notes.txt"), "mine").expect("written");
    let options = made.options("hf", ExportDtype::F32, u64::MAX);
    let error = export(&made.saved, &options).expect_err("mine").to_string();
    assert!(error.contains("needed a new or empty folder"), "{error}");
}
