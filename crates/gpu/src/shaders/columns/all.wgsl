// Columns of a product with one matrix: all activation rows, in their order.

fn columns_of(group: vec3<u32>, most: u32, t: u32) -> Columns {
    let first = most * group.z;
    return Columns(first, min(most, p.n_rows - first), p.w_at, p.bias_at);
}

fn row_of_acts(column: u32) -> u32 {
    return column;
}

fn row_of_out(column: u32) -> u32 {
    return column;
}
