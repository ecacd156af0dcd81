//! The server in front of a real queue, over each kind of connection; and its description, compared with its
//! answers.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::body::{Body, to_bytes};
use axum::http::Request;
use carrack_register::transfer_operations::{
    TransferControlOrder, TransferOperationError, TransferOperations,
};
use carrack_register::transfer_records::{TransferState, TransferSubmission};
use carrack_sharing::SharingSettings;
use carrack_trust::{
    CertificateAuthority, CertificateUse, ClientTrust, IssuedTokenContent, KeySignatureAlgorithm,
    SERVER_LIFETIME, TokenScope, client_config,
};
use futures_util::StreamExt;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};

use super::*;
use crate::log::{DaemonLog, LogVerbosity};
use crate::queue::{LocalQueue, QueueOrderRules, QueueSettings, name_of_user};
use crate::sharing::{ClassUserRules, MachineMetaScheduler};

/// A queue that gives no turns: every record keeps its state.
fn queue(directory: &Path) -> Arc<LocalQueue> {
    let settings = QueueSettings {
        directory: directory.join("queue"),
        max_running: 1,
        history: Duration::from_secs(60),
        sites: BTreeMap::new(),
        turns: QueueOrderRules::default(),
        sharing: None,
    };
    Arc::new(LocalQueue::open(settings, DaemonLog(LogVerbosity::Quiet)).unwrap())
}

fn submission(label: &str) -> TransferSubmission {
    let text = json!({"source": "local:/a", "destination": "local:/b", "label": label});
    serde_json::from_value(text).unwrap()
}

/// A server over a Unix socket in this directory.
fn served(directory: &Path) -> ApiClient {
    let socket = directory.join("socket");
    let listener = ApiListener::unix(&socket, 0o600).unwrap();
    let control: Arc<dyn TransferOperations> = queue(directory);
    let sharing =
        Some(Arc::new(MachineMetaScheduler::start(SharingSettings::default(), ClassUserRules::default())));
    let services = ApiServices { control, sharing };
    tokio::spawn(serve_api(vec![listener], services, Arc::new(ApiAuth::default()), std::future::pending()));
    ApiClient::new(ServerAddress::Unix(socket), String::new(), None)
}

