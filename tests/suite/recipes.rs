//! The recipes that users copy.

use std::path::Path;

use fulmar::train::recipe;

#[test]
fn every_recipe_parses_and_survives_being_written_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/recipes");
    let list = std::fs::read_dir(&folder).expect("examples/recipes");
    let mut recipes = 0;
    for path in list.map(|entry| entry.expect("listed").path()) {
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let config = recipe::load(&path, &[]).unwrap_or_else(|error| panic!("{error}"));
        let written = recipe::to_toml(&config);
        let read = recipe::parse(&written, "written out", &[]);
        assert_eq!(read.unwrap_or_else(|error| panic!("{error}")), config, "{}", path.display());
        recipes += 1;
    }
    assert!(recipes >= 2, "{} holds {recipes} recipes", folder.display());
}
