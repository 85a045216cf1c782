//! Files of weights, written a tensor at a time.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use burn::tensor::{DType, TensorData};
use fulmar_model::Role;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::json;

use super::turn::turned;
use super::{Exchanged, ExportDtype, INDEX, Names, SINGLE, Weights};
use crate::error::TrainError;

/// Headers end at a multiple of this, so that readers may map tensors where they lie.
const ALIGNMENT: usize = 8;

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Written {
    /// Files of weights.
    pub(super) files: usize,
    /// Bytes of all tensors.
    pub(super) bytes: u64,
    /// Tensors.
    pub(super) tensors: usize,
}

/// Writes every parameter of `source` into files of at most `max_bytes` of tensors (a larger tensor
/// has a file to itself), and an index where they are several.
pub(super) fn weights(
    source: &dyn Weights,
    folder: &Path,
    dtype: ExportDtype,
    max_bytes: u64,
) -> Result<Written, TrainError> {
    let names = Names::of(source.model());
    let all: Vec<&Exchanged> = names.iter().collect();
    let files = shared_out(&all, dtype, max_bytes);
    let mut weight_map = serde_json::Map::new();
    for (index, tensors) in files.iter().enumerate() {
        let file = match files.len() {
            1 => SINGLE.to_owned(),
            count => format!("model-{:05}-of-{count:05}.safetensors", index + 1),
        };
        write_file(source, &folder.join(&file), tensors, dtype)?;
        weight_map.extend(tensors.iter().map(|t| (t.name.clone(), file.clone().into())));
    }
    let bytes = all.iter().map(|tensor| num_bytes(tensor, dtype)).sum();
    if files.len() > 1 {
        let index = json!({ "metadata": { "total_size": bytes }, "weight_map": weight_map });
        let text = serde_json::to_string_pretty(&index).expect("plain values") + "\n";
        text_file(&folder.join(INDEX), &text)?;
    }
    Ok(Written { files: files.len(), bytes, tensors: all.len() })
}

/// Writes a small file, durably.
pub(super) fn text_file(path: &Path, text: &str) -> Result<(), TrainError> {
    let write = || -> std::io::Result<()> {
        let mut file = File::create_new(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(TrainError::io("write", path))
}

/// The type that a parameter is stored as. Router biases stay f32: they are added to scores whose
/// differences decide, and may be hundreds where those are below one.
pub(super) fn stored_as(parameter: &Exchanged, dtype: ExportDtype) -> DType {
    match dtype {
        ExportDtype::Bf16 if parameter.role != Role::RouterBias => DType::BF16,
        _ => DType::F32,
    }
}

fn num_bytes(parameter: &Exchanged, dtype: ExportDtype) -> u64 {
    (parameter.num_elements() * stored_as(parameter, dtype).size()) as u64
}

/// Parameters by file, in their order.
fn shared_out<'a>(
    all: &[&'a Exchanged],
    dtype: ExportDtype,
    max_bytes: u64,
) -> Vec<Vec<&'a Exchanged>> {
    let mut files = vec![Vec::new()];
    let mut filled = 0;
    for parameter in all {
        let bytes = num_bytes(parameter, dtype);
        if filled > 0 && filled + bytes > max_bytes {
            files.push(Vec::new());
            filled = 0;
        }
        files.last_mut().expect("one at least").push(*parameter);
        filled += bytes;
    }
    files
}

fn write_file(
    source: &dyn Weights,
    path: &Path,
    parameters: &[&Exchanged],
    dtype: ExportDtype,
) -> Result<(), TrainError> {
    let failed = |error| TrainError::io("write", path)(error);
    let mut file = BufWriter::new(File::create_new(path).map_err(failed)?);
    // Wider types first, as the format asks for, so that every tensor is aligned.
    let mut parameters = parameters.to_vec();
    parameters.sort_by_key(|parameter| std::cmp::Reverse(stored_as(parameter, dtype).size()));
    file.write_all(&header(&parameters, dtype)).map_err(failed)?;
    for parameter in parameters {
        let data = as_published(source.read(parameter)?, parameter, dtype);
        file.write_all(data.as_bytes()).map_err(failed)?;
    }
    let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)
}

/// The length of the header, and the header.
fn header(parameters: &[&Exchanged], dtype: ExportDtype) -> Vec<u8> {
    let mut end = 0;
    let info = |parameter: &&Exchanged| {
        let first = end;
        end += num_bytes(parameter, dtype) as usize;
        let dtype = match stored_as(parameter, dtype) {
            DType::BF16 => Dtype::BF16,
            _ => Dtype::F32,
        };
        let shape = parameter.shape_there();
        (parameter.name.clone(), TensorInfo { dtype, shape, data_offsets: (first, end) })
    };
    let infos = parameters.iter().map(info).collect();
    // Some readers refuse files that do not say what framework's tensors they hold; all are alike.
    let format = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let metadata = Metadata::new(Some(format), infos).expect("offsets follow one another");
    let mut text = serde_json::to_vec(&metadata).expect("plain values");
    text.resize(text.len().next_multiple_of(ALIGNMENT), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut text);
    bytes
}

/// A parameter as it lies there.
fn as_published(data: TensorData, parameter: &Exchanged, dtype: ExportDtype) -> TensorData {
    let data = match parameter.shape[..] {
        [.., rows, columns] if parameter.is_turned() => {
            let values = data.as_slice::<f32>().expect("weights are f32");
            TensorData::new(turned(values, [rows, columns]), parameter.shape_there())
        }
        _ => data,
    };
    data.convert_dtype(stored_as(parameter, dtype))
}
