//! The shapes that a step is taken at.

use fulmar_model::Preset;
use fulmar_model::config::ModelConfig;
use fulmar_tests::made_up::proxy;
use fulmar_train::RunConfig;
use fulmar_train::config::BatchConfig;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Shape {
    Proxy,
    Mini,
    /// A layer of d768 with rows of 4,096 tokens, and a vocabulary that does not matter.
    D768Block,
}

impl Shape {
    pub(crate) fn from_name(name: &str) -> Self {
        match name {
            "proxy" => Self::Proxy,
            "mini" => Self::Mini,
            "d768_block" => Self::D768Block,
            _ => panic!("the shape is `{name}`; use proxy, mini or d768_block"),
        }
    }

    pub(crate) fn config(self) -> RunConfig {
        let (preset, model, rows) = match self {
            Self::Proxy => (Preset::MiniD96, proxy(), Some(8)),
            Self::Mini => (Preset::MiniD96, Preset::MiniD96.config(), None),
            Self::D768Block => {
                let d768 = Preset::D768.config();
                let block = ModelConfig { num_layers: 1, vocab_size: 4_096, ..d768 };
                (Preset::D768, block, Some(1))
            }
        };
        let mut config = RunConfig::preset(preset);
        config.model = model;
        if let Some(rows) = rows {
            config.batch = BatchConfig { rows, micro_rows: None };
        }
        config.schedule.steps = 1_000;
        config.validate().expect("a valid shape");
        config
    }
}
