// The memory of all shaders: one layout of bindings, so that a step binds once.

@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read> tables: array<u32>;
@group(0) @binding(3) var<storage, read_write> acts: array<u32>;
@group(0) @binding(4) var<storage, read_write> values: array<f32>;
@group(1) @binding(0) var<uniform> p: Params;

// A float among the weights.
fn vector(at: u32) -> f32 {
    return bitcast<f32>(weights[at]);
}
