// Keys that move to other positions (a context shift): those of a block, turned in place by the same angles.
//
// A workgroup has one KV head of one position.

struct Params {
    zero: u32,
    d_head: u32,
    block_len: u32,
    elem: u32,
    // The blocks, as first words of them among the tables, and the first word of the keys of this layer in a block.
    blocks_at: u32,
    k_at: u32,
    angles_at: u32,
    d_rope: u32,
    pairs_are_neighbours: u32,
    // Positions of the first block that stay.
    n_kept: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    if group.z == 0u && group.x < p.n_kept {
        return;
    }
    let rows = tables[p.blocks_at + group.z] + p.k_at + group.y * head_words(false);
    for (var i = t; i < p.d_head; i += THREADS) {
        head[i] = stored_key(rows, group.x, i);
    }
    turn(p.angles_at, p.d_rope, p.pairs_are_neighbours != 0u, t);
    store_head(rows, group.x, false, t);
}
