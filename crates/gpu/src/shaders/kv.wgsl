// Blocks of the KV cache, for kernels that write whole words or none.

@group(0) @binding(1) var<storage, read_write> kv: array<u32>;
