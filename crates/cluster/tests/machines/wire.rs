//! A way over TCP to a machine, which can be cut. UDP does not pass by it.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

/// A way to a machine that can be cut.
pub(crate) struct Wire {
    pub(crate) address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
    pub(crate) n_opened: Arc<AtomicUsize>,
}

impl Wire {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Self {
            address: listener.local_addr().unwrap(),
            open: Arc::default(),
            n_opened: Arc::default(),
        };
        let (open, n_opened) = (wire.open.clone(), wire.n_opened.clone());
        thread::spawn(move || {
            for here in listener.incoming().flatten() {
                let Ok(there) = TcpStream::connect(target) else {
                    continue;
                };
                n_opened.fetch_add(1, Ordering::AcqRel);
                for (from, to) in [(&here, &there), (&there, &here)] {
                    let mut from = from.try_clone().unwrap();
                    let mut to = to.try_clone().unwrap();
                    open.lock().unwrap().push(from.try_clone().unwrap());
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        wire
    }

    pub(crate) fn cut(&self) {
        for socket in self.open.lock().unwrap().drain(..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }
}
