// Columns of a product with the matrices of experts: those of one expert are neighbours in the order that `group.wgsl`
// writes. A matrix that lies in another buffer has no first word among the weights: its columns are left to another run.

var<workgroup> found: Columns;

fn find_columns(i: u32, most: u32) -> Columns {
    let none = Columns(0u, 0u, 0u, NONE);
    let is_tile = most == 64u;
    if i >= acts[p.groups_at + select(0u, 1u, is_tile)] {
        return none;
    }
    let at = p.groups_at + 2u + p.n_rows + 3u * (i + select(0u, p.n_rows, is_tile));
    let expert = acts[at];
    let w = weights[p.w_at + expert];
    if w == NONE {
        return none;
    }
    let bias = select(p.bias_at + expert * p.n_out, NONE, p.bias_at == NONE);
    return Columns(acts[at + 1u], acts[at + 2u], w, bias);
}

// All threads call it.
fn columns_of(group: vec3<u32>, most: u32, t: u32) -> Columns {
    if t == 0u {
        found = find_columns(group.z, most);
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
