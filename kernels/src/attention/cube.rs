use super::AttentionKernel;
use burn_cubecl::CubeBackend;
impl AttentionKernel for CubeBackend {}