/// Sends a request; returns the status, the type and the body.
async fn ask(directory: &Path, method: &str, path: &str, body: Option<Value>) -> (u16, String, Value) {
    let stream = tokio::net::UnixStream::connect(directory.join("socket")).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "x");
    let request = request.header("content-type", "application/json");
    let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
    let answer = sender.send_request(request.body(body).unwrap()).await.unwrap();
    let status = answer.status().as_u16();
    let kind = answer.headers().get("content-type").map_or("", |kind| kind.to_str().unwrap()).to_owned();
    if kind == "text/event-stream" {
        return (status, kind, Value::Null);
    }
    let body = to_bytes(Body::new(answer.into_body()), 1 << 20).await.unwrap();
    (status, kind, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

/// Returns the differences between `value` and `schema`, for the part of JSON Schema that the description
/// uses. An unknown field counts as one, as every served field should be described.
fn wrong(value: &Value, schema: &Value, all: &Value, place: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return wrong(value, &all["components"]["schemas"][name], all, place);
    }
    for choice in ["oneOf", "anyOf"] {
        if let Some(choices) = schema[choice].as_array() {
            let fits = choices.iter().any(|choice| wrong(value, choice, all, place).is_empty());
            return if fits { Vec::new() } else { vec![format!("{place}: {value} is none of the choices")] };
        }
    }
    if let Some(parts) = schema["allOf"].as_array() {
        return parts.iter().flat_map(|part| wrong(value, part, all, place)).collect();
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(kind) => vec![kind],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return vec![format!("{place}: no type in {schema}")],
    };
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    if !kinds.contains(&kind) {
        return vec![format!("{place}: {value} is no {kinds:?}")];
    }
    if schema["enum"].as_array().is_some_and(|values| !values.contains(value)) {
        return vec![format!("{place}: {value} is not in {}", schema["enum"])];
    }
    match value {
        Value::Array(items) => {
            items.iter().flat_map(|item| wrong(item, &schema["items"], all, &format!("{place}[]"))).collect()
        }
        Value::Object(fields) => {
            let empty = Vec::new();
            let required = schema["required"].as_array().unwrap_or(&empty).iter();
            let missing = required.filter(|name| !fields.contains_key(name.as_str().unwrap()));
            let mut found: Vec<String> = missing.map(|name| format!("{place}: {name} is missing")).collect();
            for (name, field) in fields {
                match schema["properties"].get(name) {
                    Some(schema) => found.extend(wrong(field, schema, all, &format!("{place}.{name}"))),
                    None => found.push(format!("{place}.{name} is not described")),
                }
            }
            found
        }
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn what_is_served_is_what_is_described() {
    let dir = tempfile::tempdir().unwrap();
    let client = served(dir.path());
    let (status, _, description) = ask(dir.path(), "GET", "/v1/openapi.json", None).await;
    assert_eq!(status, 200);
    let mut routes = Vec::new();
    for (path, methods) in description["paths"].as_object().unwrap() {
        let named =
            ["get", "post", "put", "delete", "patch"].into_iter().filter(|m| methods.get(m).is_some());
        routes.extend(named.map(|method| format!("{method} {path}")));
    }
    routes.sort();
    assert_eq!(
        routes,
        [
            "get /v1/events",
            "get /v1/health",
            "get /v1/metrics",
            "get /v1/movers",
            "get /v1/openapi.json",
            "get /v1/targets",
            "get /v1/transfers",
            "get /v1/transfers/{id}",
            "get /v1/transfers/{id}/events",
            "post /v1/grants",
            "post /v1/transfers",
            "post /v1/transfers/{id}/cancel",
            "post /v1/transfers/{id}/pause",
            "post /v1/transfers/{id}/resume",
        ]
    );
    let id = client.submit("", submission("x")).await.unwrap().id;
    for route in routes {
        let (method, path) = route.split_once(' ').unwrap();
        let operation = &description["paths"][path][method];
        for (asked, body) in [
            (path.replace("{id}", &id), json!({"source": "local:/a", "destination": "local:/b"})),
            (path.replace("{id}", "0000"), json!({"source": "nowhere:/a", "destination": "local:/b"})),
            (format!("{}?limit=x", path.replace("{id}", "zz")), json!({"source": "no site"})),
            (
                path.replace("{id}", &id),
                json!({"client": "a", "number": 1, "asks": [{"target": "lfs01/OST0000"}]}),
            ),
            (
                path.replace("{id}", &id),
                json!({"client": "b", "number": 1, "asks": [{"target": "lfs01/OST0000"}]}),
            ),
        ] {
            let method = method.to_uppercase();
            let (status, kind, answer) = ask(dir.path(), &method, &asked, Some(body)).await;
            let responses = operation["responses"].as_object().unwrap();
            let class = format!("{}XX", status / 100);
            let described = responses.get(&status.to_string()).or_else(|| responses.get(&class));
            let content =
                &described.unwrap_or_else(|| panic!("{method} {asked}: {status} {answer}"))["content"];
            let schema = &content[&kind]["schema"];
            assert!(!schema.is_null(), "{method} {asked}: {kind} is not described: {content}");
            if kind.ends_with("json") && path != "/v1/openapi.json" {
                let wrong = wrong(&answer, schema, &description, "");
                assert!(wrong.is_empty(), "{method} {asked}: {wrong:#?}");
            }
        }
    }
    let (status, kind, answer) = ask(dir.path(), "DELETE", "/v1/transfers", None).await;
    assert_eq!((status, &*kind, &answer["status"]), (405, "application/problem+json", &json!(405)));
    let (status, _, answer) = ask(dir.path(), "GET", "/v2", None).await;
    assert!(status == 404 && answer["hint"].as_str().unwrap().contains("openapi"), "{answer}");
    // The checker itself finds errors.
    let schema = &description["components"]["schemas"]["TransferRecord"];
    assert!(!wrong(&json!({"id": 7}), schema, &description, "").is_empty());
}

#[tokio::test]
async fn the_client_does_what_the_queue_does() {
    let dir = tempfile::tempdir().unwrap();
    let client = served(dir.path());
    let own = name_of_user(rustix::process::geteuid().as_raw());
    let first = client.submit("somebody else", submission("first")).await.unwrap();
    assert_eq!((&first.user, first.state), (&own, TransferState::Queued), "the kernel says who asks");
    let second = client.submit("", submission("second")).await.unwrap();
    assert_eq!(client.transfers(10, None).await.unwrap(), [second.clone(), first.clone()]);
    assert_eq!(client.transfers(1, None).await.unwrap(), std::slice::from_ref(&second));
    assert_eq!(client.transfers(9, Some(&second.id)).await.unwrap(), std::slice::from_ref(&first));
    assert_eq!(client.transfers(9, Some(&first.id)).await.unwrap(), []);
    for nobody in ["0123456789abcdef", "a/b"] {
        let error = client.transfers(9, Some(nobody)).await.unwrap_err();
        assert!(matches!(error, TransferOperationError::Unknown(_)), "{error}");
    }
    assert_eq!(client.transfer(&first.id[..12]).await.unwrap(), first);
    assert!(client.movers().await.unwrap().is_empty());
    assert!(
        matches!(client.transfer("0000").await, Err(TransferOperationError::Unknown(id)) if id == "0000")
    );
    let refused = TransferSubmission { priority: 12, ..submission("") };
    assert!(
        matches!(client.submit("", refused).await, Err(TransferOperationError::Refused { hint, .. }) if hint.contains('9'))
    );

    let mut watched = client.watch(&first.id);
    assert_eq!(watched.next().await.unwrap().unwrap().state, TransferState::Queued);
    client.issue_order("", &first.id, TransferControlOrder::Pause).await.unwrap();
    assert_eq!(watched.next().await.unwrap().unwrap().state, TransferState::Paused);
    client.issue_order("", &first.id, TransferControlOrder::Cancel).await.unwrap();
    assert_eq!(watched.next().await.unwrap().unwrap().state, TransferState::Cancelled);
    assert!(watched.next().await.is_none(), "it is over");
    let again = client.issue_order("", &first.id, TransferControlOrder::Resume).await;
    assert!(matches!(again, Err(TransferOperationError::Refused { .. })), "{again:?}");
    let mut nothing = client.watch("0000");
    assert!(matches!(nothing.next().await, Some(Err(TransferOperationError::Unknown(_)))));
    assert!(nothing.next().await.is_none());

    let nobody = ApiClient::new(ServerAddress::Unix(dir.path().join("nobody")), String::new(), None);
    assert!(matches!(nobody.transfers(1, None).await, Err(TransferOperationError::Away(_))));
}

fn submission_with(name: &str, value: Value) -> Value {
    let mut submission = json!({"source": "local:/a", "destination": "local:/b", "options": {}});
    let (place, name) = name.rsplit_once('/').unwrap();
    submission.pointer_mut(place).unwrap()[name] = value;
    submission
}

#[tokio::test]
async fn what_would_be_ignored_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let _client = served(dir.path());
    for (name, value, told) in [
        ("/options/weather", json!("fine"), "there is no option --weather"),
        ("/options/placement", json!("split"), "invalid value 'split' for '--placement"),
        ("/options/files_from", json!("/etc/shadow"), "--files-from names a file"),
        ("/options/pairs", json!(2), "a machine's queue has no --pairs"),
        ("/prority", json!(9), "prority is nothing"),
    ] {
        let (status, _, answer) =
            ask(dir.path(), "POST", "/v1/transfers", Some(submission_with(name, value))).await;
        assert_eq!(status, 422, "{answer}");
        assert!(answer["detail"].as_str().unwrap().starts_with(told), "{answer}");
        assert!(!answer["hint"].as_str().unwrap().is_empty(), "{answer}");
    }
    for umask in [json!("0888"), json!("1000"), json!(23)] {
        let (status, _, answer) =
            ask(dir.path(), "POST", "/v1/transfers", Some(submission_with("/umask", umask))).await;
        assert_eq!(status, 422, "{answer}");
    }
    for (name, value) in
        [("/options/policy", json!("round-robin")), ("/priority", json!(9)), ("/umask", json!("0027"))]
    {
        let (status, _, answer) =
            ask(dir.path(), "POST", "/v1/transfers", Some(submission_with(name, value))).await;
        assert_eq!(status, 201, "{answer}");
    }
}

#[tokio::test]
async fn all_transfers_are_watched_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let client = served(dir.path());
    let over = client.submit("", submission("over")).await.unwrap();
    client.issue_order("", &over.id, TransferControlOrder::Cancel).await.unwrap();
    let first = client.submit("", submission("first")).await.unwrap();
    let mut watched = client.watch_all();
    let mut next = async || {
        let said = tokio::time::timeout(Duration::from_secs(10), watched.next()).await;
        let record = said.expect("something is said").unwrap().unwrap();
        (record.id, record.state)
    };
    // A transfer that was over before is not reported.
    assert_eq!(next().await, (first.id.clone(), TransferState::Queued));
    let second = client.submit("", submission("second")).await.unwrap();
    assert_eq!(next().await, (second.id.clone(), TransferState::Queued));
    client.issue_order("", &first.id, TransferControlOrder::Pause).await.unwrap();
    assert_eq!(next().await, (first.id.clone(), TransferState::Paused));
    client.issue_order("", &second.id, TransferControlOrder::Cancel).await.unwrap();
    assert_eq!(next().await, (second.id, TransferState::Cancelled));
    client.issue_order("", &first.id, TransferControlOrder::Resume).await.unwrap();
    assert_eq!(next().await, (first.id, TransferState::Queued), "it goes on when one is over");
}

