// Copies KV blocks: pairs of first words among the tables, from and to.

struct Params {
    zero: u32,
    pairs_at: u32,
    block_words: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let i = 64u * group.x + t;
    let pair = p.pairs_at + 2u * group.y;
    if i < p.block_words {
        kv[tables[pair + 1u] + i] = kv[tables[pair] + i];
    }
}
