// Columns of rows of values at another place, for some heads of each.

struct Params {
    zero: u32,
    n: u32,
    // First words, and those from row to row and from head to head.
    from_at: u32,
    from_row: u32,
    from_head: u32,
    to_at: u32,
    to_row: u32,
    to_head: u32,
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) t: u32) {
    let from_at = p.from_at + group.x * p.from_row + group.y * p.from_head;
    let to = p.to_at + group.x * p.to_row + group.y * p.to_head;
    for (var i = t; i < p.n; i += 64u) {
        values[to + i] = values[from_at + i];
    }
}