/// An authority with a server's certificate, and tokens.
struct ApiFixture {
    directory: tempfile::TempDir,
    authority: CertificateAuthority,
}

impl ApiFixture {
    fn new() -> ApiFixture {
        let directory = tempfile::tempdir().unwrap();
        let (path, now) = (directory.path(), SystemTime::now());
        let authority =
            CertificateAuthority::init(&path.join("authority"), "site", KeySignatureAlgorithm::P256, now)
                .unwrap();
        let names = vec!["localhost".to_owned()];
        authority.issue("server", &CertificateUse::Server { names }, SERVER_LIFETIME, path, now).unwrap();
        ApiFixture { directory, authority }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }

    fn token(&self, subject: &str, scope: &str) -> String {
        let grant = IssuedTokenContent {
            subject: subject.to_owned(),
            audience: "transfers".to_owned(),
            scope: TokenScope::parse(scope).unwrap(),
            lifetime: Duration::from_secs(60),
        };
        self.authority.token_signer().unwrap().mint(&grant, SystemTime::now()).unwrap().0
    }

    fn plan(&self, is_tls: bool) -> ApiPlan {
        let key = self.path("authority/token.pem");
        ApiPlan {
            listen: vec![([127, 0, 0, 1], 0).into()],
            socket: None,
            identity: is_tls.then(|| (self.path("server.pem"), self.path("server-key.pem"))),
            issuers: vec![ApiIssuer { name: "site".into(), audience: "transfers".into(), key }],
            revoked: None,
        }
    }

