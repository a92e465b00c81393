// All activation rows, in their order.

fn tile_of(group: vec3<u32>, rows: u32, columns: u32, t: u32) -> Tile {
    var tile = rows_of(group, rows);
    if tile.row < tile.n_out {
        tile.first = columns * group.z;
        tile.n = min(columns, p.n_rows - tile.first);
    }
    return tile;
}

fn row_of_acts(column: u32) -> u32 {
    return column;
}

fn row_of_out(column: u32) -> u32 {
    return column;
}
