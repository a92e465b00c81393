//! A node without a model fetches the layers of its stage from another one, once.

use std::{
    fs, io,
    ops::ControlFlow,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use atta_cluster::{
    PartLinks, PartServer,
    control::NodeName,
    node::{LibraryModels, Models, Wanted, part_server, wanted_files},
    part::{Library, LibraryOptions, PartsDirectory},
    wire::{
        Frame,
        message::{Digest, NodeAddress, PartRequest, WantedModel},
    },
};
use atta_model::Share;

/// One node's server, without a network; counts the bytes of tensors and indices.
struct Direct(PartServer, AtomicU64);

impl PartLinks for Direct {
    fn pull(
        &self,
        _: &NodeAddress,
        request: &PartRequest,
        take: &mut dyn FnMut(Frame) -> ControlFlow<()>,
    ) -> io::Result<()> {
        (self.0)(request, &mut |frame| {
            self.1.fetch_add(frame.data.len() as u64, Ordering::Relaxed);
            match take(frame) {
                ControlFlow::Continue(()) => Ok(()),
                ControlFlow::Break(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            }
        })
    }

    fn serve(&self, _: PartServer) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[test]
fn a_second_start_moves_no_byte() {
    let root = std::env::temp_dir().join(format!("atta-pull-once-{}", std::process::id()));
    let library = |node: &str| {
        Arc::new(Library::new(LibraryOptions {
            models: vec![],
            parts: Some(PartsDirectory {
                path: root.join(node).join("parts"),
                budget_bytes: 1 << 20,
            }),
            hashes: root.join(node).join("hashes"),
        }))
    };
    let golden =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/models/llama-plain.gguf");
    let has = library("has");
    let model = has.hashed(&golden, &mut |_, _| ControlFlow::Continue(()));
    let model = model.unwrap();
    let wanted = WantedModel {
        id: model.id(),
        name: "a.gguf".to_owned(),
        files: wanted_files(&model.index),
        share: Digest([0; 32]),
    };
    let links = Arc::new(Direct(part_server(has, None), AtomicU64::new(0)));
    let open = |sources: &[NodeAddress]| {
        let models = LibraryModels::new(library("lacks"), links.clone());
        let wanted = Wanted {
            model: &wanted,
            share: &Share {
                layers: 0..1,
                embed: false,
                head: false,
            },
            ring: 1,
            sources,
        };
        models.open(wanted, &mut |_| ControlFlow::Continue(()))
    };
    let why = open(&[]).unwrap_err().why;
    assert!(why.contains("no node is named"), "{why}");
    let source = NodeAddress {
        name: NodeName::new("lap").unwrap(),
        address: ([127, 0, 0, 1], 1).into(),
    };
    let first = open(&[source]).unwrap();
    let moved = links.1.load(Ordering::Relaxed);
    assert!(moved > 0);
    let second = open(&[]).unwrap();
    assert_eq!(second.share, first.share);
    assert_eq!(links.1.load(Ordering::Relaxed), moved);
    let _ = fs::remove_dir_all(&root);
}