    /// Starts a server of this site.
    async fn serve(&self, is_tls: bool) -> u16 {
        let plan = self.plan(is_tls);
        let listeners = plan.listen().await.unwrap();
        let port = listeners[0].address().unwrap().port();
        let control = queue(&self.directory.path().join(port.to_string()));
        let auth = Arc::new(plan.auth().unwrap());
        let services = ApiServices::from(control as Arc<dyn TransferOperations>);
        tokio::spawn(serve_api(listeners, services, auth, std::future::pending()));
        port
    }

    fn client(&self, port: u16, is_tls: bool, token: &str) -> ApiClient {
        let trust = ClientTrust { cas: Some(self.read("authority/ca.pem")), ..ClientTrust::default() };
        let tls = is_tls.then(|| client_config(&trust).unwrap());
        let server = ServerAddress::Tcp { host: "localhost".into(), port, is_tls };
        ApiClient::new(server, token.to_owned(), tls)
    }
}

#[tokio::test]
async fn a_token_says_who_asks_and_how_far_that_goes() {
    let site = ApiFixture::new();
    let own = name_of_user(rustix::process::geteuid().as_raw());
    for is_tls in [true, false] {
        let port = site.serve(is_tls).await;
        let modifier = site.client(port, is_tls, &site.token(&own, "transfers.modify"));
        let record = modifier.submit("", submission("")).await.unwrap();
        assert_eq!(record.user, own);
        let reader = site.client(port, is_tls, &site.token(&own, "transfers.read"));
        assert_eq!(reader.watch_all().next().await.unwrap().unwrap(), record);
        let stranger = site.client(port, is_tls, &site.token(&own, "storage.read:/"));
        let refused = stranger.watch_all().next().await.unwrap();
        assert!(matches!(refused, Err(TransferOperationError::Forbidden(_))), "{refused:?}");
        assert_eq!(reader.transfers(9, None).await.unwrap(), std::slice::from_ref(&record));
        assert_eq!(reader.watch(&record.id).next().await.unwrap().unwrap(), record);
        for refused in [
            reader.submit("", submission("")).await,
            reader.issue_order("", &record.id, TransferControlOrder::Cancel).await,
            stranger.transfer(&record.id).await,
            site.client(port, is_tls, "").transfer(&record.id).await,
            site.client(port, is_tls, "not.a.token").transfer(&record.id).await,
            // Another user's transfer.
            site.client(port, is_tls, &site.token("mallory", "transfers.modify"))
                .issue_order("", &record.id, TransferControlOrder::Cancel)
                .await,
        ] {
            assert!(matches!(refused, Err(TransferOperationError::Forbidden(_))), "{refused:?}");
        }
        assert_eq!(reader.transfer(&record.id).await.unwrap().state, TransferState::Queued);
    }
}

