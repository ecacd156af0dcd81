//! A mover of an older carrack: there is no such program here, but its record, on which the others rely, can
//! be on NATS.

use std::fs::File;
use std::future::ready;
use std::os::fd::AsFd;
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use carrack_cluster::bus::{BusOptions, NatsBus};
use carrack_cluster::mover_requests::{MoverReply, MoverRequest, PathReply, serve_requests};
use carrack_cluster::registry::MoverRegistration;
use carrack_register::transfer_records::MoverRecord;
use futures_util::FutureExt;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::stage::Stage;

/// The record stays registered until this is dropped.
pub struct OldMover {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl OldMover {
    /// Registers a mover like `like`, but with its own name and the previous protocol.
    pub fn start(stage: &Stage, like: &MoverRecord, host: &str) -> OldMover {
        let record = MoverRecord {
            id: format!("{host}-0"),
            host: host.to_owned(),
            protocol: like.protocol - 1,
            software: "0.0.1".to_owned(),
            ..like.clone()
        };
        let network = File::open(stage.network.namespace()).unwrap();
        let options = BusOptions { servers: vec![stage.urls()], ..BusOptions::default() };
        let (end, ended) = channel::<()>();
        let (tell, is_registered) = channel();
        let thread = thread::spawn(move || {
            // This thread makes the sockets, so they are in the hosts' network.
            move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let bus = NatsBus::connect(&options).await.unwrap();
                let _answers =
                    serve_requests(&bus, &record.id, |ask| ready(answer(&ask)).boxed()).await.unwrap();
                let _registered = MoverRegistration::start(&bus, record).await.unwrap();
                tell.send(()).unwrap();
                let _ = tokio::task::spawn_blocking(move || ended.recv()).await;
            });
        });
        is_registered.recv().unwrap();
        OldMover { end: Some(end), thread: Some(thread) }
    }
}

/// Answers that the requested paths do not exist.
fn answer(ask: &MoverRequest) -> MoverReply {
    match ask {
        MoverRequest::Look { .. } => MoverReply::Looked(PathReply {
            exists: false,
            is_directory: false,
            size: 0,
            is_link: false,
            parent_exists: true,
        }),
        _ => MoverReply::Failed("an old mover does not know that".to_owned()),
    }
}

impl Drop for OldMover {
    fn drop(&mut self) {
        self.end.take();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
