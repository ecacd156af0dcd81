//! Connecting, and making what a fleet needs.

use std::io::Write;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use carrack_cluster::bus::{BusOptions, NatsBus};
use carrack_cluster::error::BusError;
use carrack_cluster::transfers::TransferStore;

use crate::support::{PATIENCE, Server, free_ports, nats, server_program, until};

#[tokio::test]
async fn preparing_again_is_preparing_once_and_what_is_not_ours_is_refused() {
    let Some(nats) = nats(1) else { return };
    let bus = NatsBus::connect(&nats.options()).await.unwrap();
    let (one, two) = tokio::join!(bus.create_missing_streams(None), bus.create_missing_streams(None));
    assert_eq!((one.unwrap().replicas, two.unwrap().warning), (1, None));
    assert_eq!(bus.create_missing_streams(None).await.unwrap().replicas, 1);

    let client = async_nats::connect(&nats.urls[0]).await.unwrap();
    let context = async_nats::jetstream::new(client);
    let foreign = async_nats::jetstream::stream::Config {
        name: "other_work".into(),
        subjects: vec!["other.work.>".into()],
        ..Default::default()
    };
    context.create_stream(foreign).await.unwrap();
    let other = BusOptions { prefix: "other".into(), ..nats.options() };
    let error = NatsBus::connect(&other).await.unwrap().create_missing_streams(None).await.unwrap_err();
    assert!(matches!(error, BusError::Foreign { .. }), "{error}");
    assert!(error.hint().is_some());

    // A stream of another version.
    let mut stream = context.get_stream("carrack_log").await.unwrap().cached_info().config.clone();
    stream.metadata.insert("carrack-records".into(), "2".into());
    context.update_stream(stream).await.unwrap();
    let error = bus.create_missing_streams(None).await.unwrap_err();
    assert!(error.to_string().contains("of version 2"), "{error}");
}

#[tokio::test]
async fn three_servers_keep_three_copies_and_one_of_them_may_end() {
    let Some(nats) = nats(3) else { return };
    let bus = NatsBus::connect(&nats.options()).await.unwrap();
    let prepared = bus.create_missing_streams(None).await.unwrap();
    assert_eq!((prepared.replicas, prepared.warning), (3, None));
    nats.stop(1);
    let record = crate::support::transfer("0123456789abcdef", 1);
    let began = Instant::now();
    // Its streams get other leaders within seconds.
    let kept = loop {
        let created = match TransferStore::open(&bus).await {
            Ok(transfers) => transfers.create(&record).await.map(|_| ()),
            Err(error) => Err(error),
        };
        match created {
            Err(error) if error.is_transient() && began.elapsed() < PATIENCE => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            kept => break kept,
        }
    };
    // The answer to the first try may have been lost with the server.
    assert!(matches!(kept, Ok(_) | Err(BusError::Exists(_))), "{kept:?}");
    nats.start(1);
}

#[tokio::test]
async fn old_servers_and_those_without_jetstream_are_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let info = r#"{"server_id":"x","server_name":"old","version":"2.9.10","max_payload":1048576,"headers":true,"jetstream":true}"#;
            let _ = write!(stream, "INFO {info}\r\nPONG\r\n");
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    let old = BusOptions { servers: vec![format!("nats://127.0.0.1:{port}")], ..BusOptions::default() };
    let error = NatsBus::connect(&old).await.err().unwrap();
    assert!(matches!(&error, BusError::Old { version, .. } if version == "2.9.10"), "{error}");
    assert!(error.hint().unwrap().contains("go install"));

    let nowhere = BusOptions { servers: vec!["nats://127.0.0.1:1".into()], ..BusOptions::default() };
    let error = NatsBus::connect(&nowhere).await.err().unwrap();
    assert!(matches!(error, BusError::Connect { .. }) && error.hint().is_some(), "{error}");

    if server_program().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (config, port) = (dir.path().join("plain.conf"), free_ports(1)[0]);
    std::fs::write(&config, format!("listen: 127.0.0.1:{port}\n")).unwrap();
    let _server = Server::start(&config, &[], port);
    let plain = BusOptions { servers: vec![format!("nats://127.0.0.1:{port}")], ..BusOptions::default() };
    let error = NatsBus::connect(&plain).await.err().unwrap();
    assert!(matches!(error, BusError::NoJetStream { .. }), "{error}");
}

#[tokio::test]
async fn silence_is_noticed_and_ends() {
    let Some(nats) = nats(1) else { return };
    let bus = nats.bus().await;
    assert_eq!(bus.disconnected_for(), None);
    nats.stop(1);
    until("silence", || bus.disconnected_for().is_some()).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(bus.disconnected_for().unwrap() >= Duration::from_millis(100));
    nats.start(1);
    until("a connection again", || bus.disconnected_for().is_none()).await;
    bus.create_missing_streams(None).await.unwrap();
}