#[tokio::test]
async fn nobody_speaks_to_a_stranger() {
    let site = ApiFixture::new();
    let port = site.serve(true).await;
    let other = ApiFixture::new();
    let error =
        other.client(port, true, &site.token("x", "transfers.read")).transfers(1, None).await.unwrap_err();
    assert!(
        matches!(&error, TransferOperationError::Away(words) if words.contains("certificate")),
        "{error}"
    );
    let everywhere = ApiPlan { listen: vec![([0, 0, 0, 0], 0).into()], ..site.plan(false) };
    let plain = everywhere.listen().await.unwrap_err();
    assert!(plain.to_string().contains("no TLS") && !plain.hint().is_empty(), "{plain}");
    let open = ApiPlan { issuers: Vec::new(), ..site.plan(true) };
    assert!(matches!(open.auth(), Err(ApiServerConfigError::NoIssuer)));
    assert!(matches!(ApiPlan::default().listen().await, Err(ApiServerConfigError::Nowhere)));
}

/// Many silent connections from one address, before TLS or after it.
#[tokio::test]
async fn idle_connections_keep_nobody_out() {
    let site = ApiFixture::new();
    let own = name_of_user(rustix::process::geteuid().as_raw());
    for is_tls in [true, false] {
        let port = site.serve(is_tls).await;
        let client = site.client(port, is_tls, &site.token(&own, "transfers.modify"));
        let record = client.submit("", submission("")).await.unwrap();
        let mut watching = client.watch(&record.id);
        assert_eq!(watching.next().await.unwrap().unwrap(), record);
        let mut idle = Vec::new();
        for _ in 0..unproved_connections::STRANGERS_MAX + 10 {
            idle.push(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap());
        }
        let mut byte = [0];
        let read = tokio::io::AsyncReadExt::read(&mut idle[0], &mut byte);
        let closed = tokio::time::timeout(Duration::from_secs(5), read).await.expect("the oldest makes room");
        assert!(closed.is_ok_and(|count| count == 0));
        assert_eq!(client.transfer(&record.id).await.unwrap(), record);
        // A connection that has shown a token is not among the strangers.
        client.issue_order("", &record.id, TransferControlOrder::Cancel).await.unwrap();
        assert_eq!(watching.next().await.unwrap().unwrap().state, TransferState::Cancelled);
    }
}

#[tokio::test]
async fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("socket");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let _listener = ApiListener::unix(&path, 0o600).unwrap();
    assert!(matches!(ApiListener::unix(&path, 0o600), Err(ListenError::InUse(_))));
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert!(matches!(ApiListener::unix(&file, 0o600), Err(ListenError::NoSocket(_))));
}
