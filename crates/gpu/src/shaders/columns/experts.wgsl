// Columns of a product with the matrices of experts: those of one expert are neighbours in the order that `group.wgsl`
// writes. A table among the weights has a pair for each expert: the first word of its matrix, and what multiplies its
// weights. A matrix that lies in another buffer has no first word: its columns are left to another run.

var<workgroup> found: Tile;

// The tile with entry `i` of the list of as many columns.
fn with_entry(tile: Tile, i: u32, columns: u32) -> Tile {
    let is_long = columns == 64u;
    if tile.row >= tile.n_out || i >= acts[p.groups_at + select(0u, 1u, is_long)] {
        return tile;
    }
    let at = p.groups_at + 2u + p.n_rows + 3u * (i + select(0u, p.n_rows, is_long));
    let expert = acts[at];
    var full = tile;
    full.w_at = weights[p.w_at + 2u * expert];
    full.scale = vector(p.w_at + 2u * expert + 1u);
    full.bias_at = select(p.bias_at + expert * p.n_out, NONE, p.bias_at == NONE);
    full.first = acts[at + 1u];
    full.n = select(acts[at + 2u], 0u, full.w_at == NONE);
    return full;
}

// All threads call it.
fn tile_of(group: vec3<u32>, rows: u32, columns: u32, t: u32) -> Tile {
    if t == 0u {
        found = with_entry(rows_of(group, rows), group.z, columns);
    }
    return workgroupUniformLoad(&found);
}

fn slot_of(column: u32) -> u32 {
    return acts[p.groups_at + 2u + column];
}

fn row_of_acts(column: u32) -> u32 {
    return slot_of(column) / p.n_shared;
}

fn row_of_out(column: u32) -> u32 {
    return slot_of(column);
}
