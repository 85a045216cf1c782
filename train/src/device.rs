//! The device of a run.

use burn::backend::DispatchDevice;
#[cfg(feature = "cube")]
use burn::backend::cubecl::dtype_to_storage_type;
#[cfg(feature = "cube")]
use burn::tensor::DType;
use burn::tensor::{Device, FloatDType};
use clap::ValueEnum;

use crate::config::RunConfig;
use crate::error::TrainError;

/// Which device to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum DeviceChoice {
    /// A hardware accelerator if this build and machine have one, else the CPU.
    #[default]
    Auto,
    /// The CPU, through Burn's Flex backend.
    Cpu,
    /// The default GPU through wgpu.
    Wgpu,
    /// The first NVIDIA GPU.
    Cuda,
}

/// A device that was opened, and what it is.
#[derive(Debug, Clone)]
pub struct OpenDevice {
    /// For tensors; without autodiff.
    pub device: Device,
    /// For people.
    pub name: String,
    /// Whether it is a hardware accelerator; a software adapter such as llvmpipe is none.
    pub accelerator: bool,
    /// Memory of an accelerator in bytes, as far as its runtime tells.
    pub memory_bytes: u64,
}

impl OpenDevice {
    /// Whether this is the CPU backend, not a GPU or its imitation.
    pub fn is_cpu(&self) -> bool {
        matches!(self.device.as_dispatch(), DispatchDevice::Flex(_))
    }

    /// The kernels that run here, and in which types of floats.
    pub fn kernels(&self) -> String {
        match self.device.as_dispatch() {
            #[cfg(feature = "cube")]
            DispatchDevice::Cube(cube) => {
                let bf16 = dtype_to_storage_type(DType::BF16);
                let has_bf16 = cube.client().properties().supports_type(bf16);
                format!("CubeCL, in f32{}", if has_bf16 { " and bf16" } else { "" })
            }
            _ => "Flex, in f32 and bf16".to_owned(),
        }
    }
}

/// Opens the device.
///
/// # Errors
/// [`TrainError::Device`] if this build lacks the backend, naming the feature that brings it, or
/// if the machine has no such device.
pub fn open(choice: DeviceChoice) -> Result<OpenDevice, TrainError> {
    fulmar_kernels::device_panic::abort_on_device_panic();
    match choice {
        DeviceChoice::Cpu => Ok(cpu()),
        DeviceChoice::Auto => Ok(accelerator().unwrap_or_else(cpu)),
        DeviceChoice::Wgpu => wgpu(),
        DeviceChoice::Cuda => cuda(),
    }
}

/// Fails if a recipe computes or stores anything as bf16 and the device has no such type: a kernel
/// would not compile, long after the run began.
///
/// # Errors
/// [`TrainError::Config`] with the first such field.
pub fn require_types(config: &RunConfig, device: &OpenDevice) -> Result<(), TrainError> {
    match config.bf16_field() {
        Some(field) if !device.device.supports_dtype(FloatDType::BF16) => {
            Err(TrainError::config(field, "bf16", format!("f32: {} has no bf16", device.name)))
        }
        _ => Ok(()),
    }
}

fn cpu() -> OpenDevice {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let name = format!("CPU, {threads} threads (Flex)");
    OpenDevice { device: Device::flex(), name, accelerator: false, memory_bytes: 0 }
}

/// The first hardware accelerator of this build; CUDA before wgpu.
fn accelerator() -> Option<OpenDevice> {
    [cuda, wgpu].into_iter().filter_map(|open| open().ok()).find(|device| device.accelerator)
}

/// `pages` of the runtime's largest allocation make up the memory.
#[cfg(feature = "cube")]
fn of_gpu(device: Device, runtime: &str, pages: u64) -> OpenDevice {
    let identity = device.identity();
    let name = identity.as_ref().map_or("unnamed", |identity| identity.name.as_str());
    let name = format!("{name} ({runtime})");
    // A software rasterizer is no card.
    let accelerator = identity.is_some_and(|identity| identity.physical.is_some());
    let memory_bytes = match device.as_dispatch() {
        DispatchDevice::Cube(cube) => pages * cube.client().properties().memory.max_page_size,
        _ => 0,
    };
    OpenDevice { device, name, accelerator, memory_bytes }
}

/// Opening a device that is not there panics inside the runtime; that is an answer, not a crash.
#[cfg(feature = "cube")]
fn quietly(
    name: &'static str,
    open: impl FnOnce() -> OpenDevice + std::panic::UnwindSafe,
) -> Result<OpenDevice, TrainError> {
    std::panic::catch_unwind(open).map_err(|_| TrainError::Device {
        device: name.to_owned(),
        problem: "none was found on this machine; `--device cpu` always works".to_owned(),
    })
}

#[cfg(feature = "wgpu")]
fn wgpu() -> Result<OpenDevice, TrainError> {
    let kind = burn::tensor::DeviceKind::DefaultDevice;
    // The heap on Vulkan, the largest buffer elsewhere.
    quietly("wgpu", || of_gpu(Device::wgpu(kind), "wgpu", 1))
}

#[cfg(not(feature = "wgpu"))]
fn wgpu() -> Result<OpenDevice, TrainError> {
    Err(not_built("wgpu"))
}

#[cfg(feature = "cuda")]
fn cuda() -> Result<OpenDevice, TrainError> {
    // The runtime lets one allocation take a quarter of the memory.
    quietly("cuda", || of_gpu(Device::cuda(0), "CUDA", 4))
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Result<OpenDevice, TrainError> {
    Err(not_built("cuda"))
}

#[cfg(not(all(feature = "wgpu", feature = "cuda")))]
fn not_built(feature: &str) -> TrainError {
    let problem = format!("this build has no `{feature}`; add `--features {feature}` to cargo");
    TrainError::Device { device: feature.to_owned(), problem }
}
