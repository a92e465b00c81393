//! Models in several files: the directory of all, and the files that do not belong together.

use std::sync::Arc;

use atta_formats::{Contents, Directory, Error, Split, TensorType, Writer};

/// Shard `no` of a model whose split keys say `count` files with `n_tensors` tensors; its one
/// tensor is `name`.
fn shard(no: u16, count: u16, n_tensors: u64, name: &str) -> Contents {
    let mut w = Writer::new();
    w.set_split(Split {
        no,
        count,
        n_tensors: Some(n_tensors),
    });
    parsed(w, name)
}

/// The contents of a file with one tensor.
fn parsed(mut w: Writer, tensor: &str) -> Contents {
    w.add_tensor(tensor, &[8], TensorType::F32).unwrap();
    let layout = w.finish().unwrap();
    Contents::parse(Arc::new(layout.header), layout.file_bytes).unwrap()
}

#[test]
fn shards_make_one_directory() {
    let d = Directory::from_shards(vec![shard(0, 2, 2, "a"), shard(1, 2, 2, "b")]).unwrap();
    assert_eq!((d.n_shards(), d.tensors().len()), (2, 2));
    assert_eq!(
        (d.tensor("a").unwrap().shard, d.tensor("b").unwrap().shard),
        (0, 1)
    );
    assert_eq!(d.tensor("c"), None);
}

#[test]
fn shards_that_do_not_belong_together_are_refused() {
    let join = |files: Vec<Contents>| Directory::from_shards(files).err().unwrap();
    let mismatch = |shard, key, expected, got| Error::SplitMismatch {
        shard,
        key,
        expected,
        got,
    };
    let max = u16::MAX.into();
    assert_eq!(join(vec![]), Error::SplitShards { got: 0, max });
    assert_eq!(
        join(vec![shard(0, 2, 2, "a")]),
        Error::SplitAlone { no: 1, count: 2 }
    );
    assert_eq!(
        join(vec![shard(0, 3, 2, "a"), shard(1, 3, 2, "b")]),
        mismatch(1, "split.count", 2, 3)
    );
    let swapped = vec![shard(1, 2, 2, "a"), shard(0, 2, 2, "b")];
    assert_eq!(join(swapped), mismatch(1, "split.no", 0, 1));
    let lost = vec![shard(0, 2, 3, "a"), shard(1, 2, 3, "b")];
    assert_eq!(join(lost), mismatch(1, "split.tensors.count", 2, 3));
    let same = vec![shard(0, 2, 2, "a"), shard(1, 2, 2, "a")];
    assert_eq!(
        join(same),
        Error::DuplicateTensor {
            tensor: "a".to_owned()
        }
    );
    let whole = parsed(Writer::new(), "a");
    assert_eq!(
        join(vec![whole.clone(), whole]),
        Error::SplitKey {
            shard: 1,
            key: "split.count"
        }
    );
}
