// The last vectors of some rows, oldest first, into the states behind these rows; zeros before the first position.

struct Params {
    zero: u32,
    d: u32,
    x_at: u32,
    sources_at: u32,
    n_sources: u32,
    len: u32,
    state_at: u32,
    // Pairs of a row and of the first word of the block of its state.
    kept_at: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let i = 64u * group.x + t;
    let back = group.y;
    let kept = p.kept_at + 2u * group.z;
    if i >= p.d {
        return;
    }
    let source = source_of(tables[kept], back);
    var x = 0.0;
    if source.back != NONE {
        x = element_of(source, i);
    }
    kv[tables[kept + 1u] + p.state_at + (p.len - 1u - back) * p.d + i] = bitcast<u32>(x);
}
